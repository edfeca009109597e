// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client/admin"
)

func (a *app) getConsumerConfigCommand(f *adminFlags) *cobra.Command {
	var group string
	cmd := a.adminLeaf(f, "getConsumerConfig", "Show a consumer group's configuration at each broker",
		func(ctx context.Context, ad *admin.Admin) error {
			answers, err := ad.GroupConfig(ctx, group)
			if len(answers) == 0 {
				return err
			}
			for _, x := range answers {
				if x.Err != nil {
					continue
				}
				g := x.Value
				table := map[string]string{
					"groupName": g.Name, "consumeEnable": fmt.Sprint(g.Enabled),
					"consumeFromMinEnable":           fmt.Sprint(g.FromMin),
					"consumeBroadcastEnable":         fmt.Sprint(g.Broadcast),
					"consumeMessageOrderly":          fmt.Sprint(g.Ordered),
					"retryQueueNums":                 fmt.Sprint(g.RetryQueues),
					"retryMaxTimes":                  fmt.Sprint(g.MaxRetries),
					"brokerId":                       fmt.Sprint(g.BrokerID),
					"whichBrokerWhenConsumeSlowly":   fmt.Sprint(g.SlowBrokerID),
					"notifyConsumerIdsChangedEnable": fmt.Sprint(g.NotifyChange),
					"groupSysFlag":                   fmt.Sprint(g.SysFlag),
					"consumeTimeoutMinute":           fmt.Sprint(int(g.ConsumeTimeout / time.Minute)),
					"groupRetryPolicy":               retryPolicyText(g.RetryPolicy),
					"attributes":                     attributesText(g.Attributes),
				}
				if err := a.printTable(x.Broker, table, "=  "); err != nil {
					return err
				}
			}
			return a.partly(err)
		})
	cmd.Flags().StringVarP(&group, "groupName", "g", "", "consumer group (required)")
	return need(cmd, "groupName")
}

