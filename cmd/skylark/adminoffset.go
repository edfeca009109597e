// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

func (a *app) offsetCommands(f *adminFlags) []*cobra.Command {
	return []*cobra.Command{
		a.resetOffsetCommand(f), a.skipAccumulatedCommand(f), a.cloneOffsetCommand(f),
		a.startOffsetCommand(f),
	}
}

// resetFlags are those of mqadmin resetOffsetByTime.
type resetFlags struct {
	group, topic, when, force, cluster, broker string
	queue                                      int
	offset                                     int64
}

// offsetRow is a line of resetOffsetByTime.
type offsetRow struct {
	Broker string `json:"broker" col:"#brokerName"`
	Queue  int    `json:"queue" col:"#queueId"`
	Offset int64  `json:"offset" col:"#offset"`
}

func (a *app) resetOffsetCommand(f *adminFlags) *cobra.Command {
	var r resetFlags
	cmd := a.adminLeaf(f, "resetOffsetByTime", "Move a consumer group to a time or an offset",
		func(ctx context.Context, ad *admin.Admin) error { return a.resetOffset(ctx, ad, &r) })
	fl := cmd.Flags()
	fl.StringVarP(&r.group, "group", "g", "", "consumer group (required)")
	fl.StringVarP(&r.topic, "topic", "t", "", "topic (required)")
	fl.StringVarP(&r.when, "timestamp", "s", "", "now (the end), -1 (the same), milliseconds, "+
		"yyyy-MM-dd#HH:mm:ss:SSS or 2026-01-31T12:00:00Z (required)")
	fl.StringVarP(&r.force, "force", "f", "",
		"false: only queues that go back (true|false), default true")
	fl.StringVarP(&r.broker, "broker", "b", "", "broker as host:port, with -q")
	fl.IntVarP(&r.queue, "queue", "q", -1, "only this queue of the broker")
	fl.Int64VarP(&r.offset, "offset", "o", -1, "offset to move to, with -b and -q")
	fl.StringVarP(&r.cluster, "cluster", "c", "", "taken for mqadmin's sake, for light topics only")
	return need(cmd, "group", "topic", "timestamp")
}

func (a *app) skipAccumulatedCommand(f *adminFlags) *cobra.Command {
	r := resetFlags{when: "now", queue: -1, offset: -1}
	cmd := a.adminLeaf(f, "skipAccumulatedMessage", "Move a consumer group to the end of a topic",
		func(ctx context.Context, ad *admin.Admin) error { return a.resetOffset(ctx, ad, &r) })
	fl := cmd.Flags()
	fl.StringVarP(&r.group, "group", "g", "", "consumer group (required)")
	fl.StringVarP(&r.topic, "topic", "t", "", "topic (required)")
	fl.StringVarP(&r.force, "force", "f", "", "taken for mqadmin's sake (true|false), default true")
	fl.StringVarP(&r.cluster, "cluster", "c", "", "taken for mqadmin's sake, for light topics only")
	return need(cmd, "group", "topic")
}

// position reads -s.
func position(text string) (admin.Position, error) {
	if text == "now" || text == "-1" {
		return admin.AtEnd(), nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return admin.AtTime(time.UnixMilli(ms)), nil
	}
	// Java's pattern puts a colon before the milliseconds; time.Parse wants a dot or a comma there.
	if n := len(text); n > 4 && text[n-4] == ':' {
		text = text[:n-4] + "." + text[n-3:]
	}
	for _, layout := range []string{"2006-01-02#15:04:05.000", time.RFC3339Nano} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return admin.AtTime(t), nil
		}
	}
	return admin.Position{}, misuse{fmt.Errorf("--timestamp is %q, want now, milliseconds, "+
		"yyyy-MM-dd#HH:mm:ss:SSS or a time as 2026-01-31T12:00:00Z", text)}
}

