// SPDX-License-Identifier: Apache-2.0

// Command crashreal kills a real broker again and again and looks whether it keeps its promise
// (storage/docs/durability.md). `make crash-real` runs it.
//
// It runs `skylark server` under the load of `skylark perf verify` and of senders of its own, while
// old files of the log are deleted and a topic is deleted and made anew all the time; sends SIGKILL
// at a random moment; starts it again on the same directory; and compares every message that was
// acknowledged and whose log file may not be deleted yet with what a client can read. Half of the
// kills are with ASYNC_FLUSH, half with SYNC_FLUSH. The exit code is 1 when a message was lost,
// altered or out of order, when a deleted one came back, or when perf verify found a fault.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// plan is what the command line asks for.
type plan struct {
	skylark string
	kills   int
	work    string
	out     string
	rate    int
	least   time.Duration
	most    time.Duration
}

func main() {
	var p plan
	flag.StringVar(&p.skylark, "skylark", "bin/skylark", "binary to kill")
	flag.IntVar(&p.kills, "kills", 200, "how many kills, half of them with each kind of flush")
	flag.StringVar(&p.work, "work", "", "directory for stores; empty: a temporary one")
	flag.StringVar(&p.out, "out", "", "file that the summary is written to as well")
	flag.IntVar(&p.rate, "rate", 2000, "messages a second of perf verify")
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
	if p.kills < 2 || p.most < p.least {
		return errors.New("-kills is at least 2, and -most not below -least")
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
	_, _ = fmt.Fprintf(sink, "crash-real: %d kills, %s, %d cores, %s/%s\n", p.kills,
		time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	var faults error
	for i, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		a := &arm{plan: p, flush: flush, dir: filepath.Join(p.work, flush), kills: (p.kills + i) / 2}
		err := a.run(ctx)
		verdict := "no violation"
		if err != nil {
			verdict = "FAILED: " + err.Error()
		}
		_, _ = fmt.Fprintf(sink, "%s: %s; %s\n", flush, &a.sum, verdict)
		faults = errors.Join(faults, err)
	}
	return faults
}

// arm are the kills of one kind of flush, on one directory.
type arm struct {
	*plan
	flush string
	dir   string
	kills int
	sum   tally
}

// tally counts what happened.
type tally struct {
	kills, checks, acked, compared, deletes, files int
	longest                                        time.Duration // from start to ready
	verify                                         string
}

func (s *tally) String() string {
	return fmt.Sprintf("%d kills, %d checks, %d messages of the ledger acknowledged, %d compared, "+
		"%d topic deletions, %d log files deleted, slowest start %s; perf verify: %s", s.kills, s.checks,
		s.acked, s.compared, s.deletes, s.files, s.longest.Round(time.Millisecond), s.verify)
}

func (a *arm) run(ctx context.Context) error {
	b, err := newBroker(a.skylark, a.dir, a.flush)
	if err != nil {
		return err
	}
	defer b.kill()
	if err := a.start(b); err != nil {
		return err
	}
	v, err := b.startVerify(ctx, a.rate)
	if err != nil {
		return err
	}
	defer v.stop()
	l := newLedger(b.addr)
	defer l.close()
	for a.sum.kills < a.kills {
		if err := a.life(ctx, b, l); err != nil {
			return fmt.Errorf("kill %d: %w (the store is %s)", a.sum.kills, err, a.dir)
		}
		if a.sum.kills%20 == 0 {
			_, _ = fmt.Fprintf(os.Stderr, "crash-real: %s: %d of %d kills, %d compared\n", a.flush,
				a.sum.kills, a.kills, a.sum.compared)
		}
	}
	a.sum.verify, err = v.finish()
	return err
}

// life loads the broker, kills it, starts it again and compares.
func (a *arm) life(ctx context.Context, b *broker, l *ledger) error {
	load := l.load()
	timer := time.NewTimer(a.least + rand.N(a.most-a.least+1))
	select {
	case <-timer.C:
	case <-ctx.Done():
		timer.Stop()
		load.stop()
		return ctx.Err()
	}
	b.kill()
	load.stop()
	a.sum.kills++
	n, err := l.age(a.dir)
	if err != nil {
		return err
	}
	a.sum.files += n
	if err := a.start(b); err != nil {
		return err
	}
	compared, err := l.check(ctx)
	a.sum.checks++
	a.sum.compared += compared
	a.sum.acked, a.sum.deletes = l.counts()
	return err
}

func (a *arm) start(b *broker) error {
	began := time.Now()
	if err := b.start(); err != nil {
		return err
	}
	a.sum.longest = max(a.sum.longest, time.Since(began))
	return nil
}
