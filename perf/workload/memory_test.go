// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

// senderAlone returns a connection of a load that nothing drives.
func senderAlone(cfg *Produce) *sender {
	p := &producer{cfg: cfg, timing: &timing{clock: measure.NewClock()}, tags: 1}
	m := &frameMaker{cfg: cfg, prefix: testPrefix}
	p.bodies = m.payloads([]rawBody{{bytes: make([]byte, 100)}})
	p.gate.Set(measure.Measuring)
	s := newSender(p, 0, []target{{topic: "load", broker: "b", queue: 7}}, testPrefix)
	s.group = &group{run: p, rec: measure.NewRecorder(&p.gate)}
	return s
}

// TestTableFollowsFlight: at a fixed rate the table of requests without an answer is as large as
// what is in flight asks for, however many messages the run sends and however many it might have in
// flight.
func TestTableFollowsFlight(t *testing.T) {
	t.Parallel()
	cfg := DefaultProduce()
	cfg.Rate = 20_000
	s := senderAlone(&cfg)
	if s.room != slotsOpen {
		t.Fatalf("room for %d requests, want %d", s.room, slotsOpen)
	}
	var asked []int32 // opaques without an answer, the oldest first
	var answer []byte
	send := func(inFlight int) {
		for len(asked) < inFlight {
			s.queue(0, 0)
			s.out = s.out[:0]
			at := (s.place - 1) & uint32(len(s.slots)-1)
			asked = append(asked, opaqueBase+int32(at))
		}
	}
	settle := func() {
		answer = appendSendAnswer(answer[:0], asked[0])
		asked = asked[1:]
		if err := s.settleLocked(answer[4:], 1000, true); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * slotsOpen {
		send(10)
		settle()
	}
	if n := len(s.slots); n > 2*cfg.InFlight {
		t.Errorf("%d places after %d messages of which 10 were in flight", n, 2*slotsOpen)
	}
	send(1000) // a stall
	for len(asked) > 0 {
		settle()
	}
	if n := len(s.slots); n < 1000 || n > 4096 || s.inFlight != 0 {
		t.Errorf("%d places after 1000 in flight; %d are now", n, s.inFlight)
	}
	if got, want := s.group.rec.Totals().Messages, int64(2*slotsOpen+1000); got != want {
		t.Errorf("%d messages were answered, want %d", got, want)
	}
}

// TestRefusedHaveRoom: at a fixed rate a broker that refuses everything does not have what is to be
// sent again pile up: it counts as under way.
func TestRefusedHaveRoom(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	cluster.Brokers[0].Refuse(remoting.SystemBusy, 1<<16)
	cfg := testProduce(cluster)
	cfg.Connections, cfg.Count, cfg.Rate, cfg.Retries = 1, 0, 5000, retriesMax
	ctl := newControl(cfg.NameServers, nil)
	defer ctl.close()
	targets, err := ctl.writable(t.Context(), cfg.Topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProducer(t.Context(), &cfg, &timing{clock: measure.NewClock()}, targets)
	if err != nil {
		t.Fatal(err)
	}
	const room = 100
	p.groups[0].senders[0].room = room
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p.start(ctx)
	for p.retried.Load() < 4*room && ctx.Err() == nil {
		tick(time.Millisecond)
	}
	p.stop()
	<-p.through()
	if sent := p.sent.Load(); sent == 0 || sent > room {
		t.Errorf("%d messages were sent, %d of them again, want %d at most under way", sent,
			p.retried.Load(), room)
	}
}

// TestMissingBounded: a stream lists so many runs of unanswered numbers and no more, and the run
// says so.
func TestMissingBounded(t *testing.T) {
	t.Parallel()
	server := startNull(t)
	s := &stream{target: target{topic: "t", broker: "b", addr: server.Addr()}}
	const beyond = 10
	for i := range uint64(missingMost + beyond) {
		s.miss(2*i, 1)
	}
	if len(s.missing) != missingMost || s.unlisted != beyond {
		t.Fatalf("%d runs listed, %d messages not", len(s.missing), s.unlisted)
	}
	cfg := DefaultProduce()
	cfg.Verify = true
	p := &producer{cfg: &cfg, timing: &timing{clock: measure.NewClock()}}
	p.streams.ended = []*stream{s}
	ctl := newControl([]string{server.Addr()}, nil)
	defer ctl.close()
	res := &measure.Result{OK: true}
	p.closeStreams(t.Context(), ctl, res)
	if res.OK || !strings.Contains(res.Problem, "10 more messages") {
		t.Errorf("result: %v, %q", res.OK, res.Problem)
	}
	if got := server.Sends(); got != 1 {
		t.Errorf("%d closing messages, want 1", got)
	}
}

// TestBufferFollowsReads: a connection that receives little keeps a small buffer, one that receives
// much gets the whole.
func TestBufferFollowsReads(t *testing.T) {
	t.Parallel()
	e := remoting.Begin(nil, remoting.NewRequest(remoting.PullMessage, 1))
	frame := e.End(make([]byte, 5000))
	for _, tc := range []struct{ frames, want int }{{1, bufferFirst}, {1000, pullBuffer}} {
		var f frameBuffer
		f.reset(pullBuffer)
		seen := 0
		for range 100 {
			in := bytes.NewReader(bytes.Repeat(frame, tc.frames))
			for in.Len() > 0 {
				if err := f.fill(in); err != nil {
					t.Fatal(err)
				}
				for {
					got, err := f.next()
					if err != nil {
						t.Fatal(err)
					}
					if got == nil {
						break
					}
					seen++
				}
			}
		}
		if len(f.b) != tc.want || seen != 100*tc.frames {
			t.Errorf("%d frames at once: buffer of %d bytes, want %d; %d frames came",
				tc.frames, len(f.b), tc.want, seen)
		}
	}
}

// TestAllocsPull: asking for messages costs no allocation.
func TestAllocsPull(t *testing.T) {
	cfg := DefaultConsume()
	cfg.Filter, cfg.FilterType, cfg.Commit, cfg.Binary = "a || b", filterTag, true, true
	p := newPuller(&consumer{cfg: &cfg, timing: &timing{clock: measure.NewClock()}}, "", "g")
	q := newPullQueue(&target{topic: "t", broker: "b"}, 0, 1000)
	if got := testing.AllocsPerRun(1000, func() {
		p.out = p.out[:0]
		p.appendPull(0, q)
	}); got != 0 {
		t.Errorf("%v allocations for each pull, want 0", got)
	}
}