func (a *app) resetOffset(ctx context.Context, ad *admin.Admin, f *resetFlags) error {
	to, err := position(f.when)
	if err != nil {
		return err
	}
	force, err := truth("force", f.force, true)
	if err != nil {
		return err
	}
	r := admin.Reset{Group: f.group, Topic: f.topic, To: to, BackOnly: !force}
	switch {
	case f.queue >= 0 && f.broker == "", f.queue < 0 && (f.broker != "" || f.offset >= 0):
		return misuse{errors.New("--queue and --broker go together, and --offset needs both")}
	case f.queue >= 0:
		name, err := brokerName(ctx, ad, f.broker)
		if err != nil {
			return err
		}
		r.Queue = &client.Queue{Topic: f.topic, Broker: name, ID: f.queue}
	}
	if f.offset >= 0 {
		r.To = admin.AtOffset(f.offset)
	}
	moved, err := ad.ResetOffsets(ctx, r)
	if len(moved) == 0 && err != nil {
		return err
	}
	var rows []offsetRow
	for _, m := range moved {
		rows = append(rows, offsetRow{m.Queue.Broker, m.Queue.ID, m.Offset})
	}
	return errors.Join(printRows(a, rows), a.partly(err))
}

// brokerName finds the name of the broker at an address; a name stands for itself.
func brokerName(ctx context.Context, ad *admin.Admin, text string) (string, error) {
	all, err := ad.Brokers(ctx)
	if err != nil {
		return "", err
	}
	for _, b := range all {
		if b.Addr == text || b.Name == text {
			return b.Name, nil
		}
	}
	return "", fmt.Errorf("no broker %s is registered; clusterList shows those that are", text)
}

func (a *app) cloneOffsetCommand(f *adminFlags) *cobra.Command {
	var from, to, topic, offline string
	cmd := a.adminLeaf(f, "cloneGroupOffset", "Give a group the offsets of another one",
		func(ctx context.Context, ad *admin.Admin) error {
			off, err := truth("offline", offline, false)
			if err != nil {
				return err
			}
			done, err := ad.CloneOffsets(ctx, from, to, topic, off)
			return a.outcome("clone group offset at {} success.", done, err)
		})
	fl := cmd.Flags()
	fl.StringVarP(&from, "srcGroup", "s", "", "group to copy from (required)")
	fl.StringVarP(&to, "destGroup", "d", "", "group to copy to (required)")
	fl.StringVarP(&topic, "topic", "t", "", "topic (required)")
	fl.StringVarP(&offline, "offline", "o", "",
		"also where no member of srcGroup subscribes (true|false)")
	return need(cmd, "srcGroup", "destGroup", "topic")
}

// startRow is a line of startOffset.
type startRow struct {
	Broker string `json:"broker" col:"#brokerName"`
	Queue  int    `json:"queue" col:"#queueId"`
	Min    int64  `json:"min" col:"#minOffset"`
	Max    int64  `json:"max" col:"#maxOffset"`
	Start  int64  `json:"start" col:"#start"`
	Reason string `json:"reason" col:"#why"`
}

func (a *app) startOffsetCommand(f *adminFlags) *cobra.Command {
	var group, topic string
	cmd := a.adminLeaf(f, "startOffset", "Where a consumer group would begin now, and why",
		func(ctx context.Context, ad *admin.Admin) error {
			list, err := ad.StartOffsets(ctx, group, topic)
			if err != nil {
				return err
			}
			var rows []startRow
			for _, s := range list {
				rows = append(rows, startRow{
					s.Queue.Broker, s.Queue.ID, s.Min, s.Max, s.Offset, startReason(s.Reason),
				})
			}
			return printRows(a, rows)
		})
	fl := cmd.Flags()
	fl.StringVarP(&group, "group", "g", "", "consumer group, also one that does not exist yet (required)")
	fl.StringVarP(&topic, "topic", "t", "", "topic (required)")
	return need(cmd, "group", "topic")
}

func startReason(r admin.StartReason) string {
	switch r {
	case admin.StartCommitted:
		return "offset of the group"
	case admin.StartYoung:
		return "no offset, first message in memory: the beginning, also for consume-from-last " +
			"(consumeFromLastStrict=false)"
	case admin.StartByClient:
	}
	return "no offset: the consumer's own setting (last: maxOffset, first: minOffset)"
}
