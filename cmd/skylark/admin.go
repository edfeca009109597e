// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

// adminFlags are common to all subcommands of admin.
type adminFlags struct {
	nameServers string
	timeoutMS   int
}

// adminCommand has the commands of RocketMQ's mqadmin, with its names and flags, so that scripts go
// on with `skylark admin` in the place of mqadmin. Exit codes differ: mqadmin ends with 0 when a
// command failed.
func (a *app) adminCommand() *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Operate a cluster; commands and flags of RocketMQ's mqadmin",
		Long: "Commands, flags and columns are those of RocketMQ's mqadmin; --json prints an object a " +
			"line.\nThey work with Skylark and with Apache RocketMQ. The exit code is 1 when something " +
			"failed at any server.",
		Example: "  skylark admin clusterList -n 127.0.0.1:9876\n" +
			"  skylark admin updateTopic -c DefaultCluster -t created -r 16 -w 16\n" +
			"  skylark admin consumerProgress -g billing --json",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	def := defaultNameServer
	if v, ok := a.env("NAMESRV_ADDR"); ok && v != "" {
		def = v
	}
	fl := cmd.PersistentFlags()
	fl.StringVarP(&f.nameServers, "namesrvAddr", "n", def,
		"name servers as host:port, separated by ';' (environment NAMESRV_ADDR)")
	fl.StringVar(&f.nameServers, "name-server", def, "the same as --namesrvAddr")
	_ = fl.MarkHidden("name-server") // it exists
	fl.IntVar(&f.timeoutMS, "timeout-ms", 5000, "time for one request to one server, 1 to 600000")
	for _, group := range [][]*cobra.Command{
		a.topicCommands(f), a.groupCommands(f), a.offsetCommands(f), a.messageCommands(f),
		a.brokerCommands(f), a.nameServerCommands(f), a.deadCommands(f),
	} {
		cmd.AddCommand(group...)
	}
	return cmd
}

// adminLeaf makes one command; needed flags are named by their long form.
func (a *app) adminLeaf(
	f *adminFlags, use, short string, do func(ctx context.Context, ad *admin.Admin) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.timeoutMS < 1 || f.timeoutMS > 600_000 {
				return misuse{fmt.Errorf("--timeout-ms is %d, want 1 to 600000", f.timeoutMS)}
			}
			c, err := newClient(f.nameServers)
			if err != nil {
				return misuse{err}
			}
			defer closeClient(c)
			ad := admin.New(c, admin.WithTimeout(time.Duration(f.timeoutMS)*time.Millisecond))
			err = inCommands(do(cmd.Context(), ad))
			if errors.Is(err, admin.ErrInvalid) {
				return misuse{err}
			}
			return err
		},
	}
}

// inCommands has an error's advice name commands, where the package names its functions.
func inCommands(err error) error {
	var told *admin.Error
	if !errors.As(err, &told) || told.Next == "" {
		return err
	}
	switch {
	case errors.Is(err, client.ErrNoRoute):
		told.Next = "'topicList' has the names of all topics, 'updateTopic' creates one"
	case errors.Is(err, admin.ErrNoGroup):
		told.Next = "'consumerProgress' has the names of all groups, 'updateSubGroup' creates one"
	case errors.Is(err, admin.ErrNoBroker):
		told.Next = "'clusterList' has all brokers; only masters take changes"
	case errors.Is(err, admin.ErrNotOnline):
		told.Next = "check the name; no such client is connected"
	}
	return err
}

// need has a command refuse to run without flags, which are named by their long form.
func need(cmd *cobra.Command, names ...string) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var pairs []string
		for _, name := range names {
			pairs = append(pairs, name, cmd.Flag(name).Value.String())
		}
		if err := required(pairs...); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// place is where a command goes: -b or -c.
type place struct{ broker, cluster string }

func (p *place) flags(cmd *cobra.Command, broker, cluster string) {
	cmd.Flags().StringVarP(&p.broker, broker, "b", "", "broker as host:port")
	cmd.Flags().StringVarP(&p.cluster, cluster, "c", "", "every master of a cluster")
}

// target needs one of the two.
func (p *place) target() (admin.Target, error) {
	switch {
	case p.broker != "" && p.cluster != "":
		return admin.Target{}, misuse{errors.New("name a broker (-b) or a cluster (-c), not both")}
	case p.broker != "":
		return admin.AtAddr(p.broker), nil
	case p.cluster != "":
		return admin.InCluster(p.cluster), nil
	default:
		return admin.Target{}, misuse{errors.New("name a broker (-b) or a cluster (-c)")}
	}
}

// truth reads a flag with a value of true or false, as mqadmin's have; "" is def.
func truth(name, text string, def bool) (bool, error) {
	if text == "" {
		return def, nil
	}
	v, err := strconv.ParseBool(strings.TrimSpace(text))
	if err != nil {
		return false, misuse{fmt.Errorf("--%s is %q, want true or false", name, text)}
	}
	return v, nil
}

// told is what became of a command at one server.
type told struct {
	Server string `json:"server"`
	Broker string `json:"broker,omitempty"`
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
}

// outcome prints what became of a command at each server: words, with the address in the place of
// {}, for those that did it, an
// error for the others.
func (a *app) outcome(words string, done []admin.Done, err error) error {
	if len(done) == 0 {
		return err
	}
	for _, d := range done {
		if err := a.outcomeOf(words, d); err != nil {
			return err
		}
	}
	if err != nil {
		return errReported
	}
	return nil
}

func (a *app) outcomeOf(words string, d admin.Done) error {
	d.Err = inCommands(d.Err)
	if a.json {
		t := told{Server: d.Broker.Addr, Broker: d.Broker.Name, OK: d.Err == nil}
		if d.Err != nil {
			t.Error = d.Err.Error()
		}
		return a.printJSON(t)
	}
	if d.Err != nil {
		_, err := fmt.Fprintf(a.stderr, "skylark: %s: %v\n", d.Broker, d.Err)
		return err
	}
	_, err := fmt.Fprintln(a.stdout, strings.ReplaceAll(words, "{}", d.Broker.Addr))
	return err
}

// partly reports an error after what could be learnt was printed.
func (a *app) partly(err error) error {
	if err == nil {
		return nil
	}
	_, _ = fmt.Fprintf(a.stderr, "skylark: %v\n", err)
	return errReported
}

// stamp is how mqadmin prints times; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02 15:04:05")
}
