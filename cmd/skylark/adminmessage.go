// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

func (a *app) messageCommands(f *adminFlags) []*cobra.Command {
	return []*cobra.Command{
		a.queryMsgByIDCommand(f), a.queryMsgByUniqueKeyCommand(f), a.queryMsgByKeyCommand(f),
		a.queryMsgByOffsetCommand(f), a.queryCqCommand(f),
	}
}

// messageJSON is a stored message for scripts: that of `skylark receive --json`, and what operators
// ask for besides.
func messageJSON(m admin.Message) map[string]any {
	v := receivedJSON(&m.Received)
	v["topic"] = m.Source.Topic // where it lies, also for a redelivery
	v["commitlog_offset"], v["store_size"], v["system_flag"] = m.LogOffset, m.StoreSize, m.SysFlag
	v["all_properties"] = m.All
	return v
}

// printStored prints one message, as mqadmin does, and what became of it in each group.
func (a *app) printStored(ctx context.Context, ad *admin.Admin, m admin.Message) error {
	tracks, trackErr := ad.Track(ctx, m)
	if a.json {
		v := messageJSON(m)
		states := map[string]string{}
		for _, t := range tracks {
			states[t.Group] = string(t.State)
		}
		v["tracks"] = states
		return errors.Join(a.printJSON(v), a.partly(trackErr))
	}
	body := "text: "
	if utf8.Valid(m.Body) {
		body += string(m.Body)
	} else {
		path, err := saveBody(m)
		if err != nil {
			return err
		}
		body = path
	}
	keys := m.All["KEYS"]
	for _, line := range []struct {
		name  string
		value any
	}{
		{"OffsetID:", m.OffsetID},
		{"Message ID:", m.ID},
		{"Topic:", m.Source.Topic},
		{"Tags:", "[" + m.Tag + "]"},
		{"Keys:", "[" + keys + "]"},
		{"Queue ID:", m.Source.ID},
		{"Queue Offset:", m.Offset},
		{"CommitLog Offset:", m.LogOffset},
		{"Reconsume Times:", m.Attempt - 1},
		{"Born Timestamp:", m.BornAt.Format("2006-01-02 15:04:05,000")},
		{"Store Timestamp:", m.StoredAt.Format("2006-01-02 15:04:05,000")},
		{"Born Host:", m.BornHost},
		{"Store Host:", m.StoreHost},
		{"System Flag:", m.SysFlag},
		{"Properties:", propertyText(m.All)},
		{"Message Body:", body},
	} {
		if _, err := fmt.Fprintf(a.stdout, "%-20s %v\n", line.name, line.value); err != nil {
			return err
		}
	}
	for _, t := range tracks {
		text := string(t.State)
		if t.Err != nil {
			text += ": " + t.Err.Error()
		}
		_, err := fmt.Fprintf(a.stdout, "MessageTrack [consumerGroup=%s, trackType=%s]\n", t.Group, text)
		if err != nil {
			return err
		}
	}
	return a.partly(trackErr)
}

// propertyText prints properties as a Java map prints.
func propertyText(p map[string]string) string {
	text := "{"
	for i, name := range slices.Sorted(maps.Keys(p)) {
		if i > 0 {
			text += ", "
		}
		text += name + "=" + p[name]
	}
	return text + "}"
}

// saveBody writes a body that is no text to a file of its own.
func saveBody(m admin.Message) (string, error) {
	file, err := os.CreateTemp("", "skylark-body-*")
	if err != nil {
		return "", fmt.Errorf("saving the body of %s: %w", m.ID, err)
	}
	_, err = file.Write(m.Body)
	return file.Name(), errors.Join(err, file.Close())
}

// direct are the flags that have a member of a group consume the message.
type direct struct{ group, client string }

func (d *direct) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&d.group, "consumerGroup", "g", "",
		"have a member of this group consume it, with -d")
	cmd.Flags().StringVarP(&d.client, "clientId", "d", "", "the member's client id, with -g")
}

