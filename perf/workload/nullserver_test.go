// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/perf/measure"
)

func startNull(t testing.TB) *NullServer {
	t.Helper()
	s, err := NewNullServer(t.Context(), "127.0.0.1:0", 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestNullServer: sends in both header forms, by both drivers and over several loops, are answered
// and counted; pulls bring messages.
func TestNullServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		set  func(*Produce)
	}{
		{"json", func(*Produce) {}},
		{"binary", func(p *Produce) { p.Binary = true }},
		{"batch", func(p *Produce) { p.Batch = 10 }},
		{"net driver", func(p *Produce) { p.Driver = driverNet }},
		{"net driver paced", func(p *Produce) { p.Driver, p.Rate = driverNet, 20_000 }},
		{"loops", func(p *Produce) { p.Loops = 3 }},
		{"large", func(p *Produce) { p.Size, p.Count = 1<<20, 200 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := startNull(t)
			p := DefaultProduce()
			p.NameServers, p.Connections, p.InFlight, p.Count = []string{server.Addr()}, 5, 7, 1000
			p.Timeout = Duration(20 * time.Second) // of a slow machine
			tc.set(&p)
			res := produce(t, p)
			if res.Messages != p.Count || !res.OK || server.Sends() != p.Count/int64(p.Batch) {
				t.Errorf("%d messages of %d, %d requests at the server: %s",
					res.Messages, p.Count, server.Sends(), res.Problem)
			}
			c := DefaultConsume()
			c.NameServers, c.Count = p.NameServers, 1000
			if got := consume(t, c); got.Messages != 1000 {
				t.Errorf("received %d of 1000", got.Messages)
			}
		})
	}
}

// idleLoad is a load that is only measured.
type idleLoad struct {
	load
	own part
}

func (l *idleLoad) part() *part { return &l.own }

// TestThreads: a run knows how many processors its goroutines can use, so that one busy loop of many
// processors is told as the bottleneck that it is.
func TestThreads(t *testing.T) {
	t.Parallel()
	server := startNull(t)
	for _, tc := range []struct {
		loops  int
		driver string
		want   int
	}{{1, "", 1}, {3, "", 3}, {9, "", 5}, {1, driverNet, 0}} {
		cfg := DefaultProduce()
		cfg.Connections, cfg.Loops, cfg.Driver = 5, tc.loops, tc.driver
		want := tc.want
		if !haveEpoll {
			want = 0
		}
		p, err := newProducer(t.Context(), &cfg, &timing{clock: measure.NewClock()},
			[]target{{topic: "t", broker: "b", addr: server.Addr()}})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.part().threads; got != want {
			t.Errorf("%d loops of driver %q: %d, want %d", tc.loops, tc.driver, got, want)
		}
		p.discard()
	}
	of := func(list ...int) (r run) {
		for _, n := range list {
			r.loads = append(r.loads, &idleLoad{own: part{threads: n}})
		}
		return r
	}
	both, unknown := of(1, 4), of(1, 0)
	if both.threads() != 5 || unknown.threads() != 0 {
		t.Errorf("sender and reader: %d, with one that has many: %d", both.threads(), unknown.threads())
	}
}

// TestNoGoroutineStays: neither load nor server leaves one behind.
func TestNoGoroutineStays(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	for _, driver := range []string{driverNet, ""} {
		server, err := NewNullServer(t.Context(), "127.0.0.1:0", 100)
		if err != nil {
			t.Fatal(err)
		}
		p := DefaultProduce()
		p.NameServers, p.Connections, p.Driver = []string{server.Addr()}, 4, driver
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		looked := make(chan struct{})
		go func() { // the run ends in the middle of its work
			defer close(looked)
			for server.Sends() == 0 && ctx.Err() == nil {
				tick(time.Millisecond)
			}
			cancel()
		}()
		res, err := RunProduce(ctx, p, Output{})
		cancel()
		<-looked
		if err != nil || res.Sent == 0 {
			t.Errorf("driver %q: %+v, %v", driver, res, err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
	goleak.VerifyNone(t, ignored)
}

// BenchmarkProduce measures what a send costs the generator and the null server together, in one
// process. `skylark perf null-server` in a process of its own splits it; see perf/README.md.
func BenchmarkProduce(b *testing.B) {
	for _, bc := range []struct {
		name                        string
		connections, inFlight, size int
	}{
		{"pipelined/size=128", 4, 64, 128},
		{"pipelined/size=1024", 4, 64, 1024},
		{"waiting/size=1024", 64, 1, 1024},
	} {
		b.Run(bc.name, func(b *testing.B) {
			server := startNull(b)
			p := DefaultProduce()
			p.NameServers, p.Count = []string{server.Addr()}, int64(b.N)
			p.Connections, p.InFlight, p.Size = bc.connections, bc.inFlight, bc.size
			b.ReportAllocs()
			if _, err := RunProduce(b.Context(), p, Output{}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
