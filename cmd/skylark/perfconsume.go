// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/workload"
)

func (a *app) perfConsumeCommand() *cobra.Command {
	var f perfFlags
	set := workload.DefaultConsume()
	from := string(set.From)
	lateMS, delay := 0, time.Duration(0)
	suspendMS := int(time.Duration(set.Suspend).Milliseconds())
	cmd := &cobra.Command{
		Use:   "consume",
		Short: "Pull messages and measure",
		Long: "Pulls from all queues until --duration or --count is reached, every queue was read to " +
			"its end\n(--until-end), or until it is interrupted. One pull of each queue is always under " +
			"way; the broker holds\nit while there is nothing. Members of a group are not coordinated: " +
			"this command reads all queues itself.\n\n--verify checks what 'perf produce --verify' sent " +
			"and exits with 1 when messages are lost, doubled,\nout of order or changed; without --duration " +
			"and --count it reads to the end.",
		Example: "  skylark perf consume --topic demo --until-end\n" +
			"  skylark perf consume --topic demo --verify\n" +
			"  skylark perf consume --topic demo --from last --duration 60s --broker-pid 4711 --json",
		Args: a.noArgs,
	}
	a.perfCommonFlags(cmd, &f, &set.BrokerPID)
	fl := cmd.Flags()
	fl.StringVarP(&set.Topic, "topic", "t", set.Topic, "topic")
	fl.IntVar(&set.Topics, "topics", set.Topics, "above 1: read topics TOPIC-0, TOPIC-1 and so on")
	fl.IntVar(&set.Queues, "queues", set.Queues, "queues of each topic at each broker; 0: all")
	fl.StringVarP(&set.Group, "group", "g", set.Group, "consumer group")
	fl.IntVar(&set.Groups, "groups", set.Groups,
		"above 1: read everything that often, as GROUP-0, GROUP-1 and so on")
	fl.IntVarP(&set.Connections, "connections", "w", set.Connections,
		"connections of each group, at most one for each queue")
	fl.IntVar(&set.PullBatch, "pull-batch", set.PullBatch, "messages to ask for in one pull")
	fl.StringVarP(&set.Filter, "filter", "e", set.Filter, "tag expression as 'a || b', or SQL92")
	fl.StringVarP(&set.FilterType, "filter-type", "f", "TAG", "TAG or SQL92")
	fl.StringVar(&from, "from", from, "first, last, stored (where the group stopped, else first) or "+
		"resume (else last)")
	fl.BoolVar(&set.Commit, "commit", set.Commit, "store the group's offsets, carried by the pulls")
	fl.IntVar(&suspendMS, "suspend-ms", suspendMS,
		"how long the broker holds a pull with nothing to return")
	fl.DurationVar(&delay, "consume-delay", delay,
		"a slow consumer: wait so long for each message before the next pull of its queue, 0 to 1m")
	fl.Int64VarP(&set.Count, "count", "q", set.Count, "messages in all, warm-up included; 0: no limit")
	fl.BoolVar(&set.UntilEnd, "until-end", set.UntilEnd, "stop when every queue was read to its end")
	fl.BoolVar(&set.Verify, "verify", set.Verify,
		"check numbered messages for loss, duplicates, order and content")
	fl.BoolVar(&set.EndToEnd, "end-to-end", false, "count latency from the moment a message was due, "+
		"which 'perf produce --verify' writes into it; by two clocks when the producer ran elsewhere")
	fl.IntVar(&lateMS, "late-ms", 0, "with --verify: a message that took longer, from its producer to "+
		"here or for an old one into the store, is late; 0: none is")
	fl.BoolVar(&set.AllowSwaps, "allow-swaps", set.AllowSwaps,
		"with --verify: accept another order among messages that were in flight together, as brokers "+
			"with several send threads store them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := f.applyWorkload(cmd, func(w workload.Workload) []workload.Option {
			return w.Consume
		})
		if err != nil {
			return err
		}
		set.NameServers, set.Credentials = f.servers(), f.credentials()
		set.Suspend, set.Late = millis(suspendMS), millis(lateMS)
		set.From, set.Delay = workload.Start(from), workload.Duration(delay)
		set.Warmup, set.Duration = workload.Duration(f.warmup), workload.Duration(f.duration)
		if set.Binary, err = f.binary(); err != nil {
			return err
		}
		out, err := a.output(&f)
		if err != nil {
			return err
		}
		out.Waiting = a.waitingFor
		res, err := workload.RunConsume(cmd.Context(), set, out)
		return a.finish(err, res)
	}
	return cmd
}

func millis(n int) workload.Duration {
	return workload.Duration(time.Duration(n) * time.Millisecond)
}
