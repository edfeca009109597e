// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// relay is the null handler's part for loads that read: sends become records in memory, and pulls
// get them, at once or when they come. Nothing is looked up, committed or written, so that what is
// left is what the protocol and its sockets cost. It belongs to one loop.
type relay struct {
	queues  [limitQueues]relayQueue
	send    protocol.SendRequest
	pull    protocol.PullRequest
	regions []zerocopy.Region
}

// A queue keeps its last records: relayBytes of them, but at least relayLeast and at most relayMost. A
// pull of an older one gets younger ones in its place. They are as long; a reader that counts numbers
// would take them for a fault, and stays nearer to the end than this.
const (
	relayLeast = 64
	relayMost  = 4096
	relayBytes = 64 << 20
)

type relayQueue struct {
	end  int64
	last [][]byte // record of offset o at o % len(last)
	held []heldPull
}

// heldPull waits for the message at the end of its queue.
type heldPull struct {
	conn *eventloop.Conn
	head remoting.Head
}

// take makes a record of a send and hands it to the pulls that wait; it returns its offset.
func (r *relay) take(cmd *remoting.Command) (offset int64, err error) {
	if err := r.send.Decode(cmd); err != nil {
		return 0, err
	}
	q := r.queue(r.send.QueueID)
	d := record.Draft{
		Topic: r.send.Topic, QueueID: r.send.QueueID, SysFlag: r.send.SysFlag, BornMS: r.send.BornMS,
		Body: cmd.Body, Properties: r.send.Properties,
	}
	offset = q.end
	if q.last == nil {
		q.last = make([][]byte, min(max(relayBytes/d.Size(), relayLeast), relayMost))
	}
	at := &q.last[offset%int64(len(q.last))]
	*at = slices.Grow((*at)[:0], d.Size())[:d.Size()]
	d.Encode(*at, record.Place{Queue: record.QueueOffset(offset), StoreMS: r.send.BornMS})
	q.end++
	for _, p := range q.held {
		r.answer(p.conn, p.head, q, offset, 1)
	}
	q.held = q.held[:0]
	return offset, nil
}

// read answers a pull, or keeps it until there is something.
func (r *relay) read(c *eventloop.Conn, cmd *remoting.Command) error {
	if err := r.pull.Decode(cmd); err != nil {
		return err
	}
	q, from := r.queue(r.pull.QueueID), r.pull.QueueOffset
	head := cmd.Reply(remoting.Success)
	if from >= q.end {
		q.held = append(q.held, heldPull{c, head})
		return nil
	}
	r.answer(c, head, q, from, min(q.end-from, int64(r.pull.MaxMessages), relayLeast))
	return nil
}

func (r *relay) answer(c *eventloop.Conn, head remoting.Head, q *relayQueue, from, n int64) {
	size := 0
	r.regions = r.regions[:0]
	for i := range n {
		b := q.last[(from+i)%int64(len(q.last))]
		r.regions = append(r.regions, zerocopy.Bytes(b))
		size += len(b)
	}
	h := protocol.PullResponse{
		NextOffset: from + n, MaxOffset: q.end, TopicSysFlag: -1, GroupSysFlag: -1, ForbiddenType: -1,
	}
	e := remoting.Begin(c.Reserve(), head)
	h.AppendFields(&e)
	c.Commit(e.EndRegions(size))
	c.WriteRegions(r.regions)
}

// forget drops what a connection waits for.
func (r *relay) forget(c *eventloop.Conn) {
	for i := range r.queues {
		q := &r.queues[i]
		q.held = slices.DeleteFunc(q.held, func(p heldPull) bool { return p.conn == c })
	}
}

func (r *relay) queue(id int32) *relayQueue { return &r.queues[uint32(id)%limitQueues] }

// end is the offset behind the last message of the queue that a command names.
func (r *relay) end(cmd *remoting.Command) int64 {
	text, _ := cmd.Fields.Get("queueId")
	id, _ := remoting.ParseInt(text)
	return r.queue(int32(id)).end
}
