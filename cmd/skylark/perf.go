// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skylarkmq/skylark/perf/live"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/workload"
)

func (a *app) perfCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Load a cluster and measure it",
		Long: "Loads a cluster of Skylark or Apache RocketMQ and measures it. Figures and their " +
			"meaning are described\nin perf/README.md.",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.perfProduceCommand(), a.perfConsumeCommand(), a.perfLatencyCommand(), a.perfMixedCommand(),
		a.perfVerifyCommand(), a.perfCompareCommand(), a.perfWorkloadsCommand(),
		a.perfApacheProducerCommand(), a.perfApacheBatchProducerCommand(), a.perfApacheConsumerCommand(),
		a.perfApacheTransactionCommand(), a.perfNullServerCommand(),
	)
	return cmd
}

// perfFlags are common to both loads.
type perfFlags struct {
	nameServers      string
	warmup, duration time.Duration
	reportMS         int
	serialize        string
	keys             workload.Credentials
	workload         string
	out              string
}

func (a *app) perfCommonFlags(cmd *cobra.Command, f *perfFlags, brokerPID *int) {
	a.nameServerFlag(cmd, &f.nameServers)
	fl := cmd.Flags()
	fl.DurationVar(&f.warmup, "warmup", 0, "load for so long before measuring, as 20s")
	fl.DurationVar(&f.duration, "duration", 0,
		"measure for so long after warm-up, as 60s; 0: for ever")
	fl.IntVar(&f.reportMS, "report-ms", 0,
		"between report lines, at least 100; 0: 10000; a terminal shows a live view instead")
	fl.StringVar(&f.serialize, "serialize", "json", "header form of requests: json or rocketmq")
	fl.StringVar(&f.keys.AccessKey, "access-key", "",
		"sign requests for brokers with access control, with --secret-key; the header form is then rocketmq")
	fl.StringVar(&f.keys.SecretKey, "secret-key", "", "see --access-key")
	fl.IntVar(brokerPID, "broker-pid", 0,
		"process whose CPU and memory are measured over the window; must run on this host")
	fl.StringVar(&f.out, "out", "", outUsage)
	fl.StringVar(&f.workload, "workload", "",
		"begin with the settings of a named workload: "+strings.Join(workload.Names(), ", "))
}

// output decides the form of reports: JSON, one live line on a terminal, or report lines.
func (a *app) output(f *perfFlags) (workload.Output, error) {
	out := workload.Output{
		Reports: a.stdout, JSON: a.json, Every: time.Duration(f.reportMS) * time.Millisecond,
	}
	if f.reportMS != 0 && f.reportMS < 100 {
		return out, misuse{fmt.Errorf("--report-ms is %d, want at least 100", f.reportMS)}
	}
	if file, ok := a.stdout.(*os.File); ok && !a.json && term.IsTerminal(int(file.Fd())) {
		out.View = live.New(file)
	}
	if out.Every == 0 {
		out.Every = 10 * time.Second
	}
	return out, a.openFolder(f.out, &out)
}

func (f *perfFlags) binary() (bool, error) {
	switch strings.ToLower(f.serialize) {
	case "json":
		return false, nil
	case "rocketmq", "binary":
		return true, nil
	}
	return false, misuse{fmt.Errorf("--serialize is %q, want json or rocketmq", f.serialize)}
}

// credentials are nil when none were given.
func (f *perfFlags) credentials() *workload.Credentials {
	if f.keys == (workload.Credentials{}) {
		return nil
	}
	return &f.keys
}

// applyWorkload sets the options of the named workload that the command line does not set itself.
func (f *perfFlags) applyWorkload(
	cmd *cobra.Command, options func(workload.Workload) []workload.Option,
) error {
	if f.workload == "" {
		return nil
	}
	w, _ := workload.Named(f.workload)
	list := options(w)
	if list == nil {
		return misuse{fmt.Errorf("there is no workload %q for perf %s; all: %s",
			f.workload, cmd.Name(), strings.Join(workload.Names(), ", "))}
	}
	for _, o := range list {
		if cmd.Flags().Changed(o.Name) {
			continue
		}
		if err := cmd.Flags().Set(o.Name, o.Value); err != nil {
			return fmt.Errorf("workload %s: --%s: %w", f.workload, o.Name, err)
		}
	}
	return nil
}

func (f *perfFlags) servers() []string {
	var list []string
	for s := range strings.SplitSeq(f.nameServers, ";") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// finish turns the outcome of a run into that of the command.
func (a *app) finish(err error, results ...*measure.Result) error {
	if err != nil {
		if errors.Is(err, workload.ErrSettings) {
			return misuse{err}
		}
		return adviseDial(err)
	}
	if err := a.fillFolder(results...); err != nil {
		return err
	}
	for _, res := range results {
		if !res.OK {
			return errReported // the result said why
		}
	}
	return nil
}

func (a *app) perfWorkloadsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "workloads",
		Short:   "List the named workloads and their options",
		Example: "  skylark perf workloads\n  skylark perf produce --workload ingest-small --duration 30s",
		Args:    a.noArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, w := range workload.All() {
				if a.json {
					if err := a.printJSON(w); err != nil {
						return err
					}
					continue
				}
				_, _ = fmt.Fprintf(a.stdout, "%s: %s\n", w.Name, w.About)
				for _, use := range w.Uses() {
					_, _ = fmt.Fprintf(a.stdout, "  perf %s", use.Command)
					for _, o := range use.Options {
						_, _ = fmt.Fprintf(a.stdout, " --%s %s", o.Name, o.Value)
					}
					_, _ = fmt.Fprintln(a.stdout)
				}
			}
			return nil
		},
	}
}
