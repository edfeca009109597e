// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

// RunProduce sends until the duration is over, the count is reached or ctx ends, prints to out on
// the way, and returns the figures. The result's OK is false when nothing could be sent, or with
// Verify when a closing message could not be. An error means that the run could not begin, or that
// its figures are void.
func RunProduce(ctx context.Context, cfg Produce, out Output) (*measure.Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Duration == 0 && cfg.Count == 0 {
		cfg.Duration = Duration(length(cfg.Steps))
	}
	ctl := newControl(cfg.NameServers, cfg.Credentials)
	defer ctl.close()
	var targets []target
	for _, topic := range cfg.topics() {
		list, err := ctl.writable(ctx, topic, cfg.Queues)
		if err != nil {
			return nil, err
		}
		targets = append(targets, list...)
	}
	p, err := newProducer(ctx, &cfg, &timing{clock: measure.NewClock()}, targets)
	if err != nil {
		return nil, err
	}
	printProduceHeader(&cfg, out)
	r := &run{
		timing: p.timing, warmup: time.Duration(cfg.Warmup), duration: time.Duration(cfg.Duration),
		brokerPID: cfg.BrokerPID, out: out, loads: []load{p},
	}
	if err := r.measureLead(ctx); err != nil {
		return nil, err
	}
	res, err := p.conclude(ctx, ctl)
	if err != nil {
		return nil, err
	}
	out.finish(res)
	p.own.printComplete(res, cfg.Batch, out)
	return res, nil
}

// newProducer makes the connections of a producing load.
func newProducer(
	ctx context.Context, cfg *Produce, t *timing, targets []target,
) (*producer, error) {
	p := &producer{cfg: cfg, timing: t, tags: 1, done: make(chan struct{})}
	cfg.Binary = cfg.Binary || cfg.Credentials != nil
	p.streams.run = randomNumber()
	p.budget.Store(cfg.Count)
	if cfg.Tags > 0 && cfg.Batch == 1 {
		p.tags = cfg.Tags
	}
	var err error
	if p.groups, err = p.connectAll(ctx, targets); err != nil {
		return nil, err
	}
	p.own = part{
		command: "produce", from: "sent", settings: cfg, wanted: cfg.Count, rate: cfg.rateAsked(),
		line: func(r measure.Rates, now time.Time) string { return r.ProduceLine(now, cfg.Batch) },
		backlog: func() (n int64) {
			for _, g := range p.groups {
				n += g.backlog.Load()
			}
			return n * int64(cfg.Batch)
		},
	}
	if cfg.paced() {
		p.own.from = "due"
	}
	for _, g := range p.groups {
		p.own.recorders = append(p.own.recorders, g.rec)
		if g.alone() {
			p.own.threads++
		}
	}
	return p, nil
}

// conclude closes the streams and returns the figures of a load that is through.
func (p *producer) conclude(ctx context.Context, ctl *control) (*measure.Result, error) {
	if err := errors.Join(p.failed...); err != nil {
		return nil, err
	}
	res := p.own.result()
	res.Sent, res.Retried = p.sent.Load(), p.retried.Load()
	p.closeStreams(ctx, ctl, res)
	p.judge(res)
	return res, nil
}

func randomNumber() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// connectAll makes the connections, spread over the brokers.
func (p *producer) connectAll(ctx context.Context, targets []target) ([]*group, error) {
	byAddr := map[string][]target{}
	var addrs []string
	for _, t := range targets {
		if byAddr[t.addr] == nil {
			addrs = append(addrs, t.addr)
		}
		byAddr[t.addr] = append(byAddr[t.addr], t)
	}
	var prefix [idPrefix / 2]byte
	_, _ = rand.Read(prefix[:]) // never fails
	text := func() string {
		binary.BigEndian.PutUint16(prefix[8:], binary.BigEndian.Uint16(prefix[8:])+1)
		return strings.ToUpper(hex.EncodeToString(prefix[:]))
	}
	bodies, err := makeBodies(p.cfg)
	if err != nil {
		return nil, err
	}
	p.bodies = (&frameMaker{cfg: p.cfg, prefix: text()}).payloads(bodies)
	for i := range p.bodies {
		if n := len(p.bodies[i].bytes) + headMost + p.cfg.PropertySize; n > frameMax {
			return nil, fmt.Errorf("workload: %w: batch of %d makes a request of %d bytes, at most %d "+
				"make a frame", ErrSettings, p.cfg.Batch, n, frameMax)
		}
	}
	p.cfg.Connections = max(p.cfg.Connections, len(addrs)) // one for each broker at least
	senders := make([]*sender, p.cfg.Connections)
	for i := range senders {
		senders[i] = newSender(p, i, byAddr[addrs[i%len(addrs)]], text())
	}
	return p.deal(ctx, senders)
}

