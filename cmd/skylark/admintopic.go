// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client/admin"
)

func (a *app) topicCommands(f *adminFlags) []*cobra.Command {
	return []*cobra.Command{
		a.updateTopicCommand(f), a.deleteTopicCommand(f), a.topicListCommand(f),
		a.topicRouteCommand(f), a.topicStatusCommand(f), a.updateTopicPermCommand(f),
		a.topicClusterListCommand(f),
	}
}

// updateTopicFlags are those of mqadmin updateTopic; yes-and-no ones take true or false.
type updateTopicFlags struct {
	place
	topic, order, unit, unitSub, attributes string
	read, write, perm                       int
}

func (a *app) updateTopicCommand(f *adminFlags) *cobra.Command {
	var u updateTopicFlags
	cmd := a.adminLeaf(f, "updateTopic", "Create a topic or change it",
		func(ctx context.Context, ad *admin.Admin) error { return a.updateTopic(ctx, ad, &u) })
	u.flags(cmd, "brokerAddr", "clusterName")
	fl := cmd.Flags()
	fl.StringVarP(&u.topic, "topic", "t", "", "topic (required)")
	fl.IntVarP(&u.read, "readQueueNums", "r", 8, "queues that are read, 1 to 65536")
	fl.IntVarP(&u.write, "writeQueueNums", "w", 8, "queues that are written, 1 to 65536")
	fl.IntVarP(&u.perm, "perm", "p", 6, "permission: 2 write, 4 read, 6 both")
	fl.StringVarP(&u.order, "order", "o", "", "fix the order configuration of its queues (true|false)")
	fl.StringVarP(&u.unit, "unit", "u", "", "unit topic (true|false)")
	fl.StringVarP(&u.unitSub, "hasUnitSub", "s", "", "has unit subscriptions (true|false)")
	fl.StringVarP(&u.attributes, "attributes", "a", "", "changes of attributes, as +a=b,+c=d,-e")
	return need(cmd, "topic")
}

// config reads the flags; gone are attributes to delete.
func (u *updateTopicFlags) config() (c admin.TopicConfig, gone []string, err error) {
	c = admin.TopicConfig{
		Name: u.topic, ReadQueues: u.read, WriteQueues: u.write, Perm: admin.Perm(u.perm),
	}
	if u.read < 1 || u.write < 1 {
		return c, nil, misuse{errors.New("--readQueueNums and --writeQueueNums are at least 1")}
	}
	if u.perm < 1 || u.perm > 7 {
		return c, nil, misuse{fmt.Errorf("--perm is %d, want 2, 4 or 6", u.perm)}
	}
	var unit, sub bool
	var errs [3]error
	c.Order, errs[0] = truth("order", u.order, false)
	unit, errs[1] = truth("unit", u.unit, false)
	sub, errs[2] = truth("hasUnitSub", u.unitSub, false)
	if err := errors.Join(errs[:]...); err != nil {
		return c, nil, err
	}
	if unit { // bits of RocketMQ's TopicSysFlag
		c.SysFlag |= 1
	}
	if sub {
		c.SysFlag |= 2
	}
	c.Attributes, gone, err = parseAttributes(u.attributes)
	return c, gone, err
}

// parseAttributes reads +a=b,-c.
func parseAttributes(text string) (set map[string]string, gone []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		name, value, assigned := strings.Cut(strings.TrimLeft(part, "+-"), "=")
		switch {
		case part == "":
		case part[0] == '+' && assigned && name != "":
			if set == nil {
				set = map[string]string{}
			}
			set[name] = value
		case part[0] == '-' && !assigned && name != "":
			gone = append(gone, name)
		default:
			return nil, nil, misuse{fmt.Errorf("attribute %q is neither +name=value nor -name", part)}
		}
	}
	return set, gone, nil
}

