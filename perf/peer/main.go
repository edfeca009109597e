// SPDX-License-Identifier: Apache-2.0

// Command peer measures Skylark and Apache RocketMQ side by side on one machine and writes a
// results folder. `make perf-peer` runs it; `make perf` and `make flame` run it with one side and
// one load.
//
// For each load both brokers start on empty stores with the same broker.conf, both are warmed up,
// and then they are loaded in turn, round by round, by `skylark perf` with the same options; the
// report gives medians, ratios and their spread. Before that the page cache is filled, so that
// neither side works on an emptier machine. Apache RocketMQ comes from Maven Central. A load that
// fails is reported with the reason, and the next one begins.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
	"github.com/skylarkmq/skylark/perf/flame"
)

// plan is what the command line asks for.
type plan struct {
	skylark   string        // the binary under test, which is also the load generator
	only      string        // one side: skylark or apache; empty: both
	loads     []string      // names of loads; empty: all
	peers     []string      // brokers of other kinds: nats, kafka
	quick     bool          // few loads, short
	rounds    int           // measured runs of each side
	duration  time.Duration // of one run
	warmup    time.Duration // of each side, once for each load
	maxSent   int           // messages of one run at most, so that a fast side does not fill the disk
	backlog   int           // messages that the pull load reads
	idle      time.Duration // how long idle sides are watched; 0: not
	clients   int           // idle connections; 0: not measured
	heap      string        // of Apache's broker
	fillCache bool
	ballast   bool
	results   string // folder that gets the results folder
	profile   string // folder that gets a CPU profile of our broker; empty: none
	work      string // stores live here
	project   string // the Maven project that fetches Apache RocketMQ
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && (os.Args[1] == limitServe || os.Args[1] == limitRelay) {
		if err := serveNull(ctx, limitAddress, os.Args[1] == limitRelay); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		return
	}
	p, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(2)
	}
	if err := run(ctx, p); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (plan, error) {
	var p plan
	var loads, peers string
	f := flag.NewFlagSet("peer", flag.ContinueOnError)
	f.StringVar(&p.skylark, "skylark", "bin/skylark", "binary under test and load generator")
	f.StringVar(&p.only, "only", "", "measure one side alone: skylark or apache")
	f.StringVar(&loads, "workload", "", "loads by name, separated by commas; all without it")
	f.StringVar(&peers, "peers", "", "brokers of other kinds to measure as well: nats, kafka, or both with a comma")
	f.BoolVar(&p.quick, "quick", false, "few loads, one short round of each: under 3 minutes, for a first look")
	f.IntVar(&p.rounds, "rounds", 2, "measured runs of each side, at least 1")
	f.DurationVar(&p.duration, "duration", 20*time.Second, "length of one run")
	f.DurationVar(&p.warmup, "warmup", 20*time.Second, "warm-up of each side before the rounds of a load")
	f.IntVar(&p.maxSent, "max-messages", 2_000_000, "messages of one run at most")
	f.IntVar(&p.backlog, "backlog", 400_000, "messages that the pull load reads")
	f.DurationVar(&p.idle, "idle", 0, "watch idle brokers for so long after their start; 0: not")
	f.IntVar(&p.clients, "clients", 0, "measure with so many idle connections; 0: not")
	f.StringVar(&p.heap, "heap", "2g", "heap of Apache's broker, as for -Xmx")
	f.BoolVar(&p.fillCache, "fill-cache", true, "fill the page cache before measuring")
	f.BoolVar(&p.ballast, "ballast", true, "take most of the memory while measuring, so that the page cache stays full")
	f.StringVar(&p.results, "results", filepath.Join("perf", "results"), "folder for the results folder")
	f.StringVar(&p.profile, "profile", "", "folder for a CPU profile of our broker; none without it")
	f.StringVar(&p.work, "work", "", "folder for the stores; a temporary one without it")
	f.StringVar(&p.project, "project", filepath.Join("engine", "interop", "java"), "Maven project that fetches Apache RocketMQ")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if loads != "" {
		p.loads = strings.Split(loads, ",")
	}
	for _, name := range p.loads {
		if !slices.ContainsFunc(allLoads(), func(l load) bool { return l.name == name }) {
			return p, fmt.Errorf("no load %q; there are %v", name, loadNames())
		}
	}
	if peers != "" {
		p.peers = strings.Split(peers, ",")
	}
	for _, name := range p.peers {
		if !slices.Contains(otherNames(), name) {
			return p, fmt.Errorf("-peers %q: there are %v", name, otherNames())
		}
	}
	if p.only != "" && p.only != "skylark" && p.only != "apache" {
		return p, fmt.Errorf("-only %q is neither skylark nor apache", p.only)
	}
	if p.quick {
		p.rounds, p.duration, p.warmup = 1, 4*time.Second, 3*time.Second
		p.fillCache, p.ballast = false, false
		p.maxSent, p.backlog, p.idle, p.clients = 1_000_000, 200_000, 0, 0
	}
	if p.rounds < 1 || p.duration < time.Second {
		return p, fmt.Errorf("-rounds %d and -duration %v are too small", p.rounds, p.duration)
	}
	return p, nil
}

