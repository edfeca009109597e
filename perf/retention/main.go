// SPDX-License-Identifier: Apache-2.0

// Command retention measures how long appends wait while old files of the log are deleted. It fills a
// store, then appends at a steady rate, in turn without deletions and while the cleaner deletes with
// RocketMQ's pauses, and prints the longest appends of each.
//
//	go run ./perf/retention -dir /var/tmp/r -segment-mib 64 -files 60
//
// On a machine that others work on an append takes long because its thread gets no processor. On Linux
// that time is told apart (/proc/thread-self/schedstat): what is left, the wait, is for locks, memory
// and the file system, and that is what deletions can make longer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// promised is the longest that an append may wait for a deletion.
const promised = 5 * time.Millisecond

type options struct {
	dir           string
	segmentMiB    int64
	files, rounds int
	rate, body    int
	phase         time.Duration
	sync          bool
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "directory of the store, which must not exist and is removed at the end")
	flag.Int64Var(&o.segmentMiB, "segment-mib", 64, "size of a log file in MiB")
	flag.IntVar(&o.files, "files", 60, "log files to fill first; the rounds delete them")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds, each a time without deletions and one with")
	flag.IntVar(&o.rate, "rate", 10_000, "messages a second")
	flag.IntVar(&o.body, "body", 1024, "bytes of a message's body")
	flag.DurationVar(&o.phase, "phase", 10*time.Second, "how long each of the two takes")
	flag.BoolVar(&o.sync, "sync", false, "SYNC_FLUSH; an append then ends when it is on disk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "retention:", err)
		os.Exit(1)
	}
}

// run does all rounds.
func (o *options) run(ctx context.Context) (err error) {
	if _, err := os.Stat(o.dir); o.dir == "" || err == nil {
		return fmt.Errorf("-dir %q is empty or exists", o.dir)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	d := &deletions{}
	s, err := storage.Open(o.config(d))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Fprintf(os.Stdout, "%d log files of %d MiB; then %d messages a second, bodies of %d bytes, SYNC_FLUSH %v; "+
		"%d cores\n", o.files, o.segmentMiB, o.rate, o.body, o.sync, runtime.GOMAXPROCS(0))
	w := o.writer(s)
	if err := w.fill(ctx, int64(o.files)*o.segmentMiB<<20); err != nil {
		return err
	}
	var without, before, during series
	for range o.rounds {
		got, err := w.steady(ctx, o.rate, o.phase)
		if err != nil {
			return err
		}
		without.add(got)
		got.print("no deletions")
		d.allow(o.files / o.rounds)
		if got, err = w.steady(ctx, o.rate, o.phase); err != nil {
			return err
		}
		d.allow(0)
		between, beside := got.split(d.take())
		between.print("between deletions")
		beside.print("during deletions")
		before.add(between)
		during.add(beside)
	}
	fmt.Fprintf(os.Stdout, "all rounds; %d files deleted, each in %v to %v:\n", len(d.all), d.shortest(), d.longest())
	without.print("no deletions")
	before.print("between deletions")
	during.print("during deletions")
	return nil
}

// config is RocketMQ's, but that files are old at once and go when left says so. Looks follow each other
// every second instead of ten.
func (o *options) config(d *deletions) storage.Config {
	cfg := storage.DefaultConfig(o.dir)
	cfg.SegmentSize, cfg.SyncFlush = o.segmentMiB<<20, o.sync
	cfg.DiskFullRatio, cfg.DiskFreeRatio, cfg.BallastBytes = 101, 100, 0
	r := storage.DefaultRetention()
	r.Keep, r.MaxUsedRatio, r.Forcibly, r.Every = time.Nanosecond, 101, false, time.Second
	r.Hours = nil
	for hour := range 24 {
		r.Hours = append(r.Hours, hour)
	}
	r.Unread = func(record.PhysicalOffset) (keep bool) { return !d.begin() }
	cfg.Retention = r
	cfg.Notice = func(msg string, kv ...any) {
		if msg == "old file of the log deleted" {
			d.end()
			return
		}
		fmt.Fprintln(os.Stderr, append([]any{"retention:", msg}, kv...)...)
	}
	return cfg
}
