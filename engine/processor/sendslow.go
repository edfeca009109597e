// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"errors"

	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
)

// versionRetryLimit is V3_4_9: from there on a producer's own maxReconsumeTimes counts.
const versionRetryLimit = 121

// createTopic hands a send to an unknown topic to a worker: creating one writes a file and tells
// the name servers, and only then does RocketMQ answer. An error means that no worker is free.
func (s *Send) createTopic(c *eventloop.Conn, cmd *remoting.Command) error {
	req := topic.CreateOnSend{
		Topic: string(s.req.Topic), DefaultTopic: string(s.req.DefaultTopic),
		DefaultQueues: s.req.DefaultTopicQueues, UnitMode: s.req.UnitMode,
	}
	return s.later(c, cmd, func() error {
		_, err := s.Topics.CreateOnSend(req)
		if errors.Is(err, topic.ErrNotCreatable) {
			return remoting.Errorf(remoting.TopicNotExist,
				"topic[%s] not exist, apply first please!%s", req.Topic, FAQ)
		}
		return err
	})
}

// resend is a send that comes round again after a worker prepared the way for it.
type resend struct {
	send *Send
	cmd  *remoting.Command
	err  error
}

// later runs prepare on a worker and then handles a copy of cmd on this loop again.
func (s *Send) later(c *eventloop.Conn, cmd *remoting.Command, prepare func() error) error {
	r := &resend{send: s, cmd: cmd.Clone()}
	ref := c.Ref()
	handed := s.Hand(func() {
		r.err = prepare()
		ref.Post(r)
	})
	if !handed {
		return remoting.Errorf(remoting.SystemBusy,
			"[OVERLOAD]system busy, start flow control for a while")
	}
	return nil
}

// Run is called on the loop that owns the connection.
func (r *resend) Run(c *eventloop.Conn) {
	if c == nil {
		return
	}
	if r.err != nil {
		r.send.refuse(c, r.cmd, r.err)
		return
	}
	if err := r.send.req.Decode(r.cmd); err != nil {
		r.send.refuse(c, r.cmd, err)
		return
	}
	if _, ok := r.send.Topics.Lookup(r.send.req.Topic); !ok {
		// It was deleted again in between: do not go round for ever.
		r.send.refuse(c, r.cmd, remoting.Errorf(remoting.TopicNotExist,
			"topic[%s] not exist, apply first please!%s", r.send.req.Topic, FAQ))
		return
	}
	r.send.Add(c, r.cmd)
	r.send.Flush()
}

// retry decides what becomes of a message for a %RETRY% topic: it stays (target is cfg), goes to
// the dead-letter topic (dead), or has to wait for that topic's creation (target is nil).
func (s *Send) retry(c *eventloop.Conn, cmd *remoting.Command, cfg *protocol.TopicConfig) (
	target *protocol.TopicConfig, dead bool, err error,
) {
	group, isRetry := bytes.CutPrefix(s.req.Topic, []byte(protocol.RetryPrefix))
	if !isRetry {
		return cfg, false, nil
	}
	if s.req.Batch {
		return nil, false, remoting.Errorf(remoting.MessageIllegal,
			"batch request does not support retry group %s", group)
	}
	group, _, _ = bytes.Cut(group, []byte("+")) // the second form of pop's retry topics
	config, ok := s.Groups.Lookup(group)
	if !ok {
		return nil, false, s.createGroup(c, cmd, string(group))
	}
	limit := config.RetryMaxTimes
	if s.req.MaxReconsumeTimes >= 0 && cmd.Version >= versionRetryLimit {
		limit = s.req.MaxReconsumeTimes
	}
	if s.req.ReconsumeTimes <= limit && !s.Locks.HasUnexpired(string(group)) {
		return cfg, false, nil
	}
	name := protocol.DLQPrefix + string(group)
	if target, ok = s.Topics.Lookup([]byte(name)); ok {
		return target, true, nil
	}
	return nil, true, s.later(c, cmd, func() error {
		_, err := s.Topics.CreateRetry(name, 1, protocol.PermRead|protocol.PermWrite, false, false)
		return err
	})
}

// createGroup lets a worker create the group of a retry topic, if that is allowed.
func (s *Send) createGroup(c *eventloop.Conn, cmd *remoting.Command, name string) error {
	absent := remoting.Errorf(remoting.SubscriptionGroupNotExist,
		"subscription group not exist, %s %s", name, FAQ)
	if !s.Groups.Creatable([]byte(name)) {
		return absent
	}
	return s.later(c, cmd, func() error {
		_, ok, err := s.Groups.LookupOrCreate(name)
		if err == nil && !ok {
			err = absent
		}
		return err
	})
}

// FlushWait is a stored send whose answer waits for the disk.
type FlushWait struct {
	send    *Send
	ref     eventloop.Ref
	loop    *eventloop.Loop
	head    remoting.Head
	entry   storage.Entry
	uniq    []byte
	reached bool
}

// park holds the answer until the record is on disk. False: it is there already, or the list is
// full, in which case the answer goes out at once as FLUSH_DISK_TIMEOUT.
func (s *Send) park(call *sendCall, e *storage.Entry) bool {
	w := s.spareWait()
	w.ref, w.loop, w.head = s.conn.Ref(), s.conn.Loop(), call.head
	w.uniq = append(w.uniq[:0], call.uniq...)
	places := append(w.entry.Places[:0], e.Places...)
	w.entry = *e
	w.entry.Places = places
	// The draft's bytes belong to the read that is being handled: only numbers are kept.
	w.entry.Draft.Topic, w.entry.Draft.Body, w.entry.Draft.Properties = nil, nil, nil
	parked, reached := s.Flushed.Add(int64(e.End), w)
	if parked {
		return true
	}
	s.waits = append(s.waits, w)
	if !reached {
		call.head.Code = int32(remoting.FlushDiskTimeout)
	}
	return false
}

func (s *Send) spareWait() *FlushWait {
	if n := len(s.waits); n > 0 {
		w := s.waits[n-1]
		s.waits = s.waits[:n-1]
		return w
	}
	return &FlushWait{send: s}
}

// Loop is where the waiting connection lives; waiters are posted to each loop once.
func (w *FlushWait) Loop() *eventloop.Loop { return w.loop }

// Released notes how the wait ended and gives what is to be posted.
func (w *FlushWait) Released(reached bool) eventloop.Posted {
	w.reached = reached
	return eventloop.Posted{To: w.ref, Task: w}
}

// Run answers on the connection's own loop.
func (w *FlushWait) Run(c *eventloop.Conn) {
	s := w.send
	if c != nil {
		if !w.reached {
			w.head.Code = int32(remoting.FlushDiskTimeout) // stored, but not known to be on disk
		}
		s.answer(c, w.head, &w.entry, w.uniq)
	}
	if len(s.waits) < waitsSpareMax {
		s.waits = append(s.waits, w)
	}
}

// waitsSpareMax bounds the FlushWaits that a loop keeps for later.
const waitsSpareMax = 8192
