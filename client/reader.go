// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Reader hands out messages at the caller's pace. It reads the queues given to Assign, or with
// WithSubscription the queues of the subscribed topics: a share of them when it has a group, which
// it divides with the other members of the group, Java's included; all of them without a group or
// with WithBroadcast. It is safe for concurrent use, though messages of one queue keep their order
// only for one caller.
//
// A message is done when the next Poll or iteration asks for more. Positions of what is done are
// stored for the group every 5 s, before a queue goes to another member, and by Close; a reader
// without a group stores none.
//
// Goroutines: one for each queue that fetches, one that stores positions, and with subscriptions
// one that divides queues. Close ends them.
type Reader struct {
	desk  // client and group; constant
	cfg   consumerConfig
	local OffsetStore // broadcasting; nil: positions are stored at brokers

	balancer *balancer          // nil without subscriptions
	stop     context.CancelFunc // ends the balancer
	divided  chan struct{}      // closed when it has ended
	storing  chan struct{}      // capacity 1: who stores positions; an older one must not overtake
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup

	// Guards what follows, and the fields of each fetcher that say so. Never held across I/O.
	mu        sync.Mutex
	closed    bool
	queues    map[Queue]*fetcher
	ready     []*fetcher      // with messages, in turn
	arrived   chan struct{}   // closed and replaced when messages or errors come
	errs      []error         // for Poll
	positions map[Queue]int64 // of assigned queues that went away
	paused    map[Queue]bool
	allStop   bool // Pause without a queue
	closing   atomic.Bool
	done      chan struct{}
	failure   error
}

