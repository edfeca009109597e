// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// asks is what one slice of a step asks producers, and the memory for it, which is used again.
type asks struct {
	list    []asking
	props   []byte // properties of drafts
	records []byte // of the questions
	checks  []Check
}

type asking struct {
	to    Producer
	check Check
}

// asksKept is how many bytes of memory are kept from slice to slice.
const asksKept = 256 << 10

// draft is what is stored for a plan. Its properties are valid until send.
func (a *asks) draft(p *plan) (d record.Draft) {
	times := p.half.times
	if p.action == actAsk {
		times++
	}
	a.props, d = p.half.renewed(a.props, times)
	if p.action == actGiveUp {
		d.Topic, d.QueueID = []byte(protocol.TransCheckMaxTimeTopic), 0
		return d
	}
	start := len(a.props) - len(d.Properties)
	a.props = record.AppendProperty(a.props, propMoved, strconv.FormatInt(p.half.offset, 10))
	d.Properties = a.props[start:len(a.props):len(a.props)]
	return d
}

// add notes the question about a half message that was stored again.
func (a *asks) add(p *plan, e *storage.Entry, nowMS int64) {
	d := e.Draft
	d.Topic, d.QueueID = p.half.topic, p.half.queue
	start := len(a.props)
	a.props = record.DeleteProperty(a.props, d.Properties, propMoved)
	d.Properties = a.props[start:]
	start, size := len(a.records), d.Size()
	a.records = slices.Grow(a.records, size)[:start+size]
	made := a.records[start : start+size : start+size]
	d.Encode(made, record.Place{Queue: e.QueueOffset, Physical: e.At, StoreMS: nowMS})
	unique, _ := record.Property(d.Properties, propUniqueKey)
	a.list = append(a.list, asking{p.to, Check{
		Offset: int64(e.QueueOffset), At: e.At, UniqueKey: string(unique), StoreHost: d.StoreHost,
		Record: made,
	}})
}

// send asks each producer once for all that it is to be asked, and forgets the questions.
func (a *asks) send() {
	for len(a.list) > 0 {
		to, rest := a.list[0].to, a.list[:0]
		a.checks = a.checks[:0]
		for _, x := range a.list {
			if x.to == to {
				a.checks = append(a.checks, x.check)
			} else {
				rest = append(rest, x)
			}
		}
		to.Ask(a.checks)
		clear(a.list[len(rest):])
		a.list = rest
	}
	clear(a.checks)
	a.props, a.records = a.props[:0], a.records[:0]
	if cap(a.props)+cap(a.records) > asksKept {
		a.props, a.records = nil, nil
	}
}
