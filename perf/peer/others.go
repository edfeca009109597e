// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// other is a broker of another kind, which speaks its own protocol to its own client. Only the CPU
// of its process for each message is compared, in loads that are about the same.
type other struct {
	name    string
	address string // reachable once it serves
	prepare func(ctx context.Context) error
	server  func(ctx context.Context) *exec.Cmd
	loads   []otherLoad
}

// otherLoad is one load of it, as a program that ends once count messages are through.
type otherLoad struct {
	row     string // the load of ours that it stands beside
	about   string
	count   int
	command func(ctx context.Context, count int) *exec.Cmd
}

// otherRun is what one run of a load has cost.
type otherRun struct {
	Side       string  `json:"side"`
	Load       string  `json:"load"`
	About      string  `json:"about"`
	Messages   int     `json:"messages"`
	Seconds    float64 `json:"seconds"` // of the load's process, with its start
	CPUMicros  float64 `json:"cpu_us_per_message"`
	RSSAnonEnd int64   `json:"rss_anon_bytes"`
}

// otherNames are what -peers may name.
func otherNames() []string { return []string{"nats", "kafka"} }

// measureOthers takes the brokers that the plan names through their loads, one after the other:
// a warm-up, then the rounds. The other sides do not run meanwhile.
func (b *bench) measureOthers(ctx context.Context, work string) error {
	var errs []error
	for _, name := range b.plan.peers {
		dir := filepath.Join(work, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		var o *other
		var err error
		if name == "nats" {
			o, err = natsServer(ctx, dir)
		} else {
			o, err = kafkaServer(ctx, dir)
		}
		if err == nil {
			err = b.measureOther(ctx, o, dir)
		}
		if err != nil {
			say("%s: %v", name, err)
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func (b *bench) measureOther(ctx context.Context, o *other, dir string) error {
	if o.prepare != nil {
		if err := o.prepare(ctx); err != nil {
			return err
		}
	}
	p, err := startProcess(o.name, o.server(ctx), filepath.Join(dir, "server.out"))
	if err != nil {
		return err
	}
	defer p.end()
	s := &side{name: o.name, processes: []*process{p}}
	say("%s: starting", o.name)
	if err := s.waitFor(ctx, 2*time.Minute, func() error { return dialable(o.address) }); err != nil {
		return err
	}
	for _, l := range o.loads {
		for round := range b.plan.rounds + 1 { // the first one warms up
			if b.cache != nil {
				if err := b.cache.topUp(ctx); err != nil {
					return err
				}
			}
			run, err := l.once(ctx, o.name, p.pid())
			if died := p.died(); died != nil {
				err = errors.Join(died, err)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", l.row, err)
			}
			if round > 0 {
				b.out.others = append(b.out.others, run)
				say("%s: %s, round %d: %.2f us of CPU a message", o.name, l.row, round, run.CPUMicros)
			}
		}
	}
	return nil
}

// once runs the load and reads what it cost the server's process.
func (l *otherLoad) once(ctx context.Context, name string, pid int) (otherRun, error) {
	before, err := measure.ReadUsage(pid)
	if err != nil {
		return otherRun{}, err
	}
	began := time.Now()
	cmd := l.command(ctx, l.count)
	if text, err := cmd.CombinedOutput(); err != nil {
		return otherRun{}, fmt.Errorf("%s: %w\n%.2000s", filepath.Base(cmd.Path), err, text)
	}
	after, err := measure.ReadUsage(pid)
	return otherRun{
		Side: name, Load: l.row, About: l.about, Messages: l.count, Seconds: time.Since(began).Seconds(),
		CPUMicros:  (after.CPUSeconds() - before.CPUSeconds()) * 1e6 / float64(l.count),
		RSSAnonEnd: after.RSSAnonBytes,
	}, err
}

const natsPort = "19500"

// natsServer builds the program in perf/peer/nats, which is a module of its own.
func natsServer(ctx context.Context, dir string) (*other, error) {
	binary := filepath.Join(dir, "nats")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join("perf", "peer", "nats")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", build.Dir, err, text)
	}
	load := func(name string) func(ctx context.Context, count int) *exec.Cmd {
		return func(ctx context.Context, count int) *exec.Cmd {
			return exec.CommandContext(ctx, binary, name, "-port", natsPort, "-count", strconv.Itoa(count))
		}
	}
	return &other{
		name: "nats", address: "127.0.0.1:" + natsPort,
		server: func(ctx context.Context) *exec.Cmd {
			return exec.CommandContext(ctx, binary, "serve", "-port", natsPort, "-dir", filepath.Join(dir, "store"))
		},
		loads: []otherLoad{
			{"ingest-small", "4 connections x 64 asynchronous publishes in flight", 300_000, load("flight")},
			{"request-reply", "64 connections that each wait", 102_400, load("wait")},
			{"catch-up", "one consumer, no acknowledgements", 300_000, load("consume")},
		},
	}, nil
}

// Kafka's listeners, and the id of its cluster, which is any 16 bytes in base64.
const (
	kafkaAddress    = "127.0.0.1:19592"
	kafkaController = "127.0.0.1:19593"
	kafkaCluster    = "c2t5bGFyay1wZWVyLTEyMw"
)

// kafkaServer fetches Kafka from Maven Central: one node that is broker and controller.
func kafkaServer(ctx context.Context, dir string) (*other, error) {
	if ok, missing := apache.Available(); !ok {
		return nil, fmt.Errorf("no %s here", missing)
	}
	const version = "4.1.0"
	kafka, err := apache.InstallRelease(ctx, filepath.Join("perf", "peer", "kafka"), "kafka-"+version, os.Stderr)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "server.properties")
	err = os.WriteFile(conf, fmt.Appendf(nil, "process.roles=broker,controller\nnode.id=1\n"+
		"controller.quorum.voters=1@%s\nlisteners=PLAINTEXT://%s,CONTROLLER://%s\n"+
		"advertised.listeners=PLAINTEXT://%s\ncontroller.listener.names=CONTROLLER\nlog.dirs=%s\n"+
		"num.partitions=8\noffsets.topic.replication.factor=1\n", kafkaController, kafkaAddress,
		kafkaController, kafkaAddress, filepath.Join(dir, "store")), 0o644)
	if err != nil {
		return nil, err
	}
	heap := []string{"-Xms2g", "-Xmx2g", "-XX:+UseG1GC"}
	tool := func(ctx context.Context, class string, args ...string) *exec.Cmd {
		return kafka.Command(ctx, dir, class, []string{"-Xmx512m"}, args)
	}
	return &other{
		name: "kafka", address: kafkaAddress,
		prepare: func(ctx context.Context) error {
			text, err := tool(ctx, "kafka.tools.StorageTool", "format", "-t", kafkaCluster, "-c", conf).CombinedOutput()
			if err != nil {
				return fmt.Errorf("format the store: %w\n%s", err, text)
			}
			return nil
		},
		server: func(ctx context.Context) *exec.Cmd {
			return kafka.Command(ctx, dir, "kafka.Kafka", heap, []string{conf})
		},
		loads: []otherLoad{
			{
				"ingest-small", "its client's batches, acks=1", 500_000,
				func(ctx context.Context, count int) *exec.Cmd {
					return tool(ctx, "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf",
						"--num-records", strconv.Itoa(count), "--record-size", "1024", "--throughput", "-1",
						"--producer-props", "bootstrap.servers="+kafkaAddress, "acks=1")
				},
			},
			{
				"catch-up", "one consumer from the first message on", 500_000,
				func(ctx context.Context, count int) *exec.Cmd {
					return tool(ctx, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server",
						kafkaAddress, "--topic", "perf", "--messages", strconv.Itoa(count), "--timeout", "60000")
				},
			},
		},
	}, nil
}

// othersTable compares the CPU of a message; ok is false when no other broker was measured.
func (r *results) othersTable() (t report.Table, ok bool) {
	names := r.plan.peers
	t = report.Table{Head: append([]string{"broker CPU of a message, us", "skylark"}, names...), Figures: 1 + len(names)}
	for _, load := range []string{"ingest-small", "request-reply", "catch-up"} {
		line := []string{load, r.ourMicros(load)}
		for _, name := range names {
			var values []float64
			about := ""
			for _, run := range r.others {
				if run.Side == name && run.Load == load {
					values, about = append(values, run.CPUMicros), run.About
				}
			}
			cell := spreadOf(values).text()
			if about != "" {
				cell += ", " + about
				ok = true
			}
			line = append(line, cell)
		}
		t.Rows = append(t.Rows, line)
	}
	return t, ok
}

// ourMicros is the figure of Skylark in the same run.
func (r *results) ourMicros(load string) string {
	at := slices.IndexFunc(r.rows, func(row *row) bool { return row.load.name == load })
	if at < 0 {
		return spreadOf(nil).text()
	}
	var values []float64
	for _, o := range r.rows[at].rounds("skylark") {
		v := math.NaN()
		if o.Result.Broker != nil {
			v = o.Result.Broker.CPUMicrosPerMessage
		}
		values = append(values, v)
	}
	return spreadOf(values).text()
}
