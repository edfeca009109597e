// SPDX-License-Identifier: Apache-2.0

package admintest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

// online makes the calls that need a consumer: one of tag A runs from the first message on. Message
// "body 5" is given to it directly and fails.
func (s *script) online() {
	n := s.names
	_, err := s.a.ResetOffsets(s.ctx, admin.Reset{Group: n.Group, Topic: n.Topic, To: admin.AtStart()})
	s.must("reset", err)
	k, err := s.c.NewConsumer(n.Group, client.WithSubscription(n.Topic, client.Tags("A")),
		client.WithConcurrency(7))
	s.must("consumer", err)
	ctx, stop := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- k.Run(ctx, func(_ context.Context, m *client.Received) error {
			if m.Tag == "B" {
				return client.RetryAfter(0, errors.New("wrong tag"))
			}
			return nil
		})
	}()
	progress, err := eventually(s, func() (admin.Progress, error) {
		p, err := s.a.Progress(s.ctx, n.Group, n.Topic)
		if err == nil && (p.Lag > 0 || len(p.Queues) != 2) {
			err = fmt.Errorf("lag of %d messages", p.Lag)
		}
		return p, err
	})
	s.note("Progress of a consumer", progress, err)
	members, err := s.a.Members(s.ctx, n.Group)
	s.must("members", err)
	id := members.Members[0].ClientID
	members.Members = s.anonymous(members.Members)
	for i := range members.Topics {
		members.Topics[i].Version = 0
	}
	s.note("Members of a consumer", members, err)
	s.running(id)
	s.given(id)
	s.move(id)
	stop()
	s.must("consumer's end", <-ended)
}

func (s *script) running(id string) {
	n := s.names
	info, err := s.a.RunningInfo(s.ctx, n.Group, id, false)
	s.note("RunningInfo", []any{
		info.ClientID == id, info.StartedAt, info.Type, info.Ordered, info.Workers,
		slices.ContainsFunc(info.Queues, func(q admin.QueueInfo) bool {
			return q.Queue == s.queue(1) && q.Committed == 3 && q.Cached == 0 && !q.LastPull.IsZero()
		}),
		slices.ContainsFunc(info.Topics, func(r admin.TopicRates) bool { return r.Topic == n.Topic }),
		slices.ContainsFunc(info.Subscribed, func(x admin.Subscription) bool {
			return x.Topic == n.Topic && slices.Equal(x.Tags, []string{"A"})
		}),
	}, err)
	held, err := s.a.Assignment(s.ctx, n.Group)
	s.note("Assignment", []bool{held[s.queue(0)] == id, held[s.queue(1)] == id}, err)
	offsets, err := s.a.HeldOffsets(s.ctx, n.Topic, n.Group, "")
	s.note("HeldOffsets", offsets[id], err)
}

// given has the consumer take single messages.
func (s *script) given(id string) {
	for i := range 2 {
		m, err := s.a.MessageByOffsetID(s.ctx, s.sent[i].OffsetID)
		s.must("message", err)
		c, err := s.a.ConsumeDirectly(s.ctx, s.names.Group, id, m)
		s.note(fmt.Sprintf("ConsumeDirectly of %s", m.Body), []any{c.Result, c.OK(), c.Order, c.AutoCommit}, err)
		tracks, err := s.a.Track(s.ctx, m)
		s.note(fmt.Sprintf("Track of %s", m.Body), tracks, err)
	}
}

// move resets the group while it is online: it consumes again, and comes to the end again.
func (s *script) move(id string) {
	n := s.names
	moved, err := s.a.ResetOffsets(s.ctx, admin.Reset{Group: n.Group, Topic: n.Topic, To: admin.AtStart()})
	s.note("ResetOffsets of a group that is online", moved, err)
	_, err = eventually(s, func() (admin.Progress, error) {
		p, err := s.a.Progress(s.ctx, n.Group, n.Topic)
		if err == nil && p.Lag > 0 {
			err = fmt.Errorf("lag of %d messages", p.Lag)
		}
		return p, err
	})
	s.note("it comes to the end again", "yes", err)
	_, err = s.a.RunningInfo(s.ctx, n.Group, id, true)
	s.done("RunningInfo after it", err)
}