func (a *app) updateTopic(ctx context.Context, ad *admin.Admin, u *updateTopicFlags) error {
	c, gone, err := u.config()
	if err != nil {
		return err
	}
	at, err := u.target()
	if err != nil {
		return err
	}
	done, err := ad.PutTopic(ctx, c, at)
	if err == nil && len(gone) > 0 {
		done, err = ad.UpdateTopic(ctx, c.Name, at, func(t *admin.TopicConfig) {
			for _, name := range gone {
				delete(t.Attributes, name)
			}
		})
	}
	if err := a.outcome("create topic to {} success.", done, err); err != nil {
		return err
	}
	if c.Order {
		var parts []string
		for _, d := range done {
			parts = append(parts, fmt.Sprintf("%s:%d", d.Broker.Name, c.WriteQueues))
		}
		if _, err := ad.PutOrderConfig(ctx, c.Name, strings.Join(parts, ";")); err != nil {
			return err
		}
	}
	if a.json {
		return nil
	}
	_, err = fmt.Fprintf(a.stdout, "TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, "+
		"perm=%s, topicFilterType=SINGLE_TAG, topicSysFlag=%d, order=%t, attributes=%v]\n",
		c.Name, c.ReadQueues, c.WriteQueues, c.Perm, c.SysFlag, c.Order, u.attributes)
	return err
}

func (a *app) deleteTopicCommand(f *adminFlags) *cobra.Command {
	var topic, cluster string
	cmd := a.adminLeaf(f, "deleteTopic", "Delete a topic with its messages",
		func(ctx context.Context, ad *admin.Admin) error {
			done, err := ad.DeleteTopic(ctx, topic, cluster)
			return a.outcome("delete topic ["+topic+"] from {} success.", done, err)
		})
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic (required)")
	cmd.Flags().StringVarP(&cluster, "clusterName", "c", "", "cluster (required)")
	return need(cmd, "topic", "clusterName")
}

// topicRow is a line of topicList.
type topicRow struct {
	Cluster string   `json:"cluster" col:"#Cluster Name"`
	Topic   string   `json:"topic" col:"#Topic"`
	Groups  []string `json:"groups" col:"#Consumer Group"`
}

func (a *app) topicListCommand(f *adminFlags) *cobra.Command {
	var more bool
	cmd := a.adminLeaf(f, "topicList", "List topics, with -c their clusters and consumer groups",
		func(ctx context.Context, ad *admin.Admin) error { return a.topicList(ctx, ad, more) })
	cmd.Flags().BoolVarP(&more, "clusterModel", "c", false,
		"with clusters and groups: asks every broker")
	return cmd
}

