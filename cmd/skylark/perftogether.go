// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/workload"
)

// togetherFlags are the options of commands that send and read at once.
type togetherFlags struct {
	*produceFlags
	reader workload.Consume
	drain  time.Duration
}

func (a *app) newTogetherFlags(cmd *cobra.Command) *togetherFlags {
	f := &togetherFlags{
		produceFlags: a.newProduceFlags(cmd), reader: workload.DefaultConsume(), drain: 10 * time.Second,
	}
	f.reader.From = workload.Last
	fl := cmd.Flags()
	fl.StringVar(&f.set.Group, "producer-group", f.set.Group, "producer group")
	fl.StringVarP(&f.reader.Group, "group", "g", f.reader.Group, "consumer group")
	fl.IntVar(&f.reader.Connections, "consumer-connections", f.reader.Connections,
		"connections of each group, at most one for each queue")
	fl.IntVar(&f.reader.PullBatch, "pull-batch", f.reader.PullBatch, "messages to ask for in one pull")
	fl.DurationVar(&f.drain, "drain", f.drain,
		"after the last send, time for the readers to receive what is there")
	return f
}

// run runs what the flags and the readers say.
func (f *togetherFlags) run(a *app, cmd *cobra.Command, readers []workload.Reader) error {
	set, err := f.settings(cmd, func(w workload.Workload) []workload.Option {
		if w.Together != nil {
			return w.Together
		}
		return w.Produce
	})
	if err != nil {
		return err
	}
	out, err := a.output(&f.perfFlags)
	if err != nil {
		return err
	}
	defer leaveReaders(set.LoopCount())()
	results, err := workload.RunTogether(cmd.Context(), workload.Together{
		Command: cmd.Name(), Produce: set, Readers: readers, Drain: workload.Duration(f.drain),
	}, out)
	return a.finish(err, results...)
}

// leaveReaders gives the runtime a processor more for each loop that sends. A loop that waits for its
// sockets keeps its processor until the runtime takes it away, up to 10 ms later, and a reader whose
// message has come would wait for that: on 2 cores the p99.9 of `perf latency` was 6 to 11 ms with two
// processors, and 3.5 ms with three. Who has set GOMAXPROCS knows what he measures.
func leaveReaders(loops int) (restore func()) {
	before := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(before + loops)
	}
	return func() { runtime.GOMAXPROCS(before) }
}

func (a *app) perfLatencyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure the way of messages from producer to consumer",
		Long: "Sends and receives in one process, by one clock. Two results: 'send' counts from the moment " +
			"a message was\ndue to its answer, 'end-to-end' from the same moment to its receipt. Messages " +
			"are numbered, so 'verify'\nof the second result says whether all came. With --rate 0 (closed " +
			"loop) both count from the send.",
		Example: "  skylark perf latency --topic demo --duration 30s\n" +
			"  skylark perf latency --topic demo --rate 10000 --size 1024 --connections 4 --warmup 10s " +
			"--duration 60s --json",
		Args: a.noArgs,
	}
	f := a.newTogetherFlags(cmd)
	f.rate = "1000"
	cmd.Flags().Lookup("rate").DefValue = f.rate
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.set.Verify = true
		f.reader.EndToEnd, f.reader.Verify, f.reader.AllowSwaps = true, true, true
		return f.run(a, cmd, []workload.Reader{{Name: "end-to-end", Consume: f.reader}})
	}
	return cmd
}

func (a *app) perfVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Send and read numbered messages under any fault, and judge the broker",
		Long: "Sends numbered messages and reads them back, for as long as --duration says or until it is " +
			"interrupted,\nwhatever is done to brokers and network meanwhile: connections are made anew, and " +
			"what had no answer is\nsent again. It ends with counts of lost, duplicate, disordered, changed " +
			"and late messages, and with exit\ncode 1 for what a broker must not do. That a message without " +
			"an answer is there, is not there, or is there\ntwice because it was sent again, is no fault.",
		Example: "  skylark perf verify --topic checked --duration 10m\n" +
			"  skylark perf verify --topic checked --rate 5000 --connections 8 --late-ms 1000 --duration 1h",
		Args: a.noArgs,
	}
	f := a.newTogetherFlags(cmd)
	lateMS := 0
	f.drain = time.Minute
	cmd.Flags().Lookup("drain").DefValue = f.drain.String()
	fl := cmd.Flags()
	fl.IntVar(&lateMS, "late-ms", 0, "a message that took longer from its producer to here is late; "+
		"0: none is")
	fl.BoolVar(&f.reader.AllowSwaps, "allow-swaps", false, "accept another order among messages that "+
		"were in flight together, as brokers with several send threads store them")
	fl.BoolVar(&f.reader.Commit, "commit", f.reader.Commit, "store the group's offsets, carried by the pulls")
	fl.IntVar(&f.set.Retries, "retries", 3, "send a message without an answer again, at most so often; "+
		"0 to 100")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.set.Verify = true
		f.reader.Verify, f.reader.Late, f.reader.EndToEnd = true, millis(lateMS), true
		return f.run(a, cmd, []workload.Reader{{Name: "end-to-end", Consume: f.reader}})
	}
	return cmd
}

func (a *app) perfMixedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mixed",
		Short: "Send and read at once, with groups that keep up and groups that lag",
		Long: "Sends while --hot-groups read at the end of the queues and --lagging-groups read everything " +
			"from the first\nmessage on, or slowly (--consume-delay), so that the broker serves old and new " +
			"messages at once. A result\nfor the sends, one for the hot and one for the lagging groups.",
		Example: "  skylark perf mixed --topic demo --connections 4 --duration 60s --broker-pid 4711\n" +
			"  skylark perf mixed --topic demo --rate 20000 --hot-groups 3 --lagging-groups 2 " +
			"--consume-delay 500us --duration 5m",
		Args: a.noArgs,
	}
	f := a.newTogetherFlags(cmd)
	hot, lagging, delay := 1, 1, time.Duration(0)
	fl := cmd.Flags()
	fl.IntVar(&hot, "hot-groups", hot, "groups that read at the end of the queues")
	fl.IntVar(&lagging, "lagging-groups", lagging, "groups that read from the first message on")
	fl.DurationVar(&delay, "consume-delay", delay,
		"time that a lagging group takes for each message of a queue, 0 to 1m")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if hot < 0 || lagging < 0 || hot+lagging == 0 || hot+lagging > 1000 {
			return misuse{errors.New("--hot-groups and --lagging-groups are 0 to 1000, at least 1 together")}
		}
		var readers []workload.Reader
		add := func(name string, groups int, from workload.Start, delay time.Duration) {
			c := f.reader
			c.Group, c.Groups, c.From = c.Group+"_"+name, groups, from
			c.Delay = workload.Duration(delay)
			readers = append(readers, workload.Reader{Name: name, Consume: c})
		}
		if hot > 0 {
			add("hot", hot, workload.Last, 0)
		}
		if lagging > 0 {
			add("lagging", lagging, workload.First, delay)
		}
		return f.run(a, cmd, readers)
	}
	return cmd
}