func (a *app) setConsumeModeCommand(f *adminFlags) *cobra.Command {
	var p place
	var topic, group, mode string
	var share int
	cmd := a.adminLeaf(f, "setConsumeMode", "Have a group pull or pop a topic",
		func(ctx context.Context, ad *admin.Admin) error {
			if mode != "PULL" && mode != "POP" {
				return misuse{fmt.Errorf("--mode is %q, want PULL or POP", mode)}
			}
			at, err := p.target()
			if err != nil {
				return err
			}
			done, err := ad.SetConsumeMode(ctx, group, topic, mode == "POP", share, at)
			return a.outcome("set consume mode to {} success.", done, err)
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	fl := cmd.Flags()
	fl.StringVarP(&topic, "topicName", "t", "", "topic (required)")
	fl.StringVarP(&group, "groupName", "g", "", "consumer group (required)")
	fl.StringVarP(&mode, "mode", "m", "", "PULL or POP (required)")
	fl.IntVarP(&share, "popShareQueueNum", "q", 0, "queues that members share in POP; 0: all")
	return need(cmd, "topicName", "groupName", "mode")
}

func (a *app) consumerStatusCommand(f *adminFlags) *cobra.Command {
	var group, id, broker string
	var stacks bool
	cmd := a.adminLeaf(f, "consumerStatus", "Show what the members of a group say about themselves",
		func(ctx context.Context, ad *admin.Admin) error {
			m, err := ad.Members(ctx, group)
			if len(m.Members) == 0 {
				return err
			}
			failed := []error{err}
			for _, x := range m.Members {
				if id != "" && x.ClientID != id {
					continue
				}
				info, err := ad.RunningInfo(ctx, group, x.ClientID, stacks)
				failed = append(failed, err)
				if err == nil {
					failed = append(failed, a.printRunning(info))
				}
			}
			return a.partly(errors.Join(failed...))
		})
	fl := cmd.Flags()
	fl.StringVarP(&group, "consumerGroup", "g", "", "consumer group (required)")
	fl.StringVarP(&id, "clientId", "i", "", "only this client")
	fl.BoolVarP(&stacks, "jstack", "s", false, "with the stacks of its threads or goroutines")
	fl.StringVarP(&broker, "brokerAddr", "b", "", "taken for mqadmin's sake: all brokers are asked")
	return need(cmd, "consumerGroup")
}

func (a *app) printRunning(i admin.RunningInfo) error {
	if a.json {
		return a.printJSON(map[string]any{
			"client_id": i.ClientID, "started": i.StartedAt, "version": i.Version, "consume_type": i.Type,
			"orderly": i.Ordered, "workers": i.Workers, "queues": i.Queues, "topics": i.Topics,
			"subscriptions": i.Subscribed, "properties": i.Properties, "stacks": i.Stacks,
		})
	}
	_, err := fmt.Fprintf(a.stdout, "============%s============\n"+
		"version %s, %s, orderly=%t, workers=%d, since %s\n",
		i.ClientID, i.Version, i.Type, i.Ordered, i.Workers, stamp(i.StartedAt))
	if err != nil {
		return err
	}
	type row struct {
		Topic    string    `col:"#Topic"`
		Broker   string    `col:"#Broker Name"`
		Queue    int       `col:"#QID"`
		At       int64     `col:"#Consumer Offset"`
		Cached   int       `col:"#Cached"`
		Locked   bool      `col:"#Locked"`
		Pulled   time.Time `col:"#LastPull"`
		Consumed time.Time `col:"#LastConsume"`
	}
	var rows []row
	for _, q := range i.Queues {
		rows = append(rows, row{
			q.Queue.Topic, q.Queue.Broker, q.Queue.ID, q.Committed, q.Cached, q.Locked, q.LastPull,
			q.LastConsumed,
		})
	}
	if err := printRows(a, rows); err != nil || i.Stacks == "" {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, i.Stacks)
	return err
}

func (a *app) brokerConsumeStatsCommand(f *adminFlags) *cobra.Command {
	var broker, order string
	var level int64
	cmd := a.adminLeaf(f, "brokerConsumeStats", "Show how far every group is at one broker",
		func(ctx context.Context, ad *admin.Admin) error {
			ordered, err := truth("order", order, false)
			if err != nil {
				return err
			}
			answers, err := ad.AllProgress(ctx, ordered, admin.AtAddr(broker))
			if err != nil {
				return err
			}
			type row struct {
				Topic  string    `json:"topic" col:"#Topic"`
				Group  string    `json:"group" col:"#Group"`
				Broker string    `json:"broker" col:"#Broker Name"`
				Queue  int       `json:"queue" col:"#QID"`
				End    int64     `json:"broker_offset" col:"#Broker Offset"`
				At     int64     `json:"consumer_offset" col:"#Consumer Offset"`
				Diff   int64     `json:"diff" col:"#Diff"`
				Last   time.Time `json:"last_time,omitzero" col:"#LastTime"`
			}
			var rows []row
			var total int64
			for _, g := range answers[0].Value {
				total += g.Lag
				for _, q := range g.Queues {
					if q.Lag() >= level {
						rows = append(rows, row{
							q.Queue.Topic, g.Group, q.Queue.Broker, q.Queue.ID, q.End, q.Committed, q.Lag(),
							q.LastConsumed,
						})
					}
				}
			}
			if err := printRows(a, rows); err != nil || a.json {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "\nDiff Total: %d\n", total)
			return err
		})
	fl := cmd.Flags()
	fl.StringVarP(&broker, "brokerAddr", "b", "", "broker as host:port (required)")
	fl.Int64VarP(&level, "level", "l", 0, "only queues with at least so many messages left")
	fl.StringVarP(&order, "order", "o", "", "only topics with a fixed order (true|false)")
	return need(cmd, "brokerAddr")
}