func (a *app) topicList(ctx context.Context, ad *admin.Admin, more bool) error {
	topics, err := ad.Topics(ctx)
	if err != nil {
		return err
	}
	var rows []topicRow
	var failed []error
	for _, topic := range topics {
		if !more {
			rows = append(rows, topicRow{Topic: topic})
			continue
		}
		clusters, err := ad.TopicClusters(ctx, topic)
		failed = append(failed, err)
		groups, err := ad.TopicGroups(ctx, topic)
		failed = append(failed, err)
		for _, cluster := range clusters {
			rows = append(rows, topicRow{Cluster: cluster, Topic: topic, Groups: groups})
		}
	}
	if more {
		return errors.Join(printRows(a, rows), a.partly(errors.Join(failed...)))
	}
	for _, r := range rows {
		var err error
		if a.json {
			err = a.printJSON(map[string]string{"topic": r.Topic})
		} else {
			_, err = fmt.Fprintln(a.stdout, r.Topic)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// routeRow is a line of topicRoute -l.
type routeRow struct {
	Cluster string           `json:"cluster" col:"#ClusterName"`
	Broker  string           `json:"broker" col:"#BrokerName"`
	Addrs   map[int64]string `json:"addrs" col:"#BrokerAddrs"`
	Read    int              `json:"read_queues" col:"#ReadQueue"`
	Write   int              `json:"write_queues" col:"#WriteQueue"`
	Perm    string           `json:"perm" col:"#Perm"`
}

func (a *app) topicRouteCommand(f *adminFlags) *cobra.Command {
	var topic string
	cmd := a.adminLeaf(f, "topicRoute", "Show which brokers serve a topic",
		func(ctx context.Context, ad *admin.Admin) error {
			r, err := ad.TopicRoute(ctx, topic)
			if err != nil {
				return err
			}
			var rows []routeRow
			for _, q := range r.Queues {
				row := routeRow{
					Broker: q.Broker, Read: q.ReadQueues, Write: q.WriteQueues, Perm: q.Perm.String(),
				}
				for _, b := range r.Brokers {
					if b.Name == q.Broker {
						row.Cluster, row.Addrs = b.Cluster, b.Addrs
					}
				}
				rows = append(rows, row)
			}
			return printRows(a, rows)
		})
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic (required)")
	cmd.Flags().BoolP("list", "l", true, "taken for mqadmin's sake: a list is all there is")
	return need(cmd, "topic")
}

// statusRow is a line of topicStatus.
type statusRow struct {
	Broker string    `json:"broker" col:"#Broker Name"`
	Queue  int       `json:"queue" col:"#QID"`
	Min    int64     `json:"min_offset" col:"#Min Offset"`
	Max    int64     `json:"max_offset" col:"#Max Offset"`
	Last   time.Time `json:"last_updated,omitzero" col:"#Last Updated"`
}

func (a *app) topicStatusCommand(f *adminFlags) *cobra.Command {
	var topic, cluster string
	cmd := a.adminLeaf(f, "topicStatus", "Show how far a topic's queues are filled",
		func(ctx context.Context, ad *admin.Admin) error {
			s, err := ad.TopicStatus(ctx, topic)
			if len(s.Queues) == 0 && err != nil {
				return err
			}
			var rows []statusRow
			for _, q := range s.Queues {
				rows = append(rows, statusRow{q.Queue.Broker, q.Queue.ID, q.Min, q.Max, q.LastUpdate})
			}
			if err := printRows(a, rows); err != nil {
				return err
			}
			if !a.json {
				_, _ = fmt.Fprintf(a.stdout, "\nTopic Put TPS: %.2f\n", s.PutTPS)
			}
			return a.partly(err)
		})
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic (required)")
	cmd.Flags().StringVarP(&cluster, "cluster", "c", "",
		"taken for mqadmin's sake, for light topics only")
	return need(cmd, "topic")
}

func (a *app) updateTopicPermCommand(f *adminFlags) *cobra.Command {
	var p place
	var topic string
	var perm int
	cmd := a.adminLeaf(f, "updateTopicPerm", "Change what may be done with a topic",
		func(ctx context.Context, ad *admin.Admin) error {
			if perm < 1 || perm > 7 {
				return misuse{fmt.Errorf("--perm is %d, want 2, 4 or 6", perm)}
			}
			at, err := p.target()
			if err != nil {
				return err
			}
			done, err := ad.UpdateTopic(ctx, topic, at, func(c *admin.TopicConfig) {
				c.Perm = admin.Perm(perm)
			})
			return a.outcome("update topic perm to "+admin.Perm(perm).String()+" in {} success.", done, err)
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic (required)")
	cmd.Flags().IntVarP(&perm, "perm", "p", 0, "permission: 2 write, 4 read, 6 both (required)")
	return need(cmd, "topic")
}

func (a *app) topicClusterListCommand(f *adminFlags) *cobra.Command {
	var topic string
	cmd := a.adminLeaf(f, "topicClusterList", "List the clusters that have a topic",
		func(ctx context.Context, ad *admin.Admin) error {
			clusters, err := ad.TopicClusters(ctx, topic)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"topic": topic, "clusters": clusters})
			}
			_, err = fmt.Fprintln(a.stdout, strings.Join(clusters, "\n"))
			return err
		})
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic (required)")
	return need(cmd, "topic")
}
