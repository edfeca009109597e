// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// Consumer hands the messages of a group's topics to a handler. Its queues are shared with the other
// members of the group, Java's push consumers included. A message is done when the handler says so;
// the positions stored for the group never pass one that is not, so what was in work when a process
// died comes again. It is safe for concurrent use.
//
// Goroutines, while it runs: up to WithConcurrency workers for all topics together, one for each
// broker that pulls, and one each that divides queues, stores positions, renews locks and watches
// the clock.
type Consumer struct {
	desk // client and group; constant

	// Constant after NewConsumer.
	cfg        consumerConfig
	retryTopic string      // empty when broadcasting
	store      OffsetStore // nil: positions are stored at brokers
	balancer   *balancer
	alarms     *alarms
	tracer     *tracer         // nil: no trace
	ctx        context.Context // ends when draining is over
	cancel     context.CancelFunc
	wg         sync.WaitGroup // everything but workers
	quit       chan struct{}  // closed by Close: Run is to end
	hurry      chan struct{}  // closed when Close may not wait any longer
	hurried    sync.Once
	finished   chan struct{} // closed when the consumer is through
	closing    sync.Once
	ending     sync.Once
	failure    error // before finished is closed

	// Guards what follows, and the fields of queues, workers and deliveries that say so. Never held
	// across I/O or a callback.
	mu       sync.Mutex
	phase    phase
	work     workload
	values   context.Context // what handlers find in their contexts
	subs     map[string]*subscription
	paused   map[string]bool
	allStop  bool // Pause without a topic
	queues   map[Queue]*queue
	leaving  map[Queue]*queue // lost, handlers may still run
	lanes    map[string]*lane // by broker name
	crew     crew
	held     int // messages fetched and not done, of all queues
	bytes    int
	crowded  []*queue // wait for held or bytes to shrink
	stats    map[string]*topicStats
	begunAt  time.Time
	renewing chan struct{} // closed when the renewal of locks that is under way has ended; nil: none
}

// workload is what Run was given.
type workload struct {
	one   Handler
	batch BatchHandler
	size  int
}

type phase uint8

const (
	fresh phase = iota
	running
	draining
	over
)

