// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

func (a *app) groupCommands(f *adminFlags) []*cobra.Command {
	return []*cobra.Command{
		a.updateSubGroupCommand(f), a.deleteSubGroupCommand(f), a.consumerProgressCommand(f),
		a.consumerConnectionCommand(f), a.producerConnectionCommand(f), a.getConsumerConfigCommand(f),
		a.setConsumeModeCommand(f), a.consumerStatusCommand(f), a.brokerConsumeStatsCommand(f),
	}
}

// updateGroupFlags are those of mqadmin updateSubGroup. As there, what is not given is reset:
// without -m and -d a group may neither start from the first message nor broadcast.
type updateGroupFlags struct {
	place
	group, enable, fromMin, broadcast, orderly, notify, policy, attributes string
	retryQueues, retryMax                                                  int
	brokerID, slowBroker                                                   int64
}

func (a *app) updateSubGroupCommand(f *adminFlags) *cobra.Command {
	var u updateGroupFlags
	cmd := a.adminLeaf(f, "updateSubGroup", "Create a consumer group or change it",
		func(ctx context.Context, ad *admin.Admin) error { return a.updateSubGroup(ctx, ad, &u) })
	u.flags(cmd, "brokerAddr", "clusterName")
	fl := cmd.Flags()
	fl.StringVarP(&u.group, "groupName", "g", "", "consumer group (required)")
	fl.StringVarP(&u.enable, "consumeEnable", "s", "", "it may consume (true|false), default true")
	fl.StringVarP(&u.fromMin, "consumeFromMinEnable", "m", "", "it may start from the first message "+
		"(true|false), default false")
	fl.StringVarP(&u.broadcast, "consumeBroadcastEnable", "d", "", "it may broadcast (true|false), "+
		"default false")
	fl.StringVarP(&u.orderly, "consumeMessageOrderly", "o", "", "it consumes in order (true|false)")
	fl.StringVarP(&u.notify, "notifyConsumerIdsChanged", "a", "", "members are told of each other "+
		"(true|false), default true")
	fl.StringVarP(&u.policy, "groupRetryPolicy", "p", "", "JSON as "+
		`{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}`)
	fl.StringVar(&u.attributes, "attributes", "", "attributes as +a=b,+c=d")
	fl.IntVarP(&u.retryQueues, "retryQueueNums", "q", 1, "queues of its retry topic")
	fl.IntVarP(&u.retryMax, "retryMaxTimes", "r", 16, "redeliveries")
	fl.Int64VarP(&u.brokerID, "brokerId", "i", 0, "id of the broker that it reads from")
	fl.Int64VarP(&u.slowBroker, "whichBrokerWhenConsumeSlowly", "w", 1,
		"the same when it is far behind")
	return need(cmd, "groupName")
}

func (u *updateGroupFlags) config() (admin.GroupConfig, error) {
	g := admin.NewGroup(u.group)
	g.RetryQueues, g.MaxRetries = u.retryQueues, u.retryMax
	g.BrokerID, g.SlowBrokerID = u.brokerID, u.slowBroker
	var errs [6]error
	g.Enabled, errs[0] = truth("consumeEnable", u.enable, true)
	g.FromMin, errs[1] = truth("consumeFromMinEnable", u.fromMin, false)
	g.Broadcast, errs[2] = truth("consumeBroadcastEnable", u.broadcast, false)
	g.Ordered, errs[3] = truth("consumeMessageOrderly", u.orderly, false)
	g.NotifyChange, errs[4] = truth("notifyConsumerIdsChanged", u.notify, true)
	g.RetryPolicy, errs[5] = retryPolicy(u.policy)
	if err := errors.Join(errs[:]...); err != nil {
		return g, err
	}
	set, gone, err := parseAttributes(u.attributes)
	if err == nil && len(gone) > 0 {
		err = misuse{errors.New("--attributes takes +name=value only")}
	}
	g.Attributes = set
	return g, err
}

// retryPolicyText is what --groupRetryPolicy takes; empty for none.
func retryPolicyText(p admin.RetryPolicy) string {
	switch {
	case p.Initial != 0:
		return fmt.Sprintf(`{"type":"EXPONENTIAL","exponentialRetryPolicy":`+
			`{"initial":%d,"max":%d,"multiplier":%d}}`,
			p.Initial.Milliseconds(), p.Max.Milliseconds(), p.Multiplier)
	case len(p.Delays) > 0:
		var next []string
		for _, d := range p.Delays {
			next = append(next, strconv.FormatInt(d.Milliseconds(), 10))
		}
		return `{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[` + strings.Join(next, ",") + `]}}`
	default:
		return ""
	}
}

// attributesText is a=b,c=d in the order of the names.
func attributesText(attributes map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		list = append(list, name+"="+attributes[name])
	}
	return strings.Join(list, ",")
}

