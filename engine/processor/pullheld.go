// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"time"

	"github.com/skylarkmq/skylark/engine/longpoll"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/zerocopy"
)

// heldPull is a pull that waits for its queue. It owns copies of what the request borrowed and is
// used again by its loop. Woken, it travels to that loop as a task.
type heldPull struct {
	hold longpoll.Hold
	pull *Pull
	ref  eventloop.Ref

	req       protocol.PullRequest // Group and Topic lie in names
	names     []byte
	head      remoting.Head
	codes     []int32
	all       bool
	filter    storage.Filter
	topicFlag int32
	config    *protocol.SubscriptionGroupConfig
	due       bool
}

// heldSpareMax bounds the heldPulls that a loop keeps for later.
const heldSpareMax = 4096

// hold parks the pull that has just found nothing. False: answer it now.
func (p *Pull) hold(c *eventloop.Conn, call *pulled) bool {
	wait := min(time.Duration(call.req.SuspendMS)*time.Millisecond, p.HoldMax)
	if call.req.SuspendMS > p.HoldMax.Milliseconds() {
		wait = p.HoldMax // also where the product above would overflow
	}
	if !p.LongPolling {
		wait = p.ShortPolling
	}
	h := p.copyHeld(c, call)
	h.hold.Deadline = p.Now().Add(wait)
	if !p.park(h) {
		p.giveBack(h)
		return false
	}
	return true
}

// copyHeld copies what a pull needs that outlives its command.
func (p *Pull) copyHeld(c *eventloop.Conn, call *pulled) *heldPull {
	h := p.spareHeld()
	h.ref, h.head = c.Ref(), call.head
	h.names = append(append(h.names[:0], call.req.Group...), call.req.Topic...)
	h.req = *call.req
	n := len(call.req.Group)
	h.req.Group, h.req.Topic = h.names[:n:n], h.names[n:]
	h.req.Subscription, h.req.ExpressionType = nil, nil
	h.codes, h.all = append(h.codes[:0], call.codes...), call.codes == nil
	h.filter = call.filter
	h.topicFlag, h.config = call.topicFlag, call.config
	return h
}

// holdOn parks a woken pull again: what came did not carry its tags. It goes on waiting from where
// the scan ended, until its first deadline.
func (p *Pull) holdOn(h *heldPull) bool {
	h.req.QueueOffset = int64(p.res.Next)
	return p.park(h)
}

// park puts h into the table; when its queue has grown meanwhile, it is served at once.
func (p *Pull) park(h *heldPull) bool {
	h.hold.From, h.due = h.req.QueueOffset, false
	parked, grown := p.Held.Park(h.req.Topic, h.req.QueueID, &h.hold, func() int64 {
		_, end, _ := p.Store.QueueBounds(h.req.Topic, h.req.QueueID)
		return int64(end)
	})
	if grown {
		h.ref.Post(h)
		return true
	}
	return parked
}

func (p *Pull) spareHeld() *heldPull {
	if n := len(p.spare); n > 0 {
		h := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return h
	}
	h := &heldPull{pull: p}
	h.hold.Waiter = h
	return h
}

// Wake is called by the table, on any goroutine.
func (h *heldPull) Wake(due bool) {
	h.due = due
	h.ref.Post(h)
}

// Run reads again on the connection's own loop, without committing and without a second hold. Many may
// be woken at once: those of a connection that has too much unsent wait until it has less.
func (h *heldPull) Run(c *eventloop.Conn) {
	p := h.pull
	if c != nil {
		if c.Full() {
			c.Later(h)
			return
		}
		call := h.call()
		if p.serve(c, &call, h) {
			return
		}
	}
	p.giveBack(h)
}

// call is the pull as it was when it was copied.
func (h *heldPull) call() pulled {
	call := pulled{
		req: &h.req, head: h.head, codes: h.codes, filter: h.filter, topicFlag: h.topicFlag,
		config: h.config,
	}
	if h.all {
		call.codes = nil
	}
	return call
}

// giveBack keeps h for the next pull that waits.
func (p *Pull) giveBack(h *heldPull) {
	h.config, h.filter = nil, nil
	if len(p.spare) < heldSpareMax {
		p.spare = append(p.spare, h)
	}
}

// coldPull is an answer whose bytes are read from the disk first.
type coldPull struct {
	pull    *Pull
	head    remoting.Head
	header  protocol.PullResponse
	regions []zerocopy.Region
	bytes   int
	err     error
}

// answerCold lets the reader pool bring the regions into the page cache, then sends them. When the
// pool is full the client is told to come again: the loop never waits for the disk.
func (p *Pull) answerCold(c *eventloop.Conn, call *pulled) {
	r := call.req
	cold := &coldPull{
		pull: p, head: call.head, header: p.header(call), bytes: p.res.Bytes,
		regions: append([]zerocopy.Region(nil), p.res.Regions...),
	}
	messages := p.res.Messages
	p.res.Regions = p.res.Regions[:0]
	ref := c.Ref()
	store := p.Store
	handed := p.ReadCold(0, func() {
		cold.err = store.Warm(cold.regions)
		ref.Post(cold)
	})
	if !handed {
		cold.release()
		p.res = storage.ReadResult{
			Next: p.read.From, Min: p.res.Min, Max: p.res.Max, Regions: p.res.Regions[:0],
		}
		p.answer(c, call, remoting.PullRetryImmediately, "MESSAGE_WAS_REMOVING")
		return
	}
	p.Counters.Got(r.Group, r.Topic, messages, cold.bytes)
	p.Offsets.SetPulled(r.Group, r.Topic, r.QueueID, cold.header.NextOffset)
}

func (d *coldPull) release() {
	for i := range d.regions {
		d.regions[i].Release()
	}
}

// Run sends the answer on the connection's own loop.
func (d *coldPull) Run(c *eventloop.Conn) {
	switch {
	case c == nil:
		d.release()
	case d.err != nil:
		d.release()
		d.pull.refuse(c, d.head, d.err, 0)
	default:
		e := remoting.Begin(c.Reserve(), d.head)
		e.Remark("FOUND")
		d.header.AppendFields(&e)
		c.Commit(e.EndRegions(d.bytes))
		c.WriteRegions(d.regions)
	}
}
