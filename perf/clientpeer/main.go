// SPDX-License-Identifier: Apache-2.0

// Command clientpeer measures package client and Apache's rocketmq-client-go/v2 side by side
// against the same broker and writes a results folder. `make perf-client` runs it.
//
// Each load runs in a process of its own, the two clients in turn, round by round; what counts is
// messages for each second of CPU that the client's process took (getrusage), since a client shares
// its machine with the application. The broker is one `skylark server` for the whole run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// plan is what the command line asks for.
type plan struct {
	skylark  string // binary that serves
	rounds   int
	warmup   time.Duration
	duration time.Duration
	most     int
	count    int
	size     int
	results  string
}

// load is one comparison.
type load struct {
	title  string
	ours   string // -load of the two programs
	theirs string
}

// loads are the comparisons of a run. Batches that the caller makes are there for honesty: Apache's
// client can do those, and does not make them by itself.
func loads() []load {
	return []load{
		{"sends, 64 goroutines that each wait", "sync", "sync"},
		{"asynchronous sends, ours with linger of 5 ms and 64 KiB", "linger", "async"},
		{"asynchronous sends, each in a request of its own", "async", "async"},
		{"batches of 32 made by the caller, 64 goroutines", "batch", "batch"},
		{"consuming a backlog, one group", "consume", "consume"},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var p plan
	flag.StringVar(&p.skylark, "skylark", "bin/skylark", "binary that serves")
	flag.IntVar(&p.rounds, "rounds", 3, "measured runs of each client and load")
	flag.DurationVar(&p.warmup, "warmup", time.Second, "not counted at the beginning of a run")
	flag.DurationVar(&p.duration, "duration", 4*time.Second, "of a run, without warm-up")
	flag.IntVar(&p.most, "most", 1_500_000, "messages of a run at most, for the disk's sake")
	flag.IntVar(&p.count, "count", 300_000, "messages of the backlog")
	flag.IntVar(&p.size, "size", 1024, "bytes of a body")
	flag.StringVar(&p.results, "results", filepath.Join("perf", "results"),
		"folder for the results folder")
	flag.Parse()
	if err := p.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "clientpeer:", err)
		stop()
		os.Exit(1)
	}
}

func (p plan) run(ctx context.Context) error {
	work, err := os.MkdirTemp("", "skylark-clientpeer-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	programs, err := build(ctx, work)
	if err != nil {
		return err
	}
	nameServer, stop, err := p.serve(ctx, work)
	if err != nil {
		return err
	}
	defer stop()
	out := &results{plan: p, started: time.Now()}
	for _, l := range loads() {
		if err := p.measure(ctx, nameServer, programs, l, out); err != nil {
			return err
		}
	}
	return out.write(ctx)
}

// build compiles the two load programs; the one with Apache's client is a module of its own.
func build(ctx context.Context, work string) (map[string]string, error) {
	programs := map[string]string{}
	for _, name := range []string{"ours", "theirs"} {
		programs[name] = filepath.Join(work, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", programs[name], ".")
		cmd.Dir = filepath.Join("perf", "clientpeer", name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
	}
	return programs, nil
}

// serve starts the broker and waits until it takes messages.
func (p plan) serve(ctx context.Context, work string) (nameServer string, stop func(), err error) {
	names, broker, err := freePorts()
	if err != nil {
		return "", nil, err
	}
	var log bytes.Buffer
	cmd := exec.Command(p.skylark, "server", "--data", filepath.Join(work, "data"),
		"--name-server-listen", names, "--broker-listen", broker)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	c, err := client.New([]string{names})
	if err != nil {
		stop()
		return "", nil, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	producer, err := c.NewProducer("clientpeer-ready")
	if err != nil {
		stop()
		return "", nil, err
	}
	for _, l := range loads() {
		if err := ready(ctx, producer, topicOf(l)); err != nil {
			stop()
			return "", nil, fmt.Errorf("%w\n%s", err, log.String())
		}
	}
	return names, stop, nil
}

// ready sends until the topic exists.
func ready(ctx context.Context, p *client.Producer, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := p.Send(ctx, &client.Message{Topic: topic, Body: []byte("ready")})
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// freePorts finds two addresses, the broker's with a free port two below it.
func freePorts() (names, broker string, err error) {
	for port := 21011; port < 29000; port += 10 {
		if free(port) && free(port+5) && free(port+7) {
			return address(port), address(port + 7), nil
		}
	}
	return "", "", errors.New("no free ports")
}

func free(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func topicOf(l load) string { return "ClientPeer-" + l.ours }

// measure runs one load on both clients in turn.
func (p plan) measure(
	ctx context.Context, nameServer string, programs map[string]string, l load, out *results,
) error {
	row := &row{load: l, figures: map[string][]figures{}}
	out.rows = append(out.rows, row)
	run := func(side, name, group string) (figures, []string, error) {
		args := []string{
			"-load", name, "-namesrv", nameServer, "-topic", topicOf(l), "-group", group,
			"-warmup", p.warmup.String(), "-duration", p.duration.String(),
			"-most", strconv.Itoa(p.most), "-count", strconv.Itoa(p.count), "-size", strconv.Itoa(p.size),
		}
		ctx, cancel := context.WithTimeout(ctx, p.warmup+p.duration+2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, programs[side], args...)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		var f figures
		if err == nil {
			err = json.Unmarshal(bytes.TrimSpace(text), &f)
		}
		return f, append([]string{side}, args...), err
	}
	if l.ours == "consume" { // the backlog
		args := []string{
			"-load", "linger", "-namesrv", nameServer, "-topic", topicOf(l), "-warmup", "0s", "-duration",
			"5m", "-most", strconv.Itoa(p.count), "-size", strconv.Itoa(p.size),
		}
		if text, err := exec.CommandContext(ctx, programs["ours"], args...).CombinedOutput(); err != nil {
			return fmt.Errorf("backlog: %w\n%s", err, text)
		}
	}
	for round := range p.rounds {
		for _, side := range []string{"ours", "theirs"} {
			name := l.ours
			if side == "theirs" {
				name = l.theirs
			}
			f, command, err := run(side, name, fmt.Sprintf("clientpeer-%s-%s-%d", side, name, round))
			if err != nil {
				return fmt.Errorf("%s, %s: %w", side, l.title, err)
			}
			if f.Messages == 0 {
				return fmt.Errorf("%s, %s: nothing was measured: %s", side, l.title, f.FirstError)
			}
			row.commands = append(row.commands, command)
			row.figures[side] = append(row.figures[side], f)
			fmt.Fprintf(os.Stderr, "%-7s %-8s round %d: %8.0f msg/CPU-s, %8.0f msg/s, %d errors\n", side,
				name, round+1, f.perCPU(), f.perSecond(), f.Errors)
		}
	}
	return nil
}