// deal deals the connections to the run's goroutines and makes them.
func (p *producer) deal(ctx context.Context, senders []*sender) ([]*group, error) {
	n := min(p.cfg.LoopCount(), len(senders))
	hands := make([][]*sender, n)
	for i, s := range senders {
		hands[i%n] = append(hands[i%n], s)
	}
	var groups []*group
	for _, list := range hands {
		g, err := newGroup(p, list)
		if err == nil {
			groups = append(groups, g)
			err = g.connect(ctx)
		}
		if err != nil {
			closeGroups(groups)
			return nil, err
		}
	}
	return groups, nil
}

func closeGroups(groups []*group) {
	for _, g := range groups {
		g.close()
	}
}

func (p *producer) part() *part { return &p.own }

func (p *producer) through() <-chan struct{} { return p.done }

func (p *producer) stop() { p.stopped.Store(true) }

func (p *producer) discard() { closeGroups(p.groups) }

// start sends over all connections. The loops outlive ctx for the time of an answer: what is in
// flight is waited for.
func (p *producer) start(ctx context.Context) {
	loops, cancel := context.WithCancel(context.WithoutCancel(ctx))
	begin := p.clock.Now()
	p.failed = make([]error, len(p.groups))
	var wg sync.WaitGroup
	for i, g := range p.groups {
		for _, s := range g.senders {
			s.sched = newSchedule(begin, p.cfg.requestSteps(), s.index, p.cfg.Connections,
				time.Duration(p.cfg.Burst))
		}
		wg.Go(func() { p.failed[i] = g.loop(loops) })
	}
	go func() {
		wg.Wait()
		cancel()
		closeGroups(p.groups)
		close(p.done)
	}()
}

func (p *producer) judge(res *measure.Result) {
	if res.Problem != "" {
		return
	}
	if res.Messages == 0 && p.sent.Load() > 0 {
		res.OK = false
		res.Problem = "no message was stored: see the broker's log, or raise --timeout-ms"
	}
}

// closeStreams sends the closing message of each numbered stream: how many it had, and which of
// them were never acknowledged.
func (p *producer) closeStreams(ctx context.Context, ctl *control, res *measure.Result) {
	if !p.cfg.Verify {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var failed int
	var last error
	unlisted := uint64(0)
	for _, s := range p.streams.ended {
		unlisted += s.unlisted
		if err := p.closeStream(ctx, ctl, s); err != nil {
			failed++
			last = err
		}
	}
	if unlisted > 0 {
		res.OK = false
		res.Problem = fmt.Sprintf("%d more messages have no answer than closing messages can list, %d runs "+
			"of them in a stream: consume --verify takes them for lost", unlisted, missingMost)
	}
	if failed > 0 {
		res.OK = false
		res.Problem = fmt.Sprintf("%d of %d streams have no closing message, so consume --verify "+
			"cannot judge their ends: %v", failed, len(p.streams.ended), last)
	}
}

func (p *producer) closeStream(ctx context.Context, ctl *control, s *stream) error {
	stamp := measure.Stamp{
		Run: p.streams.run, Stream: s.number, Number: s.next, Missing: s.missing,
	}
	h := &protocol.SendRequest{
		Group: []byte(p.cfg.Group), Topic: []byte(s.target.topic),
		DefaultTopic: []byte(protocol.TBW102), DefaultTopicQueues: defaultTopicQueues,
		QueueID: s.target.queue, BornMS: time.Now().UnixMilli(), MaxReconsumeTimes: -1,
		BrokerName: []byte(s.target.broker),
	}
	var res *invoke.Response
	for {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		var err error
		res, err = ctl.pool.Call(one, s.target.addr, &invoke.Request{
			Code: remoting.SendMessageV2, Header: h, Body: stamp.AppendEnd(nil),
		})
		cancel()
		if err == nil && !isStored(int32(res.Code)) {
			err = res.Err()
		}
		if err == nil {
			return nil
		}
		t := time.NewTimer(redialFirst)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}
