// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// incrementalMax is the number of changed topics from which on everything is registered instead.
const incrementalMax = 64

// work is what a name server shall be told.
type work struct {
	full   bool     // everything
	topics []string // only these, when the broker is registered already
	done   []func(error)
}

// target is one name server. Its goroutine is the only one that registers there, so requests
// arrive in order.
type target struct {
	r      *Registration
	addr   string
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: work waits

	late atomic.Bool // somebody has waited in vain since its last answer

	// Confined to run.
	registered bool // everything is there, so changes may go alone
	failing    bool
	noticed    time.Time

	// Guards what follows.
	mu   sync.Mutex
	next work
}

func newTarget(r *Registration, addr string) *target {
	t := &target{r: r, addr: addr, wake: make(chan struct{}, 1)}
	t.ctx, t.cancel = context.WithCancel(r.ctx)
	return t
}

// ask adds work to what waits.
func (t *target) ask(w work) {
	t.mu.Lock()
	t.next.full = t.next.full || w.full
	for _, name := range w.topics {
		if !slices.Contains(t.next.topics, name) {
			t.next.topics = append(t.next.topics, name)
		}
	}
	if len(t.next.topics) > incrementalMax {
		t.next.full, t.next.topics = true, nil
	}
	t.next.done = append(t.next.done, w.done...)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *target) take() work {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.next
	t.next = work{}
	return w
}

// run registers when there is work, when the period has passed, and again after failures.
func (t *target) run() {
	cfg := &t.r.cfg
	timer := time.NewTimer(cfg.Period)
	defer timer.Stop()
	retry := cfg.RetryFrom
	for {
		periodic := false
		select {
		case <-t.ctx.Done():
			for _, done := range t.take().done {
				done(ErrClosed)
			}
			return
		case <-t.wake:
		case <-timer.C:
			periodic = true
		}
		w := t.take()
		err := t.do(w, periodic)
		for _, done := range w.done {
			done(err)
		}
		if t.ctx.Err() != nil {
			return
		}
		t.report(err)
		if err != nil {
			t.registered = false
			timer.Reset(retry)
			retry = min(2*retry, cfg.RetryTo)
			continue
		}
		retry = cfg.RetryFrom
		timer.Reset(cfg.Period)
	}
}

// report says once a minute that a name server is away, and once that it is back.
func (t *target) report(err error) {
	cfg := &t.r.cfg
	if err == nil {
		t.late.Store(false)
	}
	switch {
	case err != nil && (!t.failing || time.Since(t.noticed) >= cfg.NoticeEvery):
		cfg.Notice("not registered with name server, trying on", "addr", t.addr, "err", err)
		t.noticed = time.Now()
	case err == nil && t.failing:
		cfg.Notice("registered with name server", "addr", t.addr)
	}
	t.failing = err != nil
}

// do tells the name server what w asks for, or everything when it may not know the broker.
func (t *target) do(w work, periodic bool) error {
	all := t.r.cfg.Source.TopicConfigs()
	switch {
	case !w.full && !periodic && t.registered && len(w.topics) > 0:
		return t.registerSome(all, w.topics)
	case periodic && t.registered && t.r.cfg.OnlyWhenChanged && !t.changed(all.DataVersion):
		return nil
	}
	if err := t.registerFull(all); err != nil {
		return err
	}
	t.registered = true
	return nil
}

// changed asks the name server whether its version of the topics differs, which also renews the
// registration there. No answer counts as yes.
func (t *target) changed(version protocol.DataVersion) bool {
	answer, err := t.r.call(t.ctx, t.r.cfg.Timeout, t.addr, &invoke.Request{
		Code:   remoting.QueryDataVersion,
		Header: t.r.cfg.Broker.header(),
		Body:   protocol.Marshal(&version),
	})
	if err != nil {
		return true
	}
	var h protocol.QueryDataVersionResponse
	return h.Decode(answer.Command) != nil || h.Changed
}

