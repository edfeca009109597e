// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TrackState is what became of a message in one group.
type TrackState string

// The states, in the words of RocketMQ's tools (TrackType).
const (
	TrackConsumed     TrackState = "CONSUMED"              // the group has passed it
	TrackFiltered     TrackState = "CONSUMED_BUT_FILTERED" // passed, but it does not want the tag
	TrackPull         TrackState = "PULL"                  // members pull and keep their own offsets
	TrackNotYet       TrackState = "NOT_CONSUME_YET"
	TrackNotOnline    TrackState = "NOT_ONLINE" // nobody of the group is connected
	TrackBroadcasting TrackState = "CONSUME_BROADCASTING"
	TrackUnknown      TrackState = "UNKNOWN" // Err says why
)

// Track is what became of a message in one group.
type Track struct {
	Group string
	State TrackState
	Err   error // of TrackUnknown
}

// Track says for each group that consumes a message's topic whether it has consumed the message, as
// far as offsets tell.
func (a *Admin) Track(ctx context.Context, m Message) ([]Track, error) {
	groups, err := a.TopicGroups(ctx, m.Source.Topic)
	if err != nil && len(groups) == 0 {
		return nil, err
	}
	list := make([]Track, len(groups))
	for i, g := range groups {
		if ctx.Err() != nil {
			return list[:i], explain("track message "+m.ID, context.Cause(ctx))
		}
		list[i] = a.track(ctx, m, g)
	}
	return list, err
}

func (a *Admin) track(ctx context.Context, m Message, group string) Track {
	members, err := a.Members(ctx, group)
	switch {
	case errors.Is(err, ErrNotOnline):
		return Track{group, TrackNotOnline, nil}
	case err != nil && len(members.Members) == 0:
		return Track{group, TrackUnknown, err}
	case members.Type == string(protocol.ConsumeActively):
		return Track{group, TrackPull, nil}
	case members.Model == string(protocol.Broadcasting):
		return Track{group, TrackBroadcasting, nil}
	}
	p, err := a.Progress(ctx, group, m.Source.Topic)
	i := slices.IndexFunc(p.Queues, func(q QueueProgress) bool { return q.Queue == m.Source })
	switch {
	case i < 0 && err != nil:
		return Track{group, TrackUnknown, err}
	case i < 0 || p.Queues[i].Committed <= m.Offset:
		return Track{group, TrackNotYet, nil}
	case !members.wants(m):
		return Track{group, TrackFiltered, nil}
	}
	return Track{group, TrackConsumed, nil}
}

// wants reports whether the tags of the subscription take a message; other expressions are not
// worked out here.
func (m *Members) wants(msg Message) bool {
	for _, s := range m.Topics {
		if s.Topic == msg.Source.Topic && s.ExpressionType == protocol.ExpressionTag && len(s.Tags) > 0 {
			return slices.Contains(s.Tags, msg.Tag)
		}
	}
	return true
}

// Consumed is what a consumer did with a message that it was given directly.
type Consumed struct {
	// Result is CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
	Result     string
	Remark     string // of the consumer, for example its exception
	Took       time.Duration
	Order      bool // it consumes in order
	AutoCommit bool
}

// OK reports whether the consumer took the message.
func (c Consumed) OK() bool { return c.Result == "CR_SUCCESS" || c.Result == "CR_COMMIT" }

// ConsumeDirectly has one member of a group consume a message now, whatever its offset.
// ErrNotOnline when the client is not connected to the message's broker, ErrTimeout when it does
// not answer.
func (a *Admin) ConsumeDirectly(
	ctx context.Context, group, clientID string, m Message,
) (Consumed, error) {
	op := fmt.Sprintf("have client %s of group %s consume message %s", clientID, group, m.OffsetID)
	if group == "" || clientID == "" || m.OffsetID == "" {
		return Consumed{}, invalid(op, "group, client and offset id of the message are needed")
	}
	b := a.brokerAt(ctx, m.StoreHost)
	if b.Name == "" {
		b.Name = m.Source.Broker
	}
	var r protocol.ConsumeMessageDirectlyResult
	err := a.askFor(ctx, op, b, remoting.ConsumeMessageDirectly, &protocol.ConsumeDirectlyRequest{
		Group: group, ClientID: clientID, MsgID: m.OffsetID, Topic: m.Source.Topic,
		BrokerName: b.Name, TopicSysFlag: -1, GroupSysFlag: -1,
	}, &r)
	if err != nil {
		return Consumed{}, err
	}
	return Consumed{
		Result: string(r.ConsumeResult), Remark: r.Remark, Took: millis(r.SpentTimeMills),
		Order: r.Order, AutoCommit: r.AutoCommit,
	}, nil
}
