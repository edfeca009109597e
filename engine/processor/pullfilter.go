// SPDX-License-Identifier: Apache-2.0

// The SQL92 part of PULL_MESSAGE and LITE_PULL_MESSAGE (RocketMQ ExpressionMessageFilter and
// ExpressionForRetryMessageFilter). Messages are selected while the queue is scanned; no bitmaps are
// written or read (enableCalcFilterBitMap is off in RocketMQ as well).

package processor

import (
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/engine/filter"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// registeredFilter takes the expression that the group's heartbeats registered.
func (p *Pull) registeredFilter(call *pulled) error {
	r := call.req
	data := p.Filters.Get(r.Topic, r.Group)
	switch {
	case data == nil:
		return remoting.Errorf(remoting.FilterDataNotExist,
			"The broker's consumer filter data is not exist!Your expression may be wrong!")
	case data.ClientVersion < r.SubVersion:
		return remoting.Errorf(remoting.FilterDataNotLatest,
			"the consumer's consumer filter data not latest")
	case !p.PropertyFilter:
		return errNoSQL
	}
	call.filter = data.Compiled
	if p.FilterRetry && strings.HasPrefix(string(r.Topic), protocol.RetryPrefix) {
		group := slices.Clone(r.Topic[len(protocol.RetryPrefix):]) // the pull may be held
		call.filter = &retryFilter{filters: p.Filters, group: group}
	}
	return nil
}

// ownFilter compiles the expression that came with the pull.
func (p *Pull) ownFilter(call *pulled) error {
	r := call.req
	known := string(r.ExpressionType) == protocol.ExpressionSQL92
	if !known && !p.PropertyFilter {
		return remoting.Errorf(remoting.SystemError,
			"The broker does not support consumer to filter message by %s", r.ExpressionType)
	}
	if len(r.Subscription) == 0 || !known {
		return errBadSubscription
	}
	e, err := p.Filters.Compile(string(r.Subscription))
	if err != nil {
		return remoting.Errorf(remoting.SubscriptionParseFailed,
			"parse the consumer's subscription failed: %v", err)
	}
	if !p.PropertyFilter {
		return errNoSQL
	}
	call.filter = e
	return nil
}

// retryFilter applies to each message of a retry topic the group's filter on the topic it came from.
type retryFilter struct {
	filters *filter.Manager
	group   []byte
}

// Match lets messages of topics without a filter pass.
func (f *retryFilter) Match(props []byte) bool {
	topic, _ := record.Property(props, propRetryTopic)
	data := f.filters.Get(topic, f.group)
	return data == nil || data.Compiled.Match(props)
}

// readAside lets the reader pool read where units of the queue may have to come from the disk, or the
// log, since a filter looks at every record on the way. When the pool is full the client is told to come
// again.
func (p *Pull) readAside(c *eventloop.Conn, call *pulled, held *heldPull) {
	r := call.req
	at := record.QueueOffset(r.QueueOffset)
	a := &asidePull{pull: p, held: held}
	if held == nil {
		a.held, a.first = p.copyHeld(c, call), true
	}
	store := p.Store
	handed := p.ReadCold(0, func() {
		of := a.held.call()
		a.read = readRequest(&of)
		store.Read(&a.read, &a.res)
		if a.res.Cold {
			a.err = store.Warm(a.res.Regions)
			a.res.Cold = false
		}
		a.held.ref.Post(a)
	})
	if handed {
		return
	}
	p.res = storage.ReadResult{Next: at, Regions: p.res.Regions[:0]}
	p.res.Min, p.res.Max, _ = p.Store.QueueBounds(r.Topic, r.QueueID)
	p.answer(c, call, remoting.PullRetryImmediately, "NO_MATCHED_MESSAGE")
	p.giveBack(a.held)
}

// asidePull is a whole read on the reader pool.
type asidePull struct {
	pull  *Pull
	held  *heldPull
	first bool // it was not held before
	read  storage.ReadRequest
	res   storage.ReadResult
	err   error
}

// Run goes on where serve would have, on the connection's own loop.
func (a *asidePull) Run(c *eventloop.Conn) {
	p := a.pull
	waits := false
	if c == nil || a.err != nil {
		for i := range a.res.Regions {
			a.res.Regions[i].Release()
		}
	}
	if c != nil {
		call := a.held.call()
		held := a.held
		if a.first {
			held = nil
		}
		if a.err != nil {
			p.refuse(c, call.head, a.err, 0)
		} else {
			p.read, p.res = a.read, a.res
			waits = p.finish(c, &call, held) && held != nil
		}
	}
	if !waits {
		p.giveBack(a.held)
	}
}
