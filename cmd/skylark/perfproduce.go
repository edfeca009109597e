// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/workload"
)

func (a *app) perfProduceCommand() *cobra.Command {
	var f perfFlags
	set := workload.DefaultProduce()
	threads, timeoutMS, burstUS, rate := 0, 3000, 0, "0"
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Send messages and measure",
		Long: "Sends messages until --duration or --count is reached, or until it is interrupted.\n\n" +
			"Without --rate each connection keeps --in-flight requests without an answer (closed loop). " +
			"With --rate\nmessages go out at that rate, and latency counts from the moment a message was " +
			"due. The single letters\nare those of RocketMQ's benchmark producer.",
		Example: "  skylark perf produce --topic demo --duration 10s\n" +
			"  skylark perf produce --topic demo --rate 10000 --size 1024 --warmup 10s --duration 60s\n" +
			"  skylark perf produce --topic demo --count 100000 --verify",
		Args: a.noArgs,
	}
	a.perfCommonFlags(cmd, &f, &set.BrokerPID)
	fl := cmd.Flags()
	fl.StringVarP(&set.Topic, "topic", "t", set.Topic, "topic")
	fl.IntVar(&set.Topics, "topics", set.Topics,
		"above 1: spread over topics TOPIC-0, TOPIC-1 and so on")
	fl.IntVar(&set.Queues, "queues", set.Queues,
		"queues of each topic to use and, for a new topic, to ask for; 0: all")
	fl.StringVarP(&set.Group, "group", "g", set.Group, "producer group")
	fl.IntVar(&set.Connections, "connections", set.Connections, "connections, 1 to 10000")
	fl.IntVar(&set.InFlight, "in-flight", set.InFlight,
		"requests without an answer on each connection, 1 to 8192")
	fl.IntVarP(&threads, "threads", "w", 0,
		"requests without an answer over all connections, instead of --in-flight")
	fl.StringVar(&rate, "rate", rate,
		"messages a second over all connections, or steps as 1000:10s,5000:10s; 0: closed loop")
	fl.IntVar(&burstUS, "burst-us", 0,
		"with --rate: messages of a connection come due together, once in so many microseconds; "+
			"0: each by itself")
	fl.IntVarP(&set.Size, "size", "s", set.Size, "bytes of each body")
	fl.IntVarP(&set.Batch, "batch", "b", set.Batch, "messages in a request")
	fl.IntVarP(&set.Tags, "tags", "l", set.Tags, "distinct tags; 0: none")
	fl.BoolVarP(&set.Keys, "keys", "k", set.Keys, "give each message a key")
	fl.IntVarP(&set.PropertySize, "property-size", "p", set.PropertySize, "bytes of a user property")
	fl.Int64VarP(&set.Count, "count", "q", set.Count, "messages in all, warm-up included; 0: no limit")
	fl.IntVar(&timeoutMS, "timeout-ms", timeoutMS,
		"time for an answer; then the connection is made anew")
	fl.IntVar(&set.Loops, "loops", set.Loops,
		"goroutines that drive the connections, 1 to 1024; 0: one for every four processors")
	fl.StringVar(&set.Driver, "driver", set.Driver,
		"how they wait for sockets: epoll (Linux) or net; the best without it")
	fl.BoolVar(&set.Verify, "verify", set.Verify, "number each message, for 'perf consume --verify'")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := a.output(&f)
		if err != nil {
			return err
		}
		if err := f.applyWorkload(cmd, func(w workload.Workload) []workload.Option {
			return w.Produce
		}); err != nil {
			return err
		}
		if set.Rate, set.Steps, err = workload.ParseRate(rate); err != nil {
			return misuse{fmt.Errorf("--rate: %w", err)}
		}
		set.NameServers = f.servers()
		set.Timeout = millis(timeoutMS)
		set.Burst = workload.Duration(time.Duration(burstUS) * time.Microsecond)
		set.Warmup, set.Duration = workload.Duration(f.warmup), workload.Duration(f.duration)
		if set.Binary, err = f.binary(); err != nil {
			return err
		}
		if threads > 0 {
			set.InFlight = max((threads+set.Connections-1)/set.Connections, 1)
		}
		return a.finish(workload.RunProduce(cmd.Context(), set, out))
	}
	return cmd
}
