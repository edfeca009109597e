// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strings"
	"sync"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	// batchTarget is the size at which a batch is sent; the brokers' limit is 4 MiB by default.
	batchTarget = 1 << 20
	// batchesAtOnce bounds how many queues one SendBatch writes to at the same time.
	batchesAtOnce = 16
)

// group is the part of a SendBatch that must go to one queue, in order.
type group struct {
	topic string
	key   string // ordering key
	queue Queue  // explicit queue
}

// SendBatch sends messages in as few requests as their topics, queues and sizes allow, and waits.
// Results and errors have the order of ms, one for each message; a result counts only where its
// error is nil. Messages of one topic without queue and ordering key share a queue for each
// request. Delayed messages and those too large for a batch are sent singly. Bodies in a batch are
// not compressed.
func (p *Producer) SendBatch(ctx context.Context, ms ...*Message) ([]SendResult, []error) {
	results, errs := make([]SendResult, len(ms)), make([]error, len(ms))
	groups := map[group][]int{}
	var order []group
	for i, m := range ms {
		if errs[i] = m.check(); errs[i] != nil {
			continue
		}
		g := group{topic: m.Topic, key: m.OrderingKey}
		if m.Queue != nil {
			g = group{topic: m.Topic, queue: *m.Queue}
		}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], i)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, batchesAtOnce)
	for _, g := range order {
		slots <- struct{}{}
		wg.Go(func() {
			p.sendGroup(ctx, ms, groups[g], results, errs)
			<-slots
		})
	}
	wg.Wait()
	return results, errs
}

// sendGroup sends the messages with the given indexes, one request after the other.
func (p *Producer) sendGroup(
	ctx context.Context, ms []*Message, indexes []int, results []SendResult, errs []error,
) {
	var body []byte
	var ids []string
	var members []int
	flush := func() {
		if len(members) == 0 {
			return
		}
		p.sendChunk(ctx, ms[members[0]], body, ids, members, results, errs)
		body, ids, members = nil, nil, nil
	}
	for _, i := range indexes {
		m := ms[i]
		id := string(p.client.ids.Append(nil))
		props, err := m.properties(id)
		if err != nil {
			errs[i] = err
			continue
		}
		size := record.BatchEntrySize(m.Body, props)
		if m.timed() || size > batchTarget {
			flush()
			results[i], errs[i] = p.Send(ctx, m)
			continue
		}
		if len(body)+size > batchTarget {
			flush()
		}
		body = record.AppendBatchEntry(body, 0, m.Body, props)
		ids = append(ids, id)
		members = append(members, i)
	}
	if len(members) == 1 {
		i := members[0]
		results[i], errs[i] = p.Send(ctx, ms[i])
		return
	}
	flush()
}

// sendChunk sends one batch and spreads its outcome over its messages.
func (p *Producer) sendChunk(
	ctx context.Context, first *Message, body []byte, ids []string, members []int,
	results []SendResult, errs []error,
) {
	r, offsetIDs, err := p.sendBatchOp(ctx, first, body, ids)
	for at, i := range members {
		if err != nil {
			errs[i] = err
			continue
		}
		results[i] = r
		results[i].ID = ids[at]
		results[i].Offset += int64(at)
		if len(offsetIDs) == len(members) {
			results[i].OffsetID = offsetIDs[at]
		}
	}
}

func (p *Producer) sendBatchOp(
	ctx context.Context, first *Message, body []byte, ids []string,
) (SendResult, []string, error) {
	if err := p.buffer.enter(); err != nil {
		return SendResult{}, nil, err
	}
	defer p.buffer.leave()
	props := record.AppendProperty(nil, propUniqueID, p.client.ids.Append(nil))
	props = record.AppendProperty(props, propWait, "true")
	op := p.newOp(first.Topic, props, 0)
	op.code, op.header.Batch = remoting.SendBatchMessage, true
	op.body, op.ids = body, ids
	if first.Queue != nil || first.OrderingKey != "" || !spreads(p.cfg.selector) {
		op.message, op.once = first, true
	}
	r, err := p.send(ctx, op)
	return r, strings.Split(r.OffsetID, ","), err
}