// consume pushes a message to a member. done is false without the flags.
func (d *direct) consume(
	ctx context.Context, a *app, ad *admin.Admin, m admin.Message,
) (done bool, err error) {
	if d.group == "" && d.client == "" {
		return false, nil
	}
	if d.group == "" || d.client == "" {
		return true, misuse{errors.New("--consumerGroup and --clientId go together")}
	}
	c, err := ad.ConsumeDirectly(ctx, d.group, d.client, m)
	if err != nil {
		return true, err
	}
	if a.json {
		return true, a.printJSON(map[string]any{
			"result": c.Result, "remark": c.Remark, "took_ms": c.Took.Milliseconds(), "order": c.Order,
		})
	}
	_, err = fmt.Fprintf(a.stdout, "ConsumeMessageDirectlyResult [consumeResult=%s, remark=%s, "+
		"order=%t, autoCommit=%t, spentTimeMills=%d]\n",
		c.Result, c.Remark, c.Order, c.AutoCommit, c.Took.Milliseconds())
	return true, err
}

func (a *app) queryMsgByIDCommand(f *adminFlags) *cobra.Command {
	var id, topic, ignored string
	var d direct
	cmd := a.adminLeaf(f, "queryMsgById", "Show the message with an offset id",
		func(ctx context.Context, ad *admin.Admin) error {
			m, err := ad.MessageByOffsetID(ctx, id)
			if err != nil && topic != "" { // perhaps it is a unique id
				if other, uerr := ad.MessageByID(ctx, topic, id); uerr == nil {
					m, err = other, nil
				}
			}
			if err != nil {
				return err
			}
			if done, err := d.consume(ctx, a, ad, m); done {
				return err
			}
			return a.printStored(ctx, ad, m)
		})
	fl := cmd.Flags()
	fl.StringVarP(&id, "msgId", "i", "", "offset id; a unique id is looked up as well (required)")
	fl.StringVarP(&topic, "topic", "t", "", "topic of a unique id")
	fl.StringVarP(&ignored, "cluster", "c", "", "taken for mqadmin's sake, for light topics only")
	d.flags(cmd)
	return need(cmd, "msgId")
}

func (a *app) queryMsgByUniqueKeyCommand(f *adminFlags) *cobra.Command {
	var id, topic, ignored string
	var all bool
	var d direct
	cmd := a.adminLeaf(f, "queryMsgByUniqueKey", "Show the message with a unique id",
		func(ctx context.Context, ad *admin.Admin) error {
			list, err := ad.MessagesByID(ctx, topic, id)
			if len(list) == 0 {
				return err
			}
			if !all {
				list = list[len(list)-1:]
			}
			for _, m := range list {
				if done, err := d.consume(ctx, a, ad, m); done {
					return err
				}
				if err := a.printStored(ctx, ad, m); err != nil {
					return err
				}
			}
			return a.partly(err)
		})
	fl := cmd.Flags()
	fl.StringVarP(&id, "msgId", "i", "", "unique id (required)")
	fl.StringVarP(&topic, "topic", "t", "", "topic (required)")
	fl.BoolVarP(&all, "showAll", "a", false, "every message with the id, at most 32 of each broker")
	fl.StringVarP(&ignored, "cluster", "c", "", "taken for mqadmin's sake, for light topics only")
	d.flags(cmd)
	return need(cmd, "msgId", "topic")
}

// keyRow is a line of queryMsgByKey.
type keyRow struct {
	ID     string `json:"id" col:"#Message ID"`
	Broker string `json:"broker"`
	Queue  int    `json:"queue" col:"#QID"`
	Offset int64  `json:"offset" col:"#Offset"`
}

