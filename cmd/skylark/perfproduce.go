// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/workload"
)

// produceFlags are the options of everything that sends.
type produceFlags struct {
	perfFlags
	set                         workload.Produce
	threads, timeoutMS, burstUS int
	rate, size                  string
}

func (a *app) newProduceFlags(cmd *cobra.Command) *produceFlags {
	f := &produceFlags{set: workload.DefaultProduce(), timeoutMS: 3000, rate: "0"}
	set := &f.set
	f.size = strconv.Itoa(set.Size)
	a.perfCommonFlags(cmd, &f.perfFlags, &set.BrokerPID)
	fl := cmd.Flags()
	fl.StringVarP(&set.Topic, "topic", "t", set.Topic, "topic")
	fl.IntVar(&set.Topics, "topics", set.Topics,
		"above 1: spread over topics TOPIC-0, TOPIC-1 and so on")
	fl.IntVar(&set.Queues, "queues", set.Queues,
		"queues of each topic to use and, for a new topic, to ask for; 0: all")
	fl.IntVar(&set.Connections, "connections", set.Connections, "connections, 1 to 10000")
	fl.IntVar(&set.InFlight, "in-flight", set.InFlight,
		"requests without an answer on each connection, 1 to 8192")
	fl.IntVarP(&f.threads, "threads", "w", 0,
		"requests without an answer over all connections, instead of --in-flight")
	fl.StringVar(&f.rate, "rate", f.rate,
		"messages a second over all connections, or steps as 1000:10s,5000:10s; 0: closed loop")
	fl.IntVar(&f.burstUS, "burst-us", 0,
		"with --rate: messages of a connection come due together, once in so many microseconds; "+
			"0: each by itself")
	fl.StringVarP(&f.size, "size", "s", f.size, "bytes of each body: 1024; 100-2000, each as often; "+
		"exp:500, exponential by its mean; 100:70,4096:30, sizes and weights")
	fl.StringVar(&set.Bodies, "bodies", "", "file with a body on each line, taken in turn")
	fl.Float64Var(&set.Compressible, "compressible", set.Compressible,
		"share of a body that repeats itself, 0 to 1; the rest is random")
	fl.StringVar(&set.Compress, "compress", "", "send bodies compressed: zlib, lz4 or zstd; "+
		"compressed once, before the run")
	fl.IntVar(&set.CompressLevel, "compress-level", set.CompressLevel, "level of the codec, 0 to 22")
	fl.IntVar(&set.CompressOver, "compress-over", set.CompressOver,
		"bytes: smaller bodies go as they are")
	fl.StringArrayVar(&set.Properties, "property", nil,
		"user property of each message as name=value; may be repeated")
	fl.IntVar(&set.DelayLevel, "delay-level", 0, "delay level of each message, 1 to 18; 0: none")
	fl.IntVarP(&set.Batch, "batch", "b", set.Batch, "messages in a request")
	fl.IntVarP(&set.Tags, "tags", "l", set.Tags, "distinct tags; 0: none")
	fl.BoolVarP(&set.Keys, "keys", "k", set.Keys, "give each message a key")
	fl.IntVarP(&set.PropertySize, "property-size", "p", set.PropertySize, "bytes of a user property")
	fl.Int64VarP(&set.Count, "count", "q", set.Count, "messages in all, warm-up included; 0: no limit")
	fl.IntVar(&f.timeoutMS, "timeout-ms", f.timeoutMS,
		"time for an answer; then the connection is made anew")
	fl.IntVar(&set.Loops, "loops", set.Loops,
		"goroutines that drive the connections, 1 to 1024; 0: one for every four processors")
	fl.StringVar(&set.Driver, "driver", set.Driver,
		"how they wait for sockets: epoll (Linux) or net; the best without it")
	return f
}

// settings turns the flags into the settings of a run. options picks those of the named workload.
func (f *produceFlags) settings(
	cmd *cobra.Command, options func(workload.Workload) []workload.Option,
) (set workload.Produce, err error) {
	if err := f.applyWorkload(cmd, options); err != nil {
		return set, err
	}
	set = f.set
	if set.Rate, set.Steps, err = workload.ParseRate(f.rate); err != nil {
		return set, misuse{fmt.Errorf("--rate: %w", err)}
	}
	if set.Size, err = strconv.Atoi(f.size); err != nil {
		set.Size, set.Sizes = f.set.Size, f.size
	}
	set.NameServers, set.Credentials = f.servers(), f.credentials()
	set.Timeout = millis(f.timeoutMS)
	set.Burst = workload.Duration(time.Duration(f.burstUS) * time.Microsecond)
	set.Warmup, set.Duration = workload.Duration(f.warmup), workload.Duration(f.duration)
	if set.Binary, err = f.binary(); err != nil {
		return set, err
	}
	if f.threads > 0 {
		set.InFlight = max((f.threads+set.Connections-1)/set.Connections, 1)
	}
	return set, nil
}

func (a *app) perfProduceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Send messages and measure",
		Long: "Sends messages until --duration or --count is reached, or until it is interrupted.\n\n" +
			"Without --rate each connection keeps --in-flight requests without an answer (closed loop). " +
			"With --rate\nmessages go out at that rate, and latency counts from the moment a message was " +
			"due. The single letters\nare those of RocketMQ's benchmark producer.",
		Example: "  skylark perf produce --topic demo --duration 10s\n" +
			"  skylark perf produce --topic demo --rate 10000 --size 1024 --warmup 10s --duration 60s\n" +
			"  skylark perf produce --topic demo --rate 1000:10s,5000:10s,20000:10s\n" +
			"  skylark perf produce --topic demo --size 100:70,4096:30 --compress lz4 --compressible 0.6\n" +
			"  skylark perf produce --topic demo --count 100000 --verify",
		Args: a.noArgs,
	}
	f := a.newProduceFlags(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&f.set.Group, "group", "g", f.set.Group, "producer group")
	fl.BoolVar(&f.set.Verify, "verify", f.set.Verify, "number each message, for 'perf consume --verify'")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := f.settings(cmd, func(w workload.Workload) []workload.Option { return w.Produce })
		if err != nil {
			return err
		}
		out, err := a.output(&f.perfFlags)
		if err != nil {
			return err
		}
		res, err := workload.RunProduce(cmd.Context(), set, out)
		return a.finish(err, res)
	}
	return cmd
}
