// SPDX-License-Identifier: Apache-2.0

package admintest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

// eventually repeats a call until it succeeds: indexes and heartbeats come a little later, and to a
// reset Apache's broker draws a consumer's attention when its pull has waited long enough. It gives
// up after 40 s and returns the last error.
func eventually[T any](s *script, call func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 40*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		v, err := call()
		if err == nil {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-tick.C:
		}
	}
}

// stable drops what a message has of its run.
func (s *script) stable(m admin.Message) admin.Message {
	for i, r := range s.sent {
		if r.ID == m.ID && r.OffsetID == m.OffsetID {
			m.ID, m.OffsetID = fmt.Sprint("ID", i), fmt.Sprint("OFFSETID", i)
			m.All["UNIQ_KEY"] = m.ID
		}
	}
	m.BornHost, m.LogOffset, m.StoreSize = "", 0, 0
	delete(m.All, "INDEX") // since 5.3, the place in the index
	return m
}

func (s *script) stables(list []admin.Message) (out []admin.Message) {
	for _, m := range list {
		out = append(out, s.stable(m))
	}
	return out
}

func (s *script) messages() {
	n := s.names
	m, err := s.a.MessageByOffsetID(s.ctx, s.sent[3].OffsetID)
	s.must("message by offset id", err)
	s.note("MessageByOffsetID", s.stable(m), err)
	m, err = eventually(s, func() (admin.Message, error) {
		return s.a.MessageByID(s.ctx, n.Topic, s.sent[4].ID)
	})
	s.must("message by id", err)
	s.note("MessageByID", s.stable(m), err)
	list, err := s.a.MessagesByKey(s.ctx, n.Topic, "key2", admin.KeyQuery{})
	s.note("MessagesByKey", s.stables(list), err)
	list, err = eventually(s, func() ([]admin.Message, error) {
		list, err := s.a.MessagesByKey(s.ctx, n.Topic, "all", admin.KeyQuery{
			From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Max: 10,
		})
		if err == nil && len(list) < 6 {
			err = fmt.Errorf("%d messages of 6", len(list))
		}
		return list, err
	})
	s.note("MessagesByKey of all", len(list), err)
	_, err = s.a.MessagesByKey(s.ctx, n.Topic, "absent", admin.KeyQuery{})
	s.note("MessagesByKey of an absent key", nil, err)
	before := admin.KeyQuery{To: time.Now().Add(-24 * time.Hour)}
	_, err = s.a.MessagesByKey(s.ctx, n.Topic, "all", before)
	s.note("MessagesByKey of another time", nil, err)
	_, err = s.a.MessagesByKey(s.ctx, "absent", "all", admin.KeyQuery{})
	s.note("MessagesByKey of an absent topic", nil, err)
	_, err = s.a.MessageByOffsetID(s.ctx, "nonsense")
	s.note("MessageByOffsetID of nonsense", nil, err)
	_, err = s.a.MessageByOffsetID(s.ctx, s.sent[0].ID)
	s.note("MessageByOffsetID of a unique id", nil, err)
	far := s.sent[0].OffsetID[:len(s.sent[0].OffsetID)-16] + "0000000070000000"
	_, err = s.a.MessageByOffsetID(s.ctx, far)
	s.note("MessageByOffsetID behind the end", nil, err)
	s.done("RecheckHalf of nonsense", s.a.RecheckHalf(s.ctx, n.Topic, "nonsense"))
	s.done("RecheckHalf behind the end", s.a.RecheckHalf(s.ctx, n.Topic, far))
	m, err = s.a.MessageAt(s.ctx, s.queue(1), 2)
	s.must("message at", err)
	s.note("MessageAt", s.stable(m), err)
	_, err = s.a.MessageAt(s.ctx, s.queue(1), 3)
	s.note("MessageAt the end", nil, err)
	_, err = s.a.MessageAt(s.ctx, s.queue(1), 99)
	s.note("MessageAt behind the end", nil, err)
	entries, err := s.a.QueueEntries(s.ctx, s.queue(0), 1, 5)
	var tags []int64
	for _, e := range entries {
		tags = append(tags, e.Offset, e.TagsCode)
	}
	s.note("QueueEntries", tags, err)
	_, err = s.a.QueueEntries(s.ctx, s.queue(0), -1, 5)
	s.note("QueueEntries before the start", nil, err)
	tracks, err := s.a.Track(s.ctx, m)
	s.note("Track", tracks, err)
}

func (s *script) members() {
	n := s.names
	_, err := s.a.Members(s.ctx, n.Group)
	s.note("Members of a group that is offline", nil, err)
	_, err = s.a.ProducerMembers(s.ctx, "absent")
	s.note("ProducerMembers of an absent group", nil, err)
	producers, err := eventually(s, func() ([]admin.Member, error) {
		return s.a.ProducerMembers(s.ctx, n.Producers)
	})
	s.must("producers", err)
	s.note("ProducerMembers", s.anonymous(producers), err)
	every, err := s.a.Producers(s.ctx, admin.Everywhere())
	s.note("Producers", s.anonymous(every[n.Producers]), err)
	r, err := s.c.NewReader(n.Group, client.WithSubscription(n.Topic, client.Tags("A", "C")))
	s.must("reader", err)
	members, err := eventually(s, func() (admin.Members, error) {
		m, err := s.a.Members(s.ctx, n.Group)
		if err == nil && len(m.Topics) == 0 {
			// RocketMQ enters a member and its subscriptions one after the other.
			err = errors.New("the reader's subscription is not there yet")
		}
		return m, err
	})
	s.must("members", err)
	members.Members = s.anonymous(members.Members)
	for i := range members.Topics {
		members.Topics[i].Version = 0
	}
	s.note("Members", members, err)
	sub, err := s.a.Subscription(s.ctx, n.Group, n.Topic)
	sub.Version = 0
	s.note("Subscription", sub, err)
	_, err = s.a.Subscription(s.ctx, n.Group, "absent")
	s.note("Subscription to an absent topic", nil, err)
	_, err = s.a.RunningInfo(s.ctx, n.Group, "nobody", false)
	s.note("RunningInfo of nobody", nil, err)
	m, err := s.a.MessageAt(s.ctx, s.queue(1), 0)
	s.must("message at", err)
	_, err = s.a.ConsumeDirectly(s.ctx, n.Group, "nobody", m)
	s.note("ConsumeDirectly by nobody", nil, err)
	_, err = s.a.ConsumeDirectly(s.ctx, n.Group, "", m)
	s.note("ConsumeDirectly by no name", nil, err)
	tracks, err := s.a.Track(s.ctx, m)
	s.note("Track with members", tracks, err)
	s.must("close", r.Close(s.ctx))
}

func (s *script) anonymous(list []admin.Member) []admin.Member {
	for i := range list {
		list[i].ClientID, list[i].Addr, list[i].LastSeen = "CLIENT", "", time.Time{}
	}
	return list
}
