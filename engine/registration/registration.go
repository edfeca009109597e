// SPDX-License-Identifier: Apache-2.0

// Package registration tells name servers which topics a broker serves: at the start, every 30 s,
// and at once for topics that are new or changed. It works against Apache RocketMQ's name servers
// and ours (BrokerOuterAPI, BrokerController.registerBrokerAll).
//
// Each name server has a goroutine of its own, so that one that is away delays no other. It tries
// again from 100 ms up to every 5 s, and says so once a minute through Config.Notice. When the
// connection to a name server ends it registers again at once, since the name server has dropped
// the broker then.
//
//	r, err := registration.New(registration.Config{NameServers: addrs, Broker: b, Source: topics})
//	r.Start()
//	r.RegisterTopics("new")      // returns at once
//	r.Unregister(ctx)            // at shutdown, before the broker stops to serve
//	r.Close()
//
// All methods may be called from any goroutine. The package keeps no state of the broker.
package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
)

// ErrClosed means that the registration was ended by Unregister or Close.
var ErrClosed = errors.New("registration: closed")

// Source gives what is registered.
type Source interface {
	// TopicConfigs returns all topics with the version of their table. The result is not changed
	// by either side afterwards. It must not block for long.
	TopicConfigs() *protocol.TopicConfigWrapper
}

// Broker is who registers.
type Broker struct {
	ClusterName string
	BrokerName  string
	BrokerID    int64
	Addr        string // host:port that clients are told
	HAAddr      string // host:port for replicas
}

// Answer is what a name server says to a full registration.
type Answer struct {
	NameServer  string
	MasterAddr  string            // "" for a master, or when no master is known
	HAAddr      string            // of that master
	OrderTopics map[string]string // ORDER_TOPIC_CONFIG; nil when there is none
}

// Config sets up a Registration. Zero durations and sizes mean the defaults named here.
type Config struct {
	NameServers []string // host:port each
	Broker      Broker
	Source      Source

	// Pool makes the calls. With nil the Registration has one of its own, and then notices by
	// itself when a connection ends; else the owner of the pool calls ConnectionClosed.
	Pool *invoke.Pool

	// Permission is brokerPermission; nil means readable and writable. When either is missing,
	// topics are registered with their permission reduced.
	Permission func() int32

	Period            time.Duration // registerNameServerPeriod: 30 s, at least 10 s and at most 60 s
	Timeout           time.Duration // registerBrokerTimeoutMills: 24 s for each request
	UnregisterTimeout time.Duration // 3 s
	OnlyWhenChanged   bool          // forceRegister=false: ask for the data version first
	SplitSize         int           // splitRegistrationSize, topics in a request: 800

	// EnableActingMaster is enableSlaveActingMaster; HeartbeatTimeoutMS goes with it, 0: not sent.
	EnableActingMaster bool
	HeartbeatTimeoutMS int64
	ZoneName           string // "": not sent

	// OnAnswer is told of each answer to a full registration, on the name server's goroutine.
	OnAnswer func(Answer)
	// Notice receives what an operator should know. It must not block. Nil: nothing.
	Notice func(msg string, kv ...any)

	RetryFrom, RetryTo, NoticeEvery time.Duration // 100 ms, 5 s, 1 min; for tests
}

func (c *Config) complete() error {
	defaults := []struct {
		d   *time.Duration
		def time.Duration
	}{
		{&c.Period, 30 * time.Second},
		{&c.Timeout, 24 * time.Second},
		{&c.UnregisterTimeout, 3 * time.Second},
		{&c.RetryFrom, 100 * time.Millisecond},
		{&c.RetryTo, 5 * time.Second},
		{&c.NoticeEvery, time.Minute},
	}
	for _, d := range defaults {
		if *d.d < 0 {
			return fmt.Errorf("registration: configure: a duration of %v", *d.d)
		}
		if *d.d == 0 {
			*d.d = d.def
		}
	}
	if c.SplitSize <= 0 {
		c.SplitSize = 800
	}
	c.SplitSize = max(c.SplitSize, 2) // a first request with one topic would be refused
	if c.Notice == nil {
		c.Notice = func(string, ...any) {}
	}
	if c.Source == nil || c.Broker.BrokerName == "" || c.Broker.Addr == "" {
		return errors.New("registration: configure: source, broker name and address are needed")
	}
	return nil
}

// ClampPeriod brings a configured period into the bounds that RocketMQ keeps.
func ClampPeriod(d time.Duration) time.Duration {
	return min(max(d, 10*time.Second), 60*time.Second)
}

// Registration keeps one broker registered.
type Registration struct {
	// Constant.
	cfg     Config
	pool    *invoke.Pool
	ownPool bool
	ctx     context.Context // ends the goroutines
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	// Guards what follows.
	mu      sync.Mutex
	started bool
	ended   bool
	targets []*target
}

// New checks cfg. Nothing is sent before Start. Without name servers everything succeeds.
func New(cfg Config) (*Registration, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	r := &Registration{cfg: cfg, pool: cfg.Pool}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if r.pool == nil {
		r.ownPool = true
		r.pool = invoke.NewPool(invoke.Config{
			OnClose: func(addr string, _ error) { r.ConnectionClosed(addr) },
		})
	}
	for _, addr := range cfg.NameServers {
		r.targets = append(r.targets, newTarget(r, addr))
	}
	return r, nil
}

