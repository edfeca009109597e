// SPDX-License-Identifier: Apache-2.0

// Command soak holds a broker at a share of what it can take and looks whether it stays as it was:
// `make soak DURATION=30m`.
//
// First it looks for the highest rate at which `skylark perf verify`, which sends numbered messages and
// reads and checks them meanwhile, keeps up on both sides: what is sent is read, and neither side has
// a growing backlog (calibrate.go). Then it asks for 70 % of that rate for the whole duration, of a
// broker that deletes files of the log as soon as they were read, so that a long soak does not need a
// large disk. At the end the memory of the first and the last third are compared, and the p99.9 of
// their seconds. The exit code is 1 when memory grew, when p99.9 drifted, or when a message was
// lost, doubled, out of order or changed.
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
	calibrate time.Duration // of each run that looks for the highest rate
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
	f.DurationVar(&p.calibrate, "calibrate", 30*time.Second,
		"length of each run that looks for the highest rate, at least 5s")
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
	case p.calibrate < 5*time.Second || p.size < 64:
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
	found, err := p.sustained(ctx)
	if err != nil {
		return err
	}
	rate := int(found.rate() * p.share)
	if err := p.fits(rate); err != nil {
		return err
	}
	s, err := p.server(ctx, "soak")
	if err != nil {
		return err
	}
	defer s.End(syscall.SIGTERM)
	dir, err := p.folder(ctx)
	if err != nil {
		return err
	}
	say("%d messages a second for %v, which is %.0f %% of %.0f", rate, p.duration, 100*p.share, found.rate())
	parts, err := s.Perf(ctx, p.verify("soak", "--rate", strconv.Itoa(rate), "--warmup", "10s",
		"--duration", p.duration.String(), "--commit", "--out", dir)...)
	if len(parts) != 2 {
		return errors.Join(err, fmt.Errorf("perf verify gave %d results, want the sending and the reading "+
			"part", len(parts)))
	}
	return errors.Join(err, p.tell(dir, found, parts))
}

// server starts a broker on an empty store of its own.
func (p *plan) server(ctx context.Context, name string) (*server.Server, error) {
	var hours []string
	for h := range 24 {
		hours = append(hours, fmt.Sprintf("%02d", h))
	}
	s, err := server.New(p.skylark, filepath.Join(p.work, name), map[string]string{
		"brokerName": "broker-a", "flushDiskType": "ASYNC_FLUSH",
		"fileReservedTime": "0", "deleteWhen": strings.Join(hours, ";"), "deleteUnconsumed": "hold",
	})
	if err != nil {
		return nil, err
	}
	_, err = s.Start(ctx)
	return s, err
}

// verify is the load of calibration and soak.
func (p *plan) verify(topic string, more ...string) []string {
	return append([]string{
		"verify", "--topic", topic, "--group", topic, "--queues", "8", "--connections", "4",
		"--in-flight", "64", "--size", strconv.Itoa(p.size),
	}, more...)
}

// Space of a soak.
const (
	// storedExtra is what a message takes on disk beside its body, in bytes: the rest of its record
	// with the properties of this load, and its queue unit.
	storedExtra = 240
	// storedMost is what the files are that are written, that were read and are not deleted yet, and
	// that are made ahead, in bytes.
	storedMost = 8 << 30
)

// fits refuses a soak that would fill the disk.
func (p *plan) fits(rate int) error {
	usage, err := vfs.OS().Usage(p.work)
	if err != nil {
		return err
	}
	need := int64(float64(rate) * p.duration.Seconds() * float64(p.size+storedExtra))
	need = min(need, storedMost)
	// Sends are refused from 90 % on; others may write meanwhile.
	const most = 0.88
	all := float64(usage.Total - usage.Free + usage.Avail)
	if room := int64((most - usage.UsedRatio()) * all); need > room {
		return fmt.Errorf("%v at %d messages a second take %d MB of disk, and %d MB may be used: "+
			"give another -work, or less -duration, -share or -size", p.duration, rate, need>>20, room>>20)
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
func (p *plan) tell(dir string, found *search, parts []*measure.Result) error {
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
	fmt.Fprintf(&out, "The highest rate that both sides kept up with for %v was %.0f messages a second, so "+
		"%.0f were asked for; %d messages were sent, read back and checked. Files of the log were deleted "+
		"when they had been read.\n\n", p.calibrate, found.rate(), send.RateAsked, send.Messages)
	out.WriteString(j.table())
	out.WriteString("\n" + found.table())
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