// NewConsumer makes a push-style consumer of a group. It makes no connection and takes no messages
// before Run. ErrClosed when c is closed; a Client can have one consumer or subscribed reader of a
// group at a time.
func (c *Client) NewConsumer(group string, opts ...ConsumerOption) (*Consumer, error) {
	cfg := defaultConsumerConfig()
	for _, o := range opts {
		o(&cfg)
	}
	err := errors.Join(checkGroup(group), cfg.check())
	store := cfg.store
	if cfg.broadcast && store == nil && err == nil {
		var file *FileOffsets
		if file, err = localOffsets(cfg.broadcastName); err == nil {
			store = file
		}
	}
	if err != nil {
		return nil, fmt.Errorf("client: options of consumer: %w", err)
	}
	k := &Consumer{
		desk: desk{c, group}, cfg: cfg, store: store, alarms: newAlarms(),
		quit: make(chan struct{}), hurry: make(chan struct{}), finished: make(chan struct{}),
		subs: map[string]*subscription{}, paused: map[string]bool{},
		queues: map[Queue]*queue{}, leaving: map[Queue]*queue{}, lanes: map[string]*lane{},
		stats: map[string]*topicStats{},
	}
	k.crew.cond = sync.NewCond(&k.mu)
	k.balancer = newBalancer(k.desk, k, &k.cfg)
	for _, s := range cfg.subscriptions {
		k.subs[s.topic] = &s
	}
	if !cfg.broadcast {
		k.retryTopic = protocol.RetryPrefix + group
		s, err := All().subscribe(k.retryTopic)
		if err != nil {
			return nil, fmt.Errorf("client: options of consumer: %w", err)
		}
		k.subs[k.retryTopic] = &s
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if cfg.trace != "" {
		if k.tracer, err = c.newTracer(group, "CONSUME", cfg.trace); err != nil {
			return nil, fmt.Errorf("client: options of consumer: %w", err)
		}
	}
	if err := c.join(k); err != nil {
		return nil, errors.Join(err, k.tracer.close(k.ctx))
	}
	return k, nil
}

// consumesAs is the group that a member shares queues for; empty when it does not.
func (k *Consumer) consumesAs() string { return k.group }

func (k *Consumer) balance() *balancer { return k.balancer }

// Run consumes with up to WithConcurrency calls of h at once until ctx ends or Close is called. Then
// it waits for running handlers within the drain timeout, stores positions and leaves the group,
// and returns nil when all of that worked. A filter that brokers refuse fails at once; a missing
// topic or broker trouble is tried again and logged. A consumer runs once.
func (k *Consumer) Run(ctx context.Context, h Handler) error {
	if h == nil {
		return fmt.Errorf("client: consumer %s: handler is nil: %w", k.group, ErrUnsupported)
	}
	return k.consume(ctx, workload{one: h, size: 1})
}

// RunBatch is Run with up to size messages of one queue for each call of h.
func (k *Consumer) RunBatch(ctx context.Context, size int, h BatchHandler) error {
	if h == nil || size < 1 {
		return fmt.Errorf("client: consumer %s: handler is nil, or %d messages at a time: %w",
			k.group, size, ErrUnsupported)
	}
	return k.consume(ctx, workload{batch: h, size: size})
}

func (k *Consumer) consume(ctx context.Context, w workload) error {
	k.mu.Lock()
	switch k.phase {
	case fresh:
	case running:
		k.mu.Unlock()
		return fmt.Errorf("client: consumer %s runs already: %w", k.group, ErrUnsupported)
	default:
		k.mu.Unlock()
		return fmt.Errorf("client: consumer %s: %w", k.group, ErrClosed)
	}
	k.phase, k.work, k.begunAt = running, w, time.Now()
	k.values = context.WithValue(context.WithoutCancel(ctx), groupKey{}, k.group)
	subs := slices.Collect(maps.Values(k.subs))
	k.mu.Unlock()
	for _, s := range subs {
		if err := k.verify(ctx, s); err != nil {
			_ = k.shutdown()
			return err
		}
	}
	rounds, stop := context.WithCancel(k.ctx)
	divided := make(chan struct{})
	go func() {
		defer close(divided)
		k.balancer.run(rounds)
	}()
	k.wg.Go(func() { k.alarms.run(k.ctx) })
	k.wg.Go(k.commitLoop)
	if k.cfg.ordered && !k.cfg.broadcast {
		k.wg.Go(k.lockLoop)
	}
	select {
	case <-ctx.Done():
	case <-k.quit:
	}
	stop()
	<-divided
	return k.shutdown()
}

// verify has a broker compile a filter that is not made of tags, and asks whether it has pop. Only a
// refusal fails.
func (k *Consumer) verify(ctx context.Context, s *subscription) error {
	if s.data.IsTag() && (!k.cfg.pop || s.topic == k.retryTopic) {
		return nil
	}
	err := k.checkFilter(ctx, s)
	var be *BrokerError
	if errors.As(err, &be) || errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("client: consumer %s: filter of topic %s: %w", k.group, s.topic, err)
	}
	if err != nil {
		k.client.cfg.logger.Warn("filter could not be checked", "group", k.group, "topic", s.topic,
			"err", err)
	}
	return nil
}

// Close has Run end and waits for it. Handlers that run when ctx ends have their contexts ended.
// It may be called again and concurrently; all calls return what Run returns, and the context that
// ends first is the one that counts.
func (k *Consumer) Close(ctx context.Context) error {
	k.closing.Do(func() {
		close(k.quit)
		k.mu.Lock()
		idle := k.phase == fresh
		if idle {
			k.phase = draining // Run fails from here on
		}
		k.mu.Unlock()
		if idle {
			_ = k.shutdown()
		}
	})
	stop := context.AfterFunc(ctx, func() { k.hurried.Do(func() { close(k.hurry) }) })
	defer stop()
	<-k.finished
	return k.failure
}

// shutdown drains, stores positions, leaves the group and waits for the goroutines. The balancer
// has ended, or never began.
func (k *Consumer) shutdown() error {
	k.ending.Do(k.end)
	return k.failure
}