// bench is one run of this command.
type bench struct {
	plan  plan
	sides []*side
	java  *apache.Installation // nil without the side apache
	out   *results
	// running are the settings that all sides run with; nil: they do not run.
	running *map[string]string
	cache   *pageCache // nil: it is not kept full
}

func run(ctx context.Context, p plan) error {
	work := p.work
	if work == "" {
		dir, err := os.MkdirTemp("", "skylark-peer-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		work = dir
	} else if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	b := &bench{plan: p}
	var err error
	if b.sides, b.java, err = makeSides(ctx, p, work); err != nil {
		return err
	}
	if b.out, err = newResults(ctx, p, b.sides); err != nil {
		return err
	}
	var failed []error
	if p.idle > 0 || p.clients > 0 {
		failed = append(failed, b.measureAtRest(ctx))
	}
	if p.ballast {
		taken, err := newBallast(0)
		if err != nil {
			return err
		}
		defer taken.drop()
	}
	if p.fillCache {
		if b.cache, err = newPageCache(work); err != nil {
			return err
		}
		defer b.cache.close()
	}
	for _, l := range b.loads() {
		if ctx.Err() != nil {
			break
		}
		if err := b.one(ctx, l, work); err != nil {
			say("%s: %v", l.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", l.name, err))
		}
	}
	b.down("end")
	failed = append(failed, b.measureOthers(ctx, work))
	return errors.Join(append(failed, b.out.write(b), ctx.Err())...)
}

// loads are those that the plan asks for.
func (b *bench) loads() []load {
	return slices.DeleteFunc(allLoads(), func(l load) bool {
		if len(b.plan.loads) > 0 {
			return !slices.Contains(b.plan.loads, l.name)
		}
		return l.extra || b.plan.quick && !l.quick || l.java && b.java == nil
	})
}

func (b *bench) one(ctx context.Context, l load, work string) error {
	if b.plan.fillCache {
		// Before each load: the stores of the load before are gone, and with them their pages.
		if err := b.cache.fill(ctx); err != nil {
			return err
		}
	}
	if err := b.measureLoad(ctx, l); err != nil {
		return err
	}
	if !b.plan.quick {
		if err := b.measureLimit(ctx, b.out.rows[len(b.out.rows)-1], work); err != nil {
			return err
		}
	}
	if b.plan.profile != "" {
		return keepProfile(ctx, b.plan, l, work)
	}
	return nil
}

// keepProfile moves the CPU profile of the load that just ended to its place, with a flame graph
// and a note to fill in.
func keepProfile(ctx context.Context, p plan, l load, work string) error {
	if err := os.MkdirAll(p.profile, 0o755); err != nil {
		return err
	}
	commit := firstLine(ctx, "git", "rev-parse", "--short", "HEAD")
	base := time.Now().Format("2006-01-02") + "-" + l.name + "-" + commit
	name := filepath.Join(p.profile, base)
	profile, err := os.ReadFile(filepath.Join(work, profileName))
	if err != nil {
		return err
	}
	svg, err := flame.SVG(profile, "Skylark's broker under "+l.name+": "+l.about+", at "+commit)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".pb.gz", profile, 0o644); err != nil {
		return err
	}
	top, err := output(ctx, "go", "tool", "pprof", "-top", "-nodecount=30", name+".pb.gz")
	if err != nil {
		return err
	}
	note := fmt.Sprintf("CPU profile of the broker under the load %s (%s), whole run with warm-up.\n"+
		"Taken with `make flame WORKLOAD=%s`. [Flame graph](%s.svg), [profile](%s.pb.gz) for `go tool pprof`.\n\n"+
		"Learned: say here what the picture taught, before this is committed.\n\n```\n%s```\n",
		l.name, l.about, l.name, base, base, top)
	for ext, text := range map[string][]byte{".svg": svg, ".md": []byte(note)} {
		if err := os.WriteFile(name+ext, text, 0o644); err != nil {
			return err
		}
	}
	say("flame graph is in %s.svg, the profile beside it, and a note to fill in", name)
	return nil
}

// say tells the person who waits what happens.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