func (t *target) registerSome(all *protocol.TopicConfigWrapper, names []string) error {
	some := make(map[string]*protocol.TopicConfig, len(names))
	for _, name := range names {
		if config := all.TopicConfigTable[name]; config != nil {
			some[name] = config
		}
	}
	if len(some) == 0 {
		return nil
	}
	_, err := t.send(all, some, all.DataVersion)
	return err
}

// registerFull sends all topics, in several requests when they are many. The requests before the
// last carry versions of their own: a name server takes changed topics only with a version that
// differs from the one it has.
func (t *target) registerFull(all *protocol.TopicConfigWrapper) error {
	names := slices.Sorted(maps.Keys(all.TopicConfigTable))
	size := t.r.cfg.SplitSize
	if len(names) == 1 && !t.registered {
		// A lone topic looks like a change, which name servers refuse from a broker that they do
		// not know.
		if _, err := t.send(all, nil, protocol.DataVersion{}); err != nil {
			return err
		}
	}
	for {
		n := min(size, len(names))
		part := make(map[string]*protocol.TopicConfig, n)
		for _, name := range names[:n] {
			part[name] = all.TopicConfigTable[name]
		}
		names = names[n:]
		version := all.DataVersion
		version.Timestamp -= int64(len(names))
		answer, err := t.send(all, part, version)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			t.answered(answer)
			return nil
		}
	}
}

// send makes one REGISTER_BROKER request.
func (t *target) send(
	all *protocol.TopicConfigWrapper, topics map[string]*protocol.TopicConfig,
	version protocol.DataVersion,
) (*invoke.Response, error) {
	wrapper := *all
	wrapper.DataVersion = version
	wrapper.TopicConfigTable = t.r.permitted(topics)
	body := protocol.MarshalFastJSON(&protocol.RegisterBrokerBody{
		FilterServerList: []string{},
		TopicConfigs:     wrapper,
	})
	return t.r.call(t.ctx, t.r.cfg.Timeout, t.addr, &invoke.Request{
		Code:   remoting.RegisterBroker,
		Header: t.r.cfg.registerHeader(body),
		Body:   body,
	})
}

// permitted reduces the permission of topics to the broker's. Such a copy is bare, as in
// BrokerController: system flag, order and attributes are not sent.
func (r *Registration) permitted(
	topics map[string]*protocol.TopicConfig,
) map[string]*protocol.TopicConfig {
	const both = protocol.PermRead | protocol.PermWrite
	if topics == nil {
		return map[string]*protocol.TopicConfig{}
	}
	if r.cfg.Permission == nil {
		return topics
	}
	permission := r.cfg.Permission()
	if permission&both == both {
		return topics
	}
	out := make(map[string]*protocol.TopicConfig, len(topics))
	for name, config := range topics {
		out[name] = &protocol.TopicConfig{
			TopicName: config.TopicName, ReadQueueNums: config.ReadQueueNums,
			WriteQueueNums: config.WriteQueueNums, Perm: config.Perm & permission,
			TopicFilterType: protocol.SingleTag, Attributes: map[string]string{},
		}
	}
	return out
}

func (t *target) answered(answer *invoke.Response) {
	on := t.r.cfg.OnAnswer
	if on == nil {
		return
	}
	var h protocol.RegisterBrokerResponse
	_ = h.Decode(answer.Command) // both fields may be absent; there is nothing to refuse
	a := Answer{NameServer: t.addr, MasterAddr: h.MasterAddr, HAAddr: h.HAServerAddr}
	if len(answer.Body) > 0 {
		var table protocol.KVTable
		if err := protocol.Unmarshal(answer.Body, &table); err == nil {
			a.OrderTopics = table.Table
		} else {
			t.r.cfg.Notice("order topics of name server cannot be read", "addr", t.addr, "err", err)
		}
	}
	on(a)
}

func (t *target) unregister(ctx context.Context) error {
	_, err := t.r.call(ctx, t.r.cfg.UnregisterTimeout, t.addr, &invoke.Request{
		Code:   remoting.UnregisterBroker,
		Header: t.r.cfg.Broker.header(),
	})
	var remote *remoting.Error
	if errors.As(err, &remote) {
		t.r.cfg.Notice("name server refused to take the broker out", "addr", t.addr, "err", err)
	}
	return err
}