// retryPolicy reads mqadmin's JSON, times in milliseconds.
func retryPolicy(text string) (p admin.RetryPolicy, err error) {
	if text == "" {
		return p, nil
	}
	var v struct {
		Type                   string
		CustomizedRetryPolicy  struct{ Next []int64 }
		ExponentialRetryPolicy struct{ Initial, Max, Multiplier int64 }
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return p, misuse{fmt.Errorf("--groupRetryPolicy: %w", err)}
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch v.Type {
	case "EXPONENTIAL":
		e := v.ExponentialRetryPolicy
		p.Initial, p.Max, p.Multiplier = ms(e.Initial), ms(e.Max), int(e.Multiplier)
		return p, nil
	case "CUSTOMIZED":
		for _, n := range v.CustomizedRetryPolicy.Next {
			p.Delays = append(p.Delays, ms(n))
		}
		return p, nil
	}
	return p, misuse{fmt.Errorf("--groupRetryPolicy: type %q, want EXPONENTIAL or CUSTOMIZED", v.Type)}
}

func (a *app) updateSubGroup(ctx context.Context, ad *admin.Admin, u *updateGroupFlags) error {
	g, err := u.config()
	if err != nil {
		return err
	}
	at, err := u.target()
	if err != nil {
		return err
	}
	done, err := ad.PutGroup(ctx, g, at)
	return a.outcome("create subscription group to {} success.", done, err)
}

func (a *app) deleteSubGroupCommand(f *adminFlags) *cobra.Command {
	var p place
	var group, offsets string
	cmd := a.adminLeaf(f, "deleteSubGroup", "Delete a consumer group",
		func(ctx context.Context, ad *admin.Admin) error {
			clean, err := truth("removeOffset", offsets, false)
			if err != nil {
				return err
			}
			at, err := p.target()
			if err != nil {
				return err
			}
			done, err := ad.DeleteGroup(ctx, group, at, clean)
			words := "delete subscription group [" + group + "] from broker [{}] success."
			if err := a.outcome(words, done, err); err != nil || p.cluster == "" {
				return err
			}
			for _, topic := range []string{admin.RetryTopic(group), admin.DeadLetterTopic(group)} {
				if _, err := ad.DeleteTopic(ctx, topic, p.cluster); err != nil {
					return err
				}
			}
			return nil
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	cmd.Flags().StringVarP(&group, "groupName", "g", "", "consumer group (required)")
	cmd.Flags().StringVarP(&offsets, "removeOffset", "r", "", "with its offsets (true|false)")
	cmd.Long = "Deletes a consumer group. With -c its retry and dead-letter topics go too."
	return need(cmd, "groupName")
}

// progressRow is a line of consumerProgress -g.
type progressRow struct {
	Topic    string    `json:"topic" col:"#Topic"`
	Broker   string    `json:"broker" col:"#Broker Name"`
	Queue    int       `json:"queue" col:"#QID"`
	End      int64     `json:"broker_offset" col:"#Broker Offset"`
	At       int64     `json:"consumer_offset" col:"#Consumer Offset"`
	Client   string    `json:"client,omitempty" col:"#Client IP"`
	Diff     int64     `json:"diff" col:"#Diff"`
	InFlight int64     `json:"inflight" col:"#Inflight"`
	Last     time.Time `json:"last_time,omitzero" col:"#LastTime"`
}

// groupRow is a line of consumerProgress without -g.
type groupRow struct {
	Group   string  `json:"group" col:"#Group"`
	Count   int     `json:"count" col:"#Count"`
	Version string  `json:"version" col:"#Version"`
	Type    string  `json:"type" col:"#Type"`
	Model   string  `json:"model" col:"#Model"`
	TPS     float64 `json:"tps" col:"#TPS"`
	Diff    int64   `json:"diff_total" col:"#Diff Total"`
}

func (a *app) consumerProgressCommand(f *adminFlags) *cobra.Command {
	var group, topic, show, cluster string
	cmd := a.adminLeaf(f, "consumerProgress", "Show how far consumer groups are",
		func(ctx context.Context, ad *admin.Admin) error {
			clients, err := truth("showClientIP", show, false)
			switch {
			case err != nil:
				return err
			case group == "":
				return a.allProgress(ctx, ad)
			default:
				return a.groupProgress(ctx, ad, group, topic, clients)
			}
		})
	fl := cmd.Flags()
	fl.StringVarP(&group, "groupName", "g", "", "consumer group; without it all groups, in short")
	fl.StringVarP(&topic, "topicName", "t", "", "only this topic")
	fl.StringVarP(&show, "showClientIP", "s", "",
		"who holds each queue (true|false): asks the members")
	fl.StringVarP(&cluster, "cluster", "c", "", "taken for mqadmin's sake, for light topics only")
	return cmd
}

func (a *app) groupProgress(
	ctx context.Context, ad *admin.Admin, group, topic string, clients bool,
) error {
	var topics []string
	if topic != "" {
		topics = []string{topic}
	}
	p, err := ad.Progress(ctx, group, topics...)
	if len(p.Queues) == 0 && err != nil {
		return err
	}
	holders := map[client.Queue]string{}
	if clients {
		held, herr := ad.Assignment(ctx, group)
		if !errors.Is(herr, admin.ErrNotOnline) {
			err = errors.Join(err, herr)
		}
		holders = held
	}
	var rows []progressRow
	for _, q := range p.Queues {
		id, _, _ := strings.Cut(holders[q.Queue], "@")
		rows = append(rows, progressRow{
			q.Queue.Topic, q.Queue.Broker, q.Queue.ID, q.End, q.Committed, id, q.Lag(), q.InFlight(),
			q.LastConsumed,
		})
	}
	if err := printRows(a, rows); err != nil {
		return err
	}
	if !a.json {
		_, _ = fmt.Fprintf(a.stdout, "\nConsume TPS: %.2f\nConsume Diff Total: %d\n"+
			"Consume Inflight Total: %d\n", p.TPS, p.Lag, p.InFlight)
	}
	return a.partly(err)
}

func (a *app) allProgress(ctx context.Context, ad *admin.Admin) error {
	groups, err := ad.Groups(ctx)
	if len(groups) == 0 && err != nil {
		return err
	}
	failed := []error{err}
	var rows []groupRow
	for _, group := range groups {
		p, err := ad.Progress(ctx, group)
		failed = append(failed, err)
		m, err := ad.Members(ctx, group)
		if !errors.Is(err, admin.ErrNotOnline) {
			failed = append(failed, err)
		}
		row := groupRow{
			Group: group, Count: len(m.Members), Version: "OFFLINE", Type: m.Type, Model: m.Model,
			TPS: p.TPS, Diff: p.Lag,
		}
		for i, x := range m.Members {
			if i == 0 || x.Version < row.Version {
				row.Version = x.Version
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b groupRow) int { return b.Count - a.Count })
	return errors.Join(printRows(a, rows), a.partly(errors.Join(failed...)))
}

// connectionRow is a line of consumerConnection and producerConnection.
type connectionRow struct {
	ClientID string   `json:"client_id" col:"#ClientId"`
	Addr     string   `json:"addr" col:"#ClientAddr"`
	Language string   `json:"language" col:"#Language"`
	Version  string   `json:"version" col:"#Version"`
	Brokers  []string `json:"brokers"`
}

func connectionRows(list []admin.Member) []connectionRow {
	var rows []connectionRow
	for _, m := range list {
		rows = append(rows, connectionRow{m.ClientID, m.Addr, m.Language, m.Version, m.Brokers})
	}
	return rows
}

func (a *app) consumerConnectionCommand(f *adminFlags) *cobra.Command {
	var group, broker string
	cmd := a.adminLeaf(f, "consumerConnection", "Show the members of a consumer group",
		func(ctx context.Context, ad *admin.Admin) error {
			m, err := ad.Members(ctx, group)
			if len(m.Members) == 0 && err != nil {
				return err
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{
					"group": group, "members": connectionRows(m.Members), "consume_type": m.Type,
					"message_model": m.Model, "consume_from_where": m.From, "subscriptions": m.Topics,
				}), a.partly(err))
			}
			if err := printRows(a, connectionRows(m.Members)); err != nil {
				return err
			}
			_, _ = fmt.Fprintln(a.stdout, "\nBelow is subscription:")
			type subRow struct {
				Topic      string `col:"#Topic"`
				Expression string `col:"#SubExpression"`
			}
			var subs []subRow
			for _, s := range m.Topics {
				subs = append(subs, subRow{s.Topic, s.Expression})
			}
			if err := printRows(a, subs); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(a.stdout, "\nConsumeType: %s\nMessageModel: %s\nConsumeFromWhere: %s\n",
				m.Type, m.Model, m.From)
			return a.partly(err)
		})
	cmd.Flags().StringVarP(&group, "consumerGroup", "g", "", "consumer group (required)")
	cmd.Flags().StringVarP(&broker, "brokerAddr", "b", "",
		"taken for mqadmin's sake: all brokers are asked")
	return need(cmd, "consumerGroup")
}

func (a *app) producerConnectionCommand(f *adminFlags) *cobra.Command {
	var group, topic string
	cmd := a.adminLeaf(f, "producerConnection", "Show the members of a producer group",
		func(ctx context.Context, ad *admin.Admin) error {
			list, err := ad.ProducerMembers(ctx, group)
			if len(list) == 0 && err != nil {
				return err
			}
			return errors.Join(printRows(a, connectionRows(list)), a.partly(err))
		})
	cmd.Flags().StringVarP(&group, "producerGroup", "g", "", "producer group (required)")
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "taken for mqadmin's sake: all brokers are asked")
	return need(cmd, "producerGroup")
}
