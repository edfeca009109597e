// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skylarkmq/skylark/storage/inspect"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Look into the files of a store, also of a running broker or of Apache's",
		Long: "Look into the files of a store directory. Nothing is locked or changed, so the broker that\n" +
			"owns it may be running, and may be Apache's. rebuild alone writes, and only while no broker runs.\n\n" +
			"  skylark inspect stats /var/lib/skylark\n" +
			"  skylark inspect log /var/lib/skylark --topic orders --key 7\n" +
			"  skylark inspect verify /var/lib/skylark && echo sound\n" +
			"  skylark inspect rebuild /var/lib/skylark -c broker.conf",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.inspectLogCommand(), a.inspectExportCommand(), a.inspectStatsCommand(),
		a.inspectVerifyCommand(), a.inspectQueueCommand(), a.inspectIndexCommand(),
		a.inspectCheckpointCommand(), a.inspectConfigCommand(),
		a.inspectRebuildCommand(),
	)
	return cmd
}

// inspectLeaf makes a subcommand that works on one store directory.
func (a *app) inspectLeaf(
	use, short string, do func(ctx context.Context, d *inspect.Dir) error,
) *cobra.Command {
	var logDirs []string
	cmd := &cobra.Command{
		Use: use + " DIR", Short: short,
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := inspect.Open(args[0], logDirs...)
			if err != nil {
				return err
			}
			defer d.Close()
			return do(cmd.Context(), d)
		},
	}
	cmd.Flags().StringSliceVar(&logDirs, "commitlog", nil,
		"where the log lies, if not in DIR/commitlog (storePathCommitLog, with commas)")
	return cmd
}

// progress shows on a terminal how far a long look is, from its third second on.
func (a *app) progress() inspect.Progress {
	f, ok := a.stderr.(*os.File)
	if a.json || !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	start, shown := time.Now(), time.Now()
	drawn := false
	return func(done, total int64) {
		now := time.Now()
		took := now.Sub(start)
		if done >= total && drawn {
			_, _ = fmt.Fprint(f, "\r\x1b[K") // what comes next has the line for itself
			drawn = false
			return
		}
		if took < 2*time.Second || now.Sub(shown) < 200*time.Millisecond {
			return
		}
		shown, drawn = now, true
		rate := float64(done) / took.Seconds()
		left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
		const cells = 30
		full := int(min(done*cells/max(total, 1), cells))
		_, _ = fmt.Fprintf(f, "\r[%s%s] %5.1f %%  %.0f MB/s  at most %v left  ",
			strings.Repeat("#", full), strings.Repeat(".", cells-full),
			float64(done)*100/float64(total), rate/1e6, left)
	}
}

func (a *app) inspectStatsCommand() *cobra.Command {
	return a.inspectLeaf("stats", "Count records and bytes by topic",
		func(ctx context.Context, d *inspect.Dir) error {
			list, end, err := d.Stats(ctx, a.progress())
			if err != nil {
				return err
			}
			rows := make([]statsRow, len(list))
			for i, t := range list {
				rows[i] = statsRow{
					t.Topic, t.Queues, t.Records, t.Bytes, t.Bodies, t.Oldest, t.Newest,
				}
			}
			return errors.Join(printRows(a, rows), a.damage(end))
		})
}

type statsRow struct {
	Topic   string    `json:"topic" col:"TOPIC"`
	Queues  int       `json:"queues" col:"QUEUES"`
	Records int64     `json:"records" col:"RECORDS"`
	Bytes   int64     `json:"bytes" col:"BYTES"`
	Bodies  int64     `json:"body_bytes" col:"BODY BYTES"`
	Oldest  time.Time `json:"oldest" col:"OLDEST"`
	Newest  time.Time `json:"newest" col:"NEWEST"`
}

// damage turns an end that is none into an error.
func (a *app) damage(end inspect.End) error {
	if end.Reason != inspect.EndDamage && end.Reason != inspect.EndGap {
		return nil
	}
	return fmt.Errorf("the log is damaged at offset %d: %s; what lies behind it was not read",
		end.At, end.Detail)
}

func (a *app) inspectVerifyCommand() *cobra.Command {
	return a.inspectLeaf("verify", "Check every check sum, and every queue entry against the log",
		func(ctx context.Context, d *inspect.Dir) error {
			start := time.Now()
			r, err := d.Verify(ctx, a.progress())
			if err != nil {
				return err
			}
			if a.json {
				if err := a.printJSON(r); err != nil {
					return err
				}
			} else if err := a.printReport(r, time.Since(start)); err != nil {
				return err
			}
			if !r.OK() {
				return errReported
			}
			return nil
		})
}

func (a *app) printReport(r *inspect.Report, took time.Duration) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(a.stdout, "%s at %d: topic=%s queue=%d offset=%d %s\n",
			f.Kind, f.At, f.Topic, f.Queue, f.Offset, f.Detail); err != nil {
			return err
		}
	}
	verdict := "sound"
	if !r.OK() {
		verdict = fmt.Sprintf("%d faults", r.Faults)
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %d records, %d bytes, %d queue entries, the log ends at %d (%s), %v\n",
		verdict, r.Records, r.Bytes, r.Units, r.End.At, r.End.Reason, took.Round(time.Millisecond))
	return err
}
