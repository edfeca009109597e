// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// look compares one queue with the model.
func (h *history) look() error {
	for id := range h.lines {
		if h.cfg.SyncFlush { // what is not on disk is not visible
			if err := h.store.Flush(); err != nil {
				return nil //nolint:nilerr // the disk has failed
			}
			if !h.await(func(i storage.Info) bool { return i.Dispatched >= i.Wrote }) {
				return nil
			}
		}
		return h.compare(id, len(h.lines[id].slots))
	}
	return nil
}

// settle compares the whole store with the model after a crash, and makes the model what is there.
func (h *history) settle() error {
	low := h.store.Info().Min
	if low > h.logMin {
		return fmt.Errorf("the log begins at %d, nothing behind %d was deleted", low, h.logMin)
	}
	for _, topic := range h.store.Topics() {
		for _, queue := range h.store.Queues(topic) {
			id := storage.QueueID{Topic: topic, Queue: queue}
			if _, hi, _ := h.store.QueueBounds([]byte(topic), queue); hi > 0 && h.lines[id].slots == nil {
				return fmt.Errorf("queue %s has %d messages and was deleted or never there", id, hi)
			}
		}
	}
	for id, l := range h.lines {
		_, end, _ := h.store.QueueBounds([]byte(id.Topic), id.Queue)
		hi := int(end)
		if l.gone && hi == 0 {
			h.mu.Lock()
			delete(h.lines, id)
			h.mu.Unlock()
			continue
		}
		if hi < l.least || hi > len(l.slots) {
			return fmt.Errorf("queue %s ends at %d, want between %d and %d (log %d to %d)", id, hi, l.least,
				len(l.slots), h.store.Info().Min, h.store.Info().Wrote)
		}
		l.slots, l.least, l.gone = l.slots[:hi:hi], hi, false
		h.mu.Lock()
		h.lines[id] = l
		h.mu.Unlock()
		if err := h.compare(id, hi); err != nil {
			return err
		}
	}
	return h.keys()
}

// compare reads what a queue has below hi: from the first message that the log still has on, every
// one is there, as it was sent.
func (h *history) compare(id storage.QueueID, hi int) error {
	slots := h.lines[id].slots
	low, end, _ := h.store.QueueBounds([]byte(id.Topic), id.Queue)
	if int(end) != hi {
		return fmt.Errorf("queue %s ends at %d, want %d", id, end, hi)
	}
	logMin := h.store.Info().Min
	for i := int(low) - 1; i >= 0 && slots[i].at >= logMin && slots[i].end > 0; i-- {
		return fmt.Errorf("queue %s begins at %d and hides the message before it, at %d of a log from %d",
			id, low, slots[i].at, logMin)
	}
	var res storage.ReadResult
	for at := int(low); at < hi; {
		h.store.Read(&storage.ReadRequest{
			Topic: []byte(id.Topic), Queue: id.Queue, From: record.QueueOffset(at), MaxMessages: 32,
		}, &res)
		got, err := recordBodies(&res)
		if err != nil {
			return fmt.Errorf("queue %s at %d: %w", id, at, err)
		}
		if len(got) == 0 || int(res.Next) != at+len(got) {
			return fmt.Errorf("queue %s (%d to %d) at %d: %s, %d messages, next %d", id, low, hi, at,
				res.Status, len(got), res.Next)
		}
		h.mu.Lock()
		for i, v := range got {
			if v.text != slots[at+i].text {
				h.mu.Unlock()
				return fmt.Errorf("queue %s offset %d holds %.40q, want %.40q", id, at+i, v.text,
					slots[at+i].text)
			}
			slots[at+i].at, slots[at+i].end, slots[at+i].inner = v.at, v.end, v.inner
		}
		h.mu.Unlock()
		at += len(got)
		h.sum.checked.Add(int64(len(got)))
	}
	return nil
}

// recordBodies parses the records of a result and releases its regions.
func recordBodies(res *storage.ReadResult) (list []slot, err error) {
	defer zerocopy.ReleaseAll(res.Regions)
	for i := range res.Regions {
		for b := res.Regions[i].Mem; len(b) > 0; {
			v, err := record.Parse(b)
			if err != nil {
				return nil, err
			}
			if !v.CheckCRC() {
				return nil, fmt.Errorf("record at %d fails its check sum", v.PhysicalOffset())
			}
			at := v.PhysicalOffset()
			in := []string{string(v.Body())}
			inner := v.SysFlag()&record.SysInnerBatch != 0
			if inner {
				if in, err = innerTexts(v); err != nil {
					return nil, err
				}
			}
			for _, text := range in {
				list = append(list, slot{
					text: text, at: at, end: at + record.PhysicalOffset(v.TotalSize()), inner: inner,
				})
			}
			b = b[v.TotalSize():]
		}
	}
	return list, nil
}

// keys looks some messages up by key.
func (h *history) keys() error {
	if h.hurt() {
		return nil // the index may have stopped until the next start
	}
	for id, l := range h.lines {
		if len(l.slots) == 0 {
			continue
		}
		s := l.slots[h.r.IntN(len(l.slots))]
		if s.at < h.store.Info().Min || s.end == 0 || s.inner {
			continue
		}
		// A query does not wait long for the index, and this machine may be busy.
		h.await(func(i storage.Info) bool { return i.Indexed >= i.Dispatched })
		n := 0
		for _, key := range []string{s.text[:16], "id-" + s.text[:min(len(s.text), 20)]} {
			res, err := h.store.Query(id.Topic, key, 64, 0, 1<<60)
			if err != nil {
				return err
			}
			n += len(res.Regions)
			zerocopy.ReleaseAll(res.Regions)
		}
		if n == 0 && !h.hurt() {
			return fmt.Errorf("queue %s: the key of %.30q, at %d, finds nothing", id, s.text, s.at)
		}
	}
	return nil
}