func (k *Consumer) end() {
	k.mu.Lock()
	k.phase = draining
	var queues []*queue
	for _, q := range k.queues {
		k.dropLocked(q)
		queues = append(queues, q)
	}
	k.mu.Unlock()
	ctx := context.WithoutCancel(k.ctx)
	errs := []error{k.release(ctx, queues, k.cfg.drainTimeout)}
	k.client.leave(k)
	k.client.unregister(ctx, "", k.client.onWire(k.group))
	k.cancel()
	k.mu.Lock()
	k.phase = over
	k.crew.cond.Broadcast()
	for _, l := range k.lanes {
		l.events.close()
	}
	left := k.awaitCrewLocked()
	k.mu.Unlock()
	k.wg.Wait()
	traced, cancel := context.WithTimeout(ctx, k.client.cfg.callTimeout)
	errs = append(errs, k.tracer.close(traced))
	cancel()
	if left > 0 {
		errs = append(errs, fmt.Errorf("client: consumer %s: %d handlers have not returned: %w",
			k.group, left, context.DeadlineExceeded))
	}
	k.failure = errors.Join(errs...)
	close(k.finished)
}

func (k *Consumer) beatInto(h *protocol.HeartbeatData) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase != running {
		return
	}
	d := protocol.ConsumerData{
		GroupName: k.client.onWire(k.group), ConsumeType: protocol.ConsumePassively,
		MessageModel: protocol.Clustering, ConsumeFromWhere: k.cfg.start.where(),
		SubscriptionDataSet: []protocol.SubscriptionData{},
	}
	if k.cfg.broadcast {
		d.MessageModel = protocol.Broadcasting
	}
	for _, topic := range slices.Sorted(maps.Keys(k.subs)) {
		data := k.subs[topic].data
		data.Topic = k.client.onWire(data.Topic)
		d.SubscriptionDataSet = append(d.SubscriptionDataSet, data)
	}
	h.ConsumerDataSet = append(h.ConsumerDataSet, d)
}

// Subscribe adds a topic, or changes its filter, at once. What is cached and does not fit the new
// tags is dropped. All members of the group must do the same.
func (k *Consumer) Subscribe(topic string, f Filter) error {
	s, err := f.subscribe(topic)
	if err != nil {
		return fmt.Errorf("client: consumer %s: %w", k.group, err)
	}
	if k.isRunning() {
		if err := k.verify(k.ctx, &s); err != nil {
			return err
		}
	}
	k.mu.Lock()
	if k.phase > running {
		k.mu.Unlock()
		return fmt.Errorf("client: consumer %s: %w", k.group, ErrClosed)
	}
	if old := k.subs[topic]; old != nil {
		s.data.SubVersion = max(s.data.SubVersion, old.data.SubVersion+1)
	}
	k.subs[topic] = &s
	for id, q := range k.queues {
		if id.Topic == topic {
			q.refilterLocked(&s.data)
		}
	}
	k.mu.Unlock()
	k.balancer.announce()
	return nil
}

// Unsubscribe drops a topic: when it returns, no handler is called with a message of it any more.
// Those that run go on. Unknown topics are nothing to it.
func (k *Consumer) Unsubscribe(topic string) error {
	k.mu.Lock()
	if k.phase > running {
		k.mu.Unlock()
		return fmt.Errorf("client: consumer %s: %w", k.group, ErrClosed)
	}
	delete(k.subs, topic)
	var gone []*queue
	for id, q := range k.queues {
		if id.Topic == topic {
			k.dropLocked(q)
			gone = append(gone, q)
		}
	}
	k.releaseLaterLocked(gone)
	k.mu.Unlock()
	k.balancer.announce()
	return nil
}

// Pause stops fetching and handing out messages of topics, of all when there is none. Queues stay
// assigned and handlers that run go on. What failed before comes from the group's retry topic, which
// only a pause of all stops.
func (k *Consumer) Pause(topics ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(topics) == 0 {
		k.allStop = true
	}
	for _, t := range topics {
		k.paused[t] = true
	}
}

// Resume undoes Pause: for topics, or for everything when there is none.
func (k *Consumer) Resume(topics ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(topics) == 0 {
		k.allStop = false
		clear(k.paused)
	}
	for _, t := range topics {
		delete(k.paused, t)
	}
	for _, q := range k.queues {
		k.listLocked(q)
		q.fetchLocked()
	}
}

func (k *Consumer) isRunning() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.phase == running
}

// topics implements sharer.
func (k *Consumer) topics() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	topics := slices.Sorted(maps.Keys(k.subs))
	if k.cfg.pop { // brokers mix what failed into the answers
		topics = slices.DeleteFunc(topics, func(t string) bool { return t == k.retryTopic })
	}
	return topics
}
