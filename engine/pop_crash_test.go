// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// popLedger counts every message from its sending to its acknowledgement.
type popLedger struct {
	mu    sync.Mutex
	sent  map[string]bool // accepted by the broker
	acked map[string]bool // acknowledged by a consumer, and the broker said so
	again int             // deliveries of what was acknowledged before
}

// produce sends to four queues until the broker dies.
func (l *popLedger) produce(addr string, round int, stop <-chan struct{}) {
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		body := fmt.Sprint(round, "/", i)
		ctx, cancel := context.WithTimeout(context.Background(), callWithin)
		r, err := pool.Call(ctx, addr, &invoke.Request{
			Code: remoting.SendMessageV2, Body: []byte(body), Header: sendRequest("popcrash", int32(i%4)),
		})
		cancel()
		if err != nil {
			return
		}
		if r.Code == remoting.Success {
			l.mu.Lock()
			l.sent[body] = true
			l.mu.Unlock()
		}
	}
}

// consume pops and acknowledges most of what it gets, until the broker dies or idle pops find nothing.
func (l *popLedger) consume(t *testing.T, addr string, invisible time.Duration, share float64, idle int) {
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	call := func(code remoting.RequestCode, h remoting.Header) (*invoke.Response, error) {
		ctx, cancel := context.WithTimeout(context.Background(), callWithin)
		defer cancel()
		return pool.Call(ctx, addr, &invoke.Request{Code: code, Header: h})
	}
	for left := idle; left > 0; {
		r, err := call(remoting.PopMessage, popRequest("popcrash", "g", invisible, 500*time.Millisecond))
		if err != nil {
			return
		}
		d := popped{code: r.Code, topic: "popcrash", group: "g"}
		if r.Code != remoting.Success || d.head.Decode(r.Command) != nil {
			left--
			continue
		}
		left = idle
		for body := r.Body; len(body) > 0; {
			v, err := record.Parse(body)
			if err != nil {
				t.Error(err)
				return
			}
			d.views = append(d.views, v)
			body = body[v.TotalSize():]
		}
		for i, ack := range d.receipts(t) {
			if rand.Float64() >= share {
				continue
			}
			if r, err := call(remoting.AckMessage, &ack); err != nil || r.Code != remoting.Success {
				if err == nil {
					t.Errorf("ack: %v %q", r.Code, r.Remark)
				}
				return
			}
			l.note(string(d.views[i].Body()))
		}
	}
}

func (l *popLedger) note(body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked[body] {
		l.again++
	}
	l.acked[body] = true
}

// TestCrashPopLosesNothing kills a broker from which messages are popped again and again. Every message
// that was accepted comes until it is acknowledged, whatever was out when the broker died, and in the
// end nothing is left.
func TestCrashPopLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &popLedger{sent: map[string]bool{}, acked: map[string]bool{}}
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		v := startVictim(t, dir, "ASYNC_FLUSH")
		newPeer(t, v.addr).call(remoting.SendMessageV2, sendRequest("popcrash", 0), []byte(fmt.Sprint("hello", round)))
		stop := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() { l.produce(v.addr, round, stop) })
		for range 2 {
			work.Go(func() { l.consume(t, v.addr, time.Second, 0.8, 1000) })
		}
		<-time.After(300*time.Millisecond + rand.N(time.Second))
		v.end(t, true)
		close(stop)
		work.Wait()
	}
	v := startVictim(t, dir, "ASYNC_FLUSH")
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() { l.consume(t, v.addr, 20*time.Second, 1, 6) })
	}
	work.Wait()
	missing := 0
	for body := range l.sent {
		if !l.acked[body] {
			missing++
		}
	}
	if missing > 0 || len(l.sent) < 20*rounds {
		t.Errorf("%d of %d messages never came to their end", missing, len(l.sent))
	}
	t.Logf("%d messages, %d came again after they were acknowledged", len(l.sent), l.again)
	p := newPeer(t, v.addr)
	if d := p.pop(popRequest("popcrash", "g", time.Minute, 0)); len(d.views) > 0 {
		t.Errorf("left: %d messages", len(d.views))
	}
	r := p.call(remoting.PollingInfo, &protocol.PollingInfoRequest{Group: "g", Topic: "popcrash", QueueID: -1}, nil)
	if r.Code != remoting.Success {
		t.Errorf("polling info: %v %q", r.Code, r.Remark)
	}
	v.end(t, false)
}