func (a *app) queryMsgByKeyCommand(f *adminFlags) *cobra.Command {
	var key, topic, ignored string
	var begin, end string
	var limit int
	cmd := a.adminLeaf(f, "queryMsgByKey", "List the messages with a key",
		func(ctx context.Context, ad *admin.Admin) error {
			q := admin.KeyQuery{Max: limit}
			var errs [2]error
			q.From, errs[0] = moment("beginTimestamp", begin)
			q.To, errs[1] = moment("endTimestamp", end)
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			list, err := ad.MessagesByKey(ctx, topic, key, q)
			if len(list) == 0 {
				return err
			}
			var rows []keyRow
			for _, m := range list {
				rows = append(rows, keyRow{m.ID, m.Source.Broker, m.Source.ID, m.Offset})
			}
			return errors.Join(printRows(a, rows), a.partly(err))
		})
	fl := cmd.Flags()
	fl.StringVarP(&key, "msgKey", "k", "", "key (required)")
	fl.StringVarP(&topic, "topic", "t", "", "topic (required)")
	fl.StringVarP(&begin, "beginTimestamp", "b", "", "stored at or after, in milliseconds")
	fl.StringVarP(&end, "endTimestamp", "e", "", "stored at or before, in milliseconds")
	fl.IntVarP(&limit, "maxNum", "m", 64, "messages of each broker, 1 or more")
	fl.StringVarP(&ignored, "cluster", "c", "", "taken for mqadmin's sake, for light topics only")
	return need(cmd, "msgKey", "topic")
}

// moment reads a flag in milliseconds; zero for none.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 0 {
		return time.Time{}, misuse{fmt.Errorf("--%s is %q, want milliseconds", name, text)}
	}
	return time.UnixMilli(ms), nil
}

func (a *app) queryMsgByOffsetCommand(f *adminFlags) *cobra.Command {
	var topic, broker, ignored string
	var queue int
	var offset int64
	cmd := a.adminLeaf(f, "queryMsgByOffset", "Show the message at an offset of a queue",
		func(ctx context.Context, ad *admin.Admin) error {
			if queue < 0 || offset < 0 {
				return misuse{errors.New("--queueId and --offset are required")}
			}
			m, err := ad.MessageAt(ctx, client.Queue{Topic: topic, Broker: broker, ID: queue}, offset)
			if err != nil {
				return err
			}
			return a.printStored(ctx, ad, m)
		})
	fl := cmd.Flags()
	fl.StringVarP(&topic, "topic", "t", "", "topic (required)")
	fl.StringVarP(&broker, "brokerName", "b", "", "name of the broker (required)")
	fl.IntVarP(&queue, "queueId", "i", -1, "queue (required)")
	fl.Int64VarP(&offset, "offset", "o", -1, "offset (required)")
	fl.StringVarP(&ignored, "bodyFormat", "f", "", "taken for mqadmin's sake: text is shown as UTF-8")
	return need(cmd, "topic", "brokerName")
}

func (a *app) queryCqCommand(f *adminFlags) *cobra.Command {
	var topic, broker, group string
	var queue, count int
	var index int64
	cmd := a.adminLeaf(f, "queryCq", "List entries of a queue's index file",
		func(ctx context.Context, ad *admin.Admin) error {
			if queue < 0 || index < 0 || count < 1 {
				return misuse{errors.New("--queue, --index and a --count of at least 1 are needed")}
			}
			if broker == "" {
				route, err := ad.TopicRoute(ctx, topic)
				if err != nil {
					return err
				}
				broker = route.Queues[0].Broker
			}
			name, err := brokerName(ctx, ad, broker)
			if err != nil {
				return err
			}
			q := client.Queue{Topic: topic, Broker: name, ID: queue}
			list, err := ad.QueueEntries(ctx, q, index, count)
			if err != nil {
				return err
			}
			type row struct {
				Index int64 `json:"index" col:"#Index"`
				Log   int64 `json:"commitlog_offset" col:"#PhysicOffset"`
				Size  int   `json:"size" col:"#Size"`
				Tags  int64 `json:"tags_code" col:"#TagsCode"`
			}
			var rows []row
			for _, e := range list {
				rows = append(rows, row{e.Offset, e.LogOffset, e.Size, e.TagsCode})
			}
			return printRows(a, rows)
		})
	fl := cmd.Flags()
	fl.StringVarP(&topic, "topic", "t", "", "topic (required)")
	fl.IntVarP(&queue, "queue", "q", -1, "queue (required)")
	fl.Int64VarP(&index, "index", "i", -1, "offset of the first entry (required)")
	fl.IntVarP(&count, "count", "c", 10, "entries, 1 or more")
	fl.StringVarP(&broker, "broker", "b", "", "broker as host:port; default the first of the topic")
	fl.StringVarP(&group, "consumer", "g", "", "taken for mqadmin's sake")
	return need(cmd, "topic")
}
