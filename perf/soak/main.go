// SPDX-License-Identifier: Apache-2.0

// Command soak holds a broker at a share of what it can take and looks whether it stays as it was:
// `make soak DURATION=30m`.
//
// It measures what the broker takes from `skylark perf verify`, which sends numbered messages and
// reads and checks them meanwhile; then it asks for 70 % of that rate for the whole duration. At the
// end the memory of the first and the last third are compared, and the p99.9 of their seconds. The
// exit code is 1 when memory grew, when p99.9 drifted, or when a message was lost, doubled, out of
// order or changed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/server"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// plan is what the command line asks for.
type plan struct {
	skylark   string
	duration  time.Duration
	calibrate time.Duration // of the run that finds the highest rate
	share     float64       // of that rate
	size      int           // bytes of a body
	work      string        // the store lives here
	results   string        // folder that gets the results folder
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if err := p.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (*plan, error) {
	var p plan
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.StringVar(&p.skylark, "skylark", "bin/skylark", "binary under test and load generator")
	f.DurationVar(&p.duration, "duration", 30*time.Minute, "length of the soak, at least 1m")
	f.DurationVar(&p.calibrate, "calibrate", 20*time.Second, "length of the run that finds the highest rate")
	f.Float64Var(&p.share, "share", 0.7, "of the highest rate, above 0 and below 1")
	f.IntVar(&p.size, "size", 128, "bytes of a body, at least 64")
	f.StringVar(&p.work, "work", "", "folder for the store; a temporary one without it")
	f.StringVar(&p.results, "results", filepath.Join("perf", "results"), "folder for the results folder")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case p.duration < time.Minute:
		return nil, fmt.Errorf("-duration %v is below a minute", p.duration)
	case p.share <= 0 || p.share >= 1:
		return nil, fmt.Errorf("-share %v is not between 0 and 1", p.share)
	case p.calibrate < time.Second || p.size < 64:
		return nil, fmt.Errorf("-calibrate %v or -size %d is too small", p.calibrate, p.size)
	}
	return &p, nil
}

func (p *plan) run(ctx context.Context) (err error) {
	if p.skylark, err = filepath.Abs(p.skylark); err != nil {
		return err
	}
	if p.work == "" {
		if p.work, err = os.MkdirTemp("", "skylark-soak-*"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(p.work) }()
	}
	s, err := server.New(p.skylark, filepath.Join(p.work, "server"), map[string]string{
		"brokerName": "broker-a", "flushDiskType": "ASYNC_FLUSH",
	})
	if err != nil {
		return err
	}
	if _, err := s.Start(ctx); err != nil {
		return err
	}
	defer s.End(syscall.SIGTERM)
	say("looking for the highest rate, %v", p.calibrate)
	load := []string{
		"--queues", "8", "--connections", "4", "--in-flight", "64", "--size", strconv.Itoa(p.size),
	}
	most, err := s.Perf(ctx, append([]string{
		"verify", "--topic", "calibrate", "--duration", p.calibrate.String(), "--warmup", "3s",
	}, load...)...)
	if err != nil {
		return err
	}
	rate := int(most[0].MessagesPerSec * p.share)
	if err := p.fits(rate); err != nil {
		return err
	}
	dir, err := p.folder(ctx)
	if err != nil {
		return err
	}
	args := append([]string{
		"verify", "--topic", "soak", "--rate", strconv.Itoa(rate), "--warmup", "10s",
		"--duration", p.duration.String(), "--out", dir,
	}, load...)
	say("%d messages a second for %v, which is %.0f %% of %.0f", rate, p.duration, 100*p.share,
		most[0].MessagesPerSec)
	parts, err := s.Perf(ctx, args...)
	if err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("perf verify gave %d results, want the sending and the reading part", len(parts))
	}
	return p.tell(dir, most[0], parts)
}

// storedExtra is what a message takes on disk beside its body, in bytes: the rest of its record
// with the properties of this load, and its queue unit.
const storedExtra = 240

// fits refuses a soak that would fill the disk: nothing it stores is old enough to be deleted.
func (p *plan) fits(rate int) error {
	usage, err := vfs.OS().Usage(p.work)
	if err != nil {
		return err
	}
	need := int64(float64(rate) * p.duration.Seconds() * float64(p.size+storedExtra))
	// Sends are refused from 90 % on; others may write meanwhile.
	const most = 0.88
	all := float64(usage.Total - usage.Free + usage.Avail)
	if room := int64((most - usage.UsedRatio()) * all); need > room {
		return fmt.Errorf("%v at %d messages a second take %d MB of disk, and %d MB may be used: "+
			"give less -duration, -share or -size, or another -work", p.duration, rate, need>>20, room>>20)
	}
	return nil
}

func (p *plan) folder(ctx context.Context) (string, error) {
	commit := commitOf(ctx)
	name := time.Now().Format("2006-01-02-1504") + "-soak-" + commit
	dir := filepath.Join(p.results, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// tell judges the run, writes report.md and prints it.
func (p *plan) tell(dir string, most *measure.Result, parts []*measure.Result) error {
	send := parts[0]
	j, err := judge(send.Series)
	if err != nil {
		return err
	}
	var out strings.Builder
	e := send.Environment
	fmt.Fprintf(&out, "# A soak of %v at %.0f %% of the highest rate\n\n%s, %d cores, %s, %s; asynchronous "+
		"flush, bodies of %d bytes, 8 queues, 4 connections; load generator, reader and checker on the same "+
		"machine.\n\n", time.Duration(send.Seconds*float64(time.Second)).Round(time.Second), 100*p.share,
		e.CPU, e.Cores, e.Kernel, e.Go, p.size)
	fmt.Fprintf(&out, "In %v the broker took %.0f messages a second from the same load without a rate, so "+
		"%.0f were asked for; %d messages were sent, read back and checked.\n\n", p.calibrate,
		most.MessagesPerSec, send.RateAsked, send.Messages)
	out.WriteString(j.table())
	if faults := parts[len(parts)-1].Verify; faults != nil {
		fmt.Fprintf(&out, "\nOf %d messages: lost %d, duplicates %d, out of order %d, changed %d.\n",
			faults.Messages, faults.Lost, faults.Duplicates, faults.Disordered+faults.Swapped, faults.Changed)
	}
	for _, w := range send.Warnings {
		fmt.Fprintf(&out, "\n%s: %s\n", w.Code, w.Text)
	}
	out.WriteString("\nEvery second: `report.html`, `result.json`; the command line: `command.txt`.\n")
	_, _ = fmt.Fprint(os.Stdout, out.String())
	say("results are in %s", dir)
	return errors.Join(os.WriteFile(filepath.Join(dir, "report.md"), []byte(out.String()), 0o644), j.fault())
}

// say tells the person who waits what happens.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