// NewReader makes a reader. Without subscriptions it waits for Assign. An empty group is allowed:
// it stores no positions and shows in no broker's list of groups. A Client can have one consumer or
// subscribed reader of a group at a time.
func (c *Client) NewReader(group string, opts ...ConsumerOption) (*Reader, error) {
	cfg := defaultConsumerConfig()
	for _, o := range opts {
		o(&cfg)
	}
	err := cfg.check()
	if group != "" {
		err = errors.Join(checkGroup(group), err)
	}
	if len(cfg.consumerOnly) > 0 {
		err = errors.Join(err, fmt.Errorf("a reader has no handlers: leave %s out",
			strings.Join(cfg.consumerOnly, ", ")))
	}
	if cfg.broadcast && group == "" {
		err = errors.Join(err, errors.New("broadcasting needs a group, positions are kept by it"))
	}
	if cfg.broadcast && cfg.store == nil && err == nil {
		cfg.store, err = localOffsets(cfg.broadcastName)
	}
	if err != nil {
		return nil, fmt.Errorf("client: options of reader: %w", err)
	}
	r := &Reader{
		desk: desk{c, group}, cfg: cfg, local: cfg.store, queues: map[Queue]*fetcher{},
		arrived: make(chan struct{}), positions: map[Queue]int64{}, paused: map[Queue]bool{},
		done: make(chan struct{}), divided: make(chan struct{}), storing: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	var rounds context.Context
	rounds, r.stop = context.WithCancel(r.ctx)
	if len(cfg.subscriptions) > 0 {
		r.balancer = newBalancer(r.desk, r, &r.cfg)
	}
	if err := c.join(r); err != nil {
		r.cancel(err)
		return nil, err
	}
	if group != "" {
		r.wg.Go(r.commitLoop)
		c.wakeHeartbeats()
	}
	if r.balancer == nil {
		close(r.divided)
		return r, nil
	}
	r.wg.Go(func() {
		defer close(r.divided)
		r.balancer.run(rounds)
	})
	return r, nil
}

// consumesAs is the group whose queues a reader shares; empty when it shares none.
func (r *Reader) consumesAs() string {
	if r.balancer == nil {
		return ""
	}
	return r.group
}

func (r *Reader) balance() *balancer { return r.balancer }

// brokerAsks implements asked: changed members (40) are all that concerns a reader.
func (r *Reader) brokerAsks(_ string, cmd *remoting.Command) (*invoke.Response, bool) {
	if cmd.Request() != remoting.NotifyConsumerIDsChanged || r.balancer == nil || r.group == "" {
		return nil, false
	}
	return nil, wokenBy(cmd, r.client.onWire(r.group), r.balancer)
}

// topics implements sharer.
func (r *Reader) topics() []string {
	var list []string
	for _, s := range r.cfg.subscriptions {
		list = append(list, s.topic)
	}
	return list
}

// pullGroup is the group that pulls name. Readers without one use that of RocketMQ's tools, which
// every broker knows.
func (r *Reader) pullGroup() string {
	if r.group == "" {
		return protocol.ToolsConsumerGroup
	}
	return r.client.onWire(r.group)
}

func (r *Reader) beatInto(h *protocol.HeartbeatData) {
	if r.group == "" {
		return
	}
	d := protocol.ConsumerData{
		GroupName: r.client.onWire(r.group), ConsumeType: protocol.ConsumeActively,
		MessageModel: protocol.Clustering, ConsumeFromWhere: r.cfg.start.where(),
		SubscriptionDataSet: []protocol.SubscriptionData{},
	}
	if r.cfg.broadcast {
		d.MessageModel = protocol.Broadcasting
	}
	for _, s := range r.cfg.subscriptions {
		data := s.data
		data.Topic = r.client.onWire(data.Topic)
		d.SubscriptionDataSet = append(d.SubscriptionDataSet, data)
	}
	for _, topic := range r.assignedTopics() {
		// Without these, brokers would drop what other members of the group subscribe to.
		if s, err := All().subscribe(topic); err == nil {
			s.data.Topic = r.client.onWire(topic)
			d.SubscriptionDataSet = append(d.SubscriptionDataSet, s.data)
		}
	}
	h.ConsumerDataSet = append(h.ConsumerDataSet, d)
}

// assignedTopics are those of Assign.
func (r *Reader) assignedTopics() []string {
	if r.balancer != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var topics []string
	for q := range r.queues {
		if !slices.Contains(topics, q.Topic) {
			topics = append(topics, q.Topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// Assign replaces the queues that are read. Queues that stay keep their position. ErrUnsupported
// with subscriptions, ErrClosed after Close.
func (r *Reader) Assign(qs ...Queue) error {
	if len(r.cfg.subscriptions) > 0 {
		return fmt.Errorf("client: assigning queues to a reader with subscriptions: %w", ErrUnsupported)
	}
	for _, q := range qs {
		if q.Topic == "" || q.Broker == "" || q.ID < 0 {
			return fmt.Errorf("client: assigning queue %s: %w", q, ErrNotAssigned)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errReaderClosed()
	}
	for q, f := range r.queues {
		if !slices.Contains(qs, q) {
			r.dropLocked(f)
		}
	}
	for _, q := range qs {
		r.addLocked(q, protocol.SubscriptionData{SubString: protocol.SubscribeAll}, r.cfg.start)
	}
	if r.group != "" {
		r.client.wakeHeartbeats()
	}
	return nil
}

func errReaderClosed() error { return fmt.Errorf("client: reader: %w", ErrClosed) }

// addLocked starts reading a queue that is not read yet.
func (r *Reader) addLocked(q Queue, sub protocol.SubscriptionData, start Start) {
	if r.closed || r.queues[q] != nil {
		return
	}
	f := newFetcher(r, q, sub, start)
	if at, ok := r.positions[q]; ok {
		f.next, f.handed, f.doneAt = at, at, at
	}
	r.queues[q] = f
	r.wg.Go(f.run)
}

// dropLocked stops reading a queue and remembers where.
func (r *Reader) dropLocked(f *fetcher) {
	delete(r.queues, f.queue)
	r.ready = slices.DeleteFunc(r.ready, func(o *fetcher) bool { return o == f })
	if f.doneAt >= 0 {
		r.positions[f.queue] = f.doneAt
	}
	f.stopLocked()
}

// Poll waits for 1..limit messages, of one queue as long as it has some. They count as done at the
// next Poll. It fails with the error of ctx, which also says why when there was no queue to read,
// with ErrClosed, a *DecodeError for a record that cannot be handed out, or a *BrokerError that
// waiting does not cure; polling on is possible after the last two.
func (r *Reader) Poll(ctx context.Context, limit int) ([]*Received, error) {
	if limit < 1 {
		return nil, fmt.Errorf("client: polling for %d messages: %w", limit, ErrUnsupported)
	}
	r.mu.Lock()
	for _, f := range r.queues {
		f.doneAt = f.handed
	}
	r.mu.Unlock()
	ms, err := r.take(ctx, limit)
	if hooks := &r.client.cfg.hooks; len(hooks.receive) > 0 {
		ctx := context.WithValue(ctx, groupKey{}, nil) // a handler's, when that polls
		for _, m := range ms {
			hooks.onReceive(ctx, m)
		}
	}
	return ms, err
}

// take waits for messages without marking anything as done.
func (r *Reader) take(ctx context.Context, limit int) ([]*Received, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, r.inVain(err)
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, errReaderClosed()
		}
		if ms := r.takeLocked(limit); len(ms) > 0 {
			r.mu.Unlock()
			return ms, nil
		}
		if len(r.errs) > 0 {
			err := r.errs[0]
			r.errs = r.errs[1:]
			r.mu.Unlock()
			return nil, err
		}
		arrived := r.arrived
		r.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
}

// inVain adds to the end of a wait why there was nothing to wait for.
func (r *Reader) inVain(err error) error {
	r.mu.Lock()
	queues := len(r.queues)
	r.mu.Unlock()
	switch {
	case queues > 0:
	case r.balancer == nil:
		return fmt.Errorf("%w; client: %w (Assign says what to read)", err, ErrNotAssigned)
	default:
		if trouble := r.balancer.trouble.Load(); trouble != nil {
			return fmt.Errorf("%w; %w", err, advised(*trouble))
		}
	}
	return err
}

func (r *Reader) takeLocked(limit int) []*Received {
	var ms []*Received
	for len(ms) < limit && len(r.ready) > 0 {
		f := r.ready[0]
		got := f.takeLocked(limit - len(ms))
		ms = append(ms, got...)
		if len(f.buffer) == 0 {
			r.ready = r.ready[1:]
		} else if len(ms) >= limit {
			r.ready = append(r.ready[1:], f) // the next poll begins with another queue
		}
	}
	return ms
}

// wakeLocked tells pollers that something came.
func (r *Reader) wakeLocked() {
	close(r.arrived)
	r.arrived = make(chan struct{})
}

// report has the next Poll fail with err. A few are kept; more of them add nothing.
func (r *Reader) report(err error) {
	const errsMax = 16
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < errsMax && !r.closed {
		r.errs = append(r.errs, err)
		r.wakeLocked()
	}
}

// Messages yields until Close, or until ctx ends: then the last pair is nil and its error. A
// message counts as done when the loop asks for the next; the one at which the loop is left is
// handed out again. Errors are those of Poll; the loop decides whether to go on.
func (r *Reader) Messages(ctx context.Context) iter.Seq2[*Received, error] {
	return func(yield func(*Received, error) bool) {
		for {
			ms, err := r.Poll(ctx, 1)
			if errors.Is(err, ErrClosed) {
				return
			}
			if err != nil {
				if !yield(nil, err) || ctx.Err() != nil {
					return
				}
				continue
			}
			if !yield(ms[0], nil) {
				r.putBack(ms[0])
				return
			}
		}
	}
}

// putBack returns a message that was handed out last of its queue.
func (r *Reader) putBack(m *Received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.queues[m.Source]
	if f == nil || f.handed != m.Offset+1 {
		return
	}
	f.handed = m.Offset
	f.buffer = append([]*Received{m}, f.buffer...)
	f.bytes += len(m.Body)
	if !slices.Contains(r.ready, f) && !r.pausedLocked(f.queue) {
		r.ready = append([]*fetcher{f}, r.ready...)
	}
}

// Commit stores positions at the brokers: behind ms, or behind all that is done when there is none.
// ErrUnsupported without a group, ErrNotAssigned for a message of a queue that is not read.
func (r *Reader) Commit(ctx context.Context, ms ...*Received) error {
	if r.group == "" {
		return fmt.Errorf("client: a reader without a group stores no positions: %w", ErrUnsupported)
	}
	if err := r.beginStore(ctx); err != nil {
		return err
	}
	defer r.endStore()
	at := map[Queue]int64{}
	r.mu.Lock()
	for _, m := range ms {
		f := r.queues[m.Source]
		if f == nil {
			r.mu.Unlock()
			return fmt.Errorf("client: commit: queue %s: %w", m.Source, ErrNotAssigned)
		}
		at[m.Source] = max(at[m.Source], m.Offset+1)
		f.doneAt = max(f.doneAt, m.Offset+1) // or Close would store the position before it
	}
	if len(ms) == 0 {
		for q, f := range r.queues {
			if f.doneAt >= 0 && f.doneAt != f.committed {
				at[q] = f.doneAt
			}
		}
	}
	r.mu.Unlock()
	return r.storeAll(ctx, at)
}

// beginStore waits until nobody else stores positions.
func (r *Reader) beginStore(ctx context.Context) error {
	select {
	case r.storing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("client: reader %s: storing positions: %w", r.group, context.Cause(ctx))
	}
}

func (r *Reader) endStore() { <-r.storing }

// storeAll stores positions, in the local store when broadcasting. Between beginStore and endStore.
func (r *Reader) storeAll(ctx context.Context, at map[Queue]int64) error {
	if len(at) == 0 {
		return nil
	}
	stored := func(q Queue, offset int64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if f := r.queues[q]; f != nil {
			f.committed = offset
		}
	}
	if r.local != nil {
		if err := r.local.Save(ctx, r.group, at); err != nil {
			return fmt.Errorf("client: reader %s: storing positions: %w", r.group, err)
		}
		for q, offset := range at {
			stored(q, offset)
		}
		return nil
	}
	queues := make([]Queue, 0, len(at))
	for q := range at {
		queues = append(queues, q)
	}
	sortQueues(queues)
	var mu sync.Mutex
	var errs []error
	where := func(q Queue) brokerTopic { return brokerTopic{q.Broker, q.Topic} }
	oneFirst(queues, where, func(q Queue) {
		if err := r.store(ctx, q, at[q]); err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
			return
		}
		stored(q, at[q])
	})
	return errors.Join(errs...)
}

func (r *Reader) commitLoop() {
	for {
		t := time.NewTimer(jitter(r.cfg.commitEvery))
		select {
		case <-t.C:
		case <-r.ctx.Done():
			t.Stop()
			return
		}
		ctx, cancel := context.WithTimeout(r.ctx, r.client.cfg.callTimeout)
		if err := r.Commit(ctx); err != nil && r.ctx.Err() == nil {
			r.client.cfg.logger.Warn("storing positions", "group", r.group, "err", err)
		}
		cancel()
	}
}

// Close commits what is done, unregisters the group and waits for the goroutines. It may be called
// again and concurrently; all calls return the same error, but for one whose ctx ends before.
func (r *Reader) Close(ctx context.Context) error {
	if !r.closing.CompareAndSwap(false, true) {
		if err := awaitClose(ctx, "reader "+r.group, r.done); err != nil {
			return err
		}
		return r.failure
	}
	r.stop()
	<-r.divided
	r.callBack(context.WithoutCancel(ctx), r.cfg.onRevoked, r.shared())
	if r.group != "" {
		r.failure = r.Commit(ctx)
	}
	r.mu.Lock()
	r.closed = true
	for _, f := range r.queues {
		f.stopLocked()
	}
	r.wakeLocked()
	r.mu.Unlock()
	r.cancel(ErrClosed)
	r.wg.Wait()
	r.client.leave(r)
	if r.group != "" {
		r.client.unregister(context.WithoutCancel(ctx), "", r.client.onWire(r.group))
	}
	close(r.done)
	return r.failure
}

// Pause stops fetching and handing out messages of queues, of all when there is none. It holds also
// for queues that are not assigned yet.
func (r *Reader) Pause(queues ...Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(queues) == 0 {
		r.allStop = true
	}
	for _, q := range queues {
		r.paused[q] = true
	}
	r.ready = slices.DeleteFunc(r.ready, func(f *fetcher) bool { return r.pausedLocked(f.queue) })
}

// Resume undoes Pause: for queues, or for everything when there is none.
func (r *Reader) Resume(queues ...Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(queues) == 0 {
		r.allStop = false
		clear(r.paused)
	}
	for _, q := range queues {
		delete(r.paused, q)
	}
	for q, f := range r.queues {
		if !r.pausedLocked(q) {
			r.listLocked(f)
			f.signal()
		}
	}
	r.wakeLocked()
}

func (r *Reader) pausedLocked(q Queue) bool { return r.allStop || r.paused[q] }

// listLocked puts a queue with messages in line.
func (r *Reader) listLocked(f *fetcher) {
	if len(f.buffer) > 0 && !r.pausedLocked(f.queue) && !slices.Contains(r.ready, f) {
		r.ready = append(r.ready, f)
	}
}
