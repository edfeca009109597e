// SPDX-License-Identifier: Apache-2.0

// Command crashreal kills a real broker again and again and looks whether it keeps its promise
// (storage/docs/durability.md). `make crash-real` runs it.
//
// It runs `skylark server` under the load of `skylark perf verify` and of senders of its own; sends
// SIGKILL at a random moment; starts it again on the same directory; and compares every message that
// was acknowledged and whose log file may not be deleted yet with what a client can read. Half of the
// kills are with ASYNC_FLUSH, half with SYNC_FLUSH, and half of each while old files of the log are
// deleted and a topic is deleted and made anew all the time.
//
// Then it does the same on ext4 and xfs in image files, where root may mount them, and pulls the
// device out instead: the file system is shut down without a last write to its journal. With
// ASYNC_FLUSH the end of the log may be missing then, and nothing else.
//
// The exit code is 1 when a message was lost, altered or out of order, when a deleted one came back,
// or when perf verify found a fault.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// plan is what the command line asks for.
type plan struct {
	skylark string
	kills   int
	yanks   int
	only    string
	work    string
	out     string
	rate    int
	least   time.Duration
	most    time.Duration
}

func main() {
	var p plan
	flag.StringVar(&p.skylark, "skylark", "bin/skylark", "binary to kill")
	flag.IntVar(&p.kills, "kills", 200, "how many kills, a quarter for each kind of flush with and without deletions")
	flag.IntVar(&p.yanks, "yanks", 40, "how many devices are pulled out, a quarter for each kind of flush and file system")
	flag.StringVar(&p.only, "only", "", "do only what has this in its name")
	flag.StringVar(&p.work, "work", "", "directory for stores; empty: a temporary one")
	flag.StringVar(&p.out, "out", "", "file that the summary is written to as well")
	flag.IntVar(&p.rate, "rate", 1000, "messages a second of perf verify")
	flag.DurationVar(&p.least, "least", 200*time.Millisecond, "shortest life of a broker")
	flag.DurationVar(&p.most, "most", 1500*time.Millisecond, "longest life of a broker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "crash-real:", err)
		os.Exit(1)
	}
}

// run does both kinds of flush in turn.
func (p *plan) run(ctx context.Context) (err error) {
	if p.most < p.least {
		return errors.New("-most is not below -least")
	}
	if p.work == "" {
		if p.work, err = os.MkdirTemp("", "skylark-crash-real-"); err != nil {
			return err
		}
		defer func() {
			if err == nil { // what a fault left is worth a look
				err = os.RemoveAll(p.work)
			}
		}()
	}
	var sink io.Writer = os.Stdout
	if p.out != "" {
		f, err := os.Create(p.out)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		sink = io.MultiWriter(os.Stdout, f)
	}
	_, _ = fmt.Fprintf(sink, "crash-real: %d kills, %d devices, %s, %d cores, %s/%s\n", p.kills, p.yanks,
		time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	var faults error
	for _, a := range p.arms() {
		err := a.run(ctx)
		verdict := "no violation"
		switch {
		case errors.Is(err, errSkipped):
			_, _ = fmt.Fprintf(sink, "%s: %v\n", a.name, err)
			continue
		case err != nil:
			verdict = "FAILED: " + err.Error()
		}
		_, _ = fmt.Fprintf(sink, "%s: %s; %s\n", a.name, a, verdict)
		faults = errors.Join(faults, err)
	}
	return faults
}

// arms lists what is done: both kinds of flush, with and without deletions, and both again on file
// systems whose device is pulled out.
func (p *plan) arms() []*arm {
	var list []*arm
	add := func(kind string, churn bool, deaths int) {
		for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
			name := flush
			if kind != "" {
				name += "-" + kind
			}
			if churn {
				name += "-deletions"
			}
			if deaths > 0 && (p.only == "" || strings.Contains(name, p.only)) {
				list = append(list, &arm{
					plan: p, name: name, flush: flush, churn: churn, kind: kind, deaths: deaths,
				})
			}
		}
	}
	add("", true, (p.kills+2)/4)
	add("", false, (p.kills+1)/4)
	add("ext4", true, (p.yanks+3)/4)
	add("xfs", true, (p.yanks+1)/4)
	return list
}