// Start begins to register in the background.
func (r *Registration) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started || r.ended {
		return
	}
	r.started = true
	for _, t := range r.targets {
		r.startLocked(t)
	}
}

func (r *Registration) startLocked(t *target) {
	t.ask(work{full: true})
	r.wg.Go(t.run)
}

// SetNameServers replaces the list, for names that resolve to other addresses by now. Those that
// are no longer in it are left to expire.
func (r *Registration) SetNameServers(addrs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*target
	for _, t := range r.targets {
		if slices.Contains(addrs, t.addr) {
			kept = append(kept, t)
		} else {
			t.cancel()
		}
	}
	for _, addr := range addrs {
		if slices.ContainsFunc(kept, func(t *target) bool { return t.addr == addr }) {
			continue
		}
		t := newTarget(r, addr)
		kept = append(kept, t)
		if r.started && !r.ended {
			r.startLocked(t)
		}
	}
	r.targets = kept
}

// RegisterAll registers everything with all name servers now and waits for it. It returns the
// joined errors of those that failed, which are tried again in the background.
func (r *Registration) RegisterAll(ctx context.Context) error {
	return r.await(ctx, work{full: true})
}

// RegisterTopics registers changed topics in the background. Topics that the Source does not have
// are left out.
func (r *Registration) RegisterTopics(names ...string) {
	for _, t := range r.current() {
		t.ask(work{topics: names})
	}
}

// RegisterTopic is RegisterTopics with a wait for all name servers, for an administrator who asks
// for the route next. A name server that has kept a caller waiting in vain is told in the background
// until it answers again: one that is silent must not hold up every new topic.
func (r *Registration) RegisterTopic(ctx context.Context, names ...string) error {
	return r.await(ctx, work{topics: names})
}

// ConnectionClosed registers again with the name server at addr, which has forgotten the broker.
func (r *Registration) ConnectionClosed(addr string) {
	for _, t := range r.current() {
		if t.addr == addr {
			t.ask(work{full: true})
		}
	}
}

// current returns the targets while the registration runs.
func (r *Registration) current() []*target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	return slices.Clone(r.targets)
}

func (r *Registration) await(ctx context.Context, w work) error {
	r.mu.Lock()
	targets, running := slices.Clone(r.targets), r.started && !r.ended
	r.mu.Unlock()
	if !running {
		return ErrClosed
	}
	type result struct {
		of  *target
		err error
	}
	results := make(chan result, len(targets))
	waiting := make(map[*target]bool, len(targets))
	for _, t := range targets {
		asked := w
		if w.full || !t.late.Load() {
			waiting[t] = true
			asked.done = []func(error){func(err error) { results <- result{t, err} }}
		}
		t.ask(asked)
	}
	var all error
	for len(waiting) > 0 {
		select {
		case got := <-results:
			delete(waiting, got.of)
			all = errors.Join(all, got.err)
		case <-ctx.Done():
			for t := range waiting {
				t.late.Store(true)
			}
			return errors.Join(all, fmt.Errorf("registration: wait: %w", context.Cause(ctx)))
		case <-r.ctx.Done():
			return errors.Join(all, ErrClosed)
		}
	}
	return all
}

// Unregister ends the registration and takes the broker out of all name servers, each within
// Config.UnregisterTimeout. Errors are joined; the broker then expires there.
func (r *Registration) Unregister(ctx context.Context) error {
	r.stop()
	r.mu.Lock()
	targets := slices.Clone(r.targets)
	r.mu.Unlock()
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { errs[i] = t.unregister(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close ends the goroutines without telling the name servers. It is idempotent and returns nil.
func (r *Registration) Close() error {
	r.stop()
	if r.ownPool {
		return r.pool.Close()
	}
	return nil
}

// stop ends the goroutines and waits for them, so that nothing registers after Unregister.
func (r *Registration) stop() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}

// call makes one request and turns an answer with an error code into an error.
func (r *Registration) call(
	ctx context.Context, timeout time.Duration, addr string, q *invoke.Request,
) (*invoke.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := r.pool.Call(ctx, addr, q)
	if err != nil {
		return nil, fmt.Errorf("registration: %v with %s: %w", q.Code, addr, err)
	}
	if err := answer.Err(); err != nil {
		return nil, fmt.Errorf("registration: %v with %s: %w", q.Code, addr, err)
	}
	return answer, nil
}

func (b *Broker) header() *protocol.UnregisterBrokerRequest {
	return &protocol.UnregisterBrokerRequest{
		BrokerName: b.BrokerName, BrokerAddr: b.Addr, ClusterName: b.ClusterName,
		BrokerID: b.BrokerID,
	}
}

func (c *Config) registerHeader(body []byte) *protocol.RegisterBrokerRequest {
	h := &protocol.RegisterBrokerRequest{
		BrokerName: c.Broker.BrokerName, BrokerAddr: c.Broker.Addr,
		ClusterName: c.Broker.ClusterName, HAServerAddr: c.Broker.HAAddr,
		BrokerID: c.Broker.BrokerID, BodyCRC32: protocol.BodyCRC(body),
		HeartbeatTimeoutMS: -1, EnableActingMaster: &c.EnableActingMaster, ZoneName: c.ZoneName,
	}
	if c.EnableActingMaster && c.HeartbeatTimeoutMS > 0 {
		h.HeartbeatTimeoutMS = c.HeartbeatTimeoutMS
	}
	return h
}
