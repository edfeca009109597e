// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// thrifty is a broker that answers sends without allocating, since counts are those of the process.
type thrifty struct {
	gate chan struct{} // sends wait until it is closed; nil: none
}

func (s *thrifty) serve(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { s.answer(c) })
		}
	})
	return l.Addr().String()
}

func (s *thrifty) answer(c net.Conn) {
	in := bufio.NewReaderSize(c, 1<<20)
	var frame, out, ids []byte
	var size [4]byte
	var cmd remoting.Command
	for {
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if cap(frame) < n {
			frame = make([]byte, n)
		}
		frame = frame[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		if cmd.Decode(frame) != nil {
			return
		}
		if s.gate != nil && cmd.Request() != remoting.HeartBeat {
			<-s.gate
		}
		// A batch entry begins with its size; one id for each.
		ids = append(ids[:0], offsetID...)
		if cmd.Request() == remoting.SendBatchMessage {
			for b := cmd.Body; ; ids = append(append(ids, ','), offsetID...) {
				if b = b[binary.BigEndian.Uint32(b):]; len(b) == 0 {
					break
				}
			}
		}
		e := remoting.Begin(out, cmd.Reply(remoting.Success))
		e.Bytes("msgId", ids)
		e.String("queueId", "0")
		e.String("queueOffset", "17")
		e.String("MSG_REGION", "DefaultRegion")
		out = e.End(nil)
		if in.Buffered() == 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

var offsetID = strings.Repeat("0", 32)

// thriftyProducer sends to a thrifty broker.
func thriftyProducer(
	t testing.TB, s *thrifty, opts ...client.ProducerOption,
) *client.Producer {
	t.Helper()
	names := scripttest.NewCluster(t, 1)
	names.SetTopic("t", 4)
	broker := s.serve(t)
	c, err := client.New([]string{names.NameServer.Addr}, client.WithDialer(
		func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == names.Brokers[0].Addr {
				addr = broker
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	p, err := c.NewProducer("pg", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAllocsSend holds sends to two allocations for a message, those of sendings at all: the texts
// of the result and what the runtime needs to wait. It is not parallel: it counts those of the
// process.
func TestAllocsSend(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector sync.Pool drops values at random, so the count means nothing")
	}
	ctx := context.Background()
	m := &client.Message{
		Topic: "t", Tag: "tag", Keys: []string{"k1", "k2"}, Body: make([]byte, 1024),
		Properties: map[string]string{"a": "1", "b": "2"},
	}
	for _, tc := range []struct {
		name string
		opts []client.ProducerOption
		per  int // messages for each call of send
		most float64
		send func(p *client.Producer) error
	}{
		{"sync", nil, 1, 1, func(p *client.Producer) error {
			_, err := p.Send(ctx, m)
			return err
		}},
		{"async", nil, 100, 2, func(p *client.Producer) error { return queueAll(ctx, p, m, 100) }},
		{
			"linger",
			[]client.ProducerOption{client.WithLinger(time.Millisecond, 64<<10)},
			1000, 0.5,
			func(p *client.Producer) error { return queueAll(ctx, p, m, 1000) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := thriftyProducer(t, &thrifty{}, tc.opts...)
			send := func() {
				if err := tc.send(p); err != nil {
					t.Fatal(err)
				}
			}
			for range 50 {
				send()
			}
			if n := testing.AllocsPerRun(50, send) / float64(tc.per); n > tc.most {
				t.Errorf("%v allocations for a message, want %v at most", n, tc.most)
			} else {
				t.Logf("%v allocations for a message", n)
			}
		})
	}
}

func queueAll(ctx context.Context, p *client.Producer, m *client.Message, n int) error {
	for range n {
		if err := p.SendAsync(ctx, m, ignore); err != nil {
			return err
		}
	}
	return p.Flush(ctx)
}

func ignore(client.SendResult, error) {}

// TestBufferedMemory: a buffer that is full by bytes, with 100 000 messages and more that a broker
// does not answer, takes the configured bytes and 20 % at most, the callers' bodies included. It is
// not parallel: it measures the heap of the process.
func TestBufferedMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory is part of the heap that is measured")
	}
	const n = 100_000
	linger := client.WithLinger(time.Millisecond, 64<<10)
	for _, tc := range []struct {
		name  string
		body  int
		share int // of the buffer that a message takes, at most
		opts  []client.ProducerOption
	}{
		{"single/10", 10, 1400, nil},
		{"single/1000", 1000, 2400, nil},
		{"linger/10", 10, 250, []client.ProducerOption{linger}},
		{"linger/1000", 1000, 1250, []client.ProducerOption{linger}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gate := make(chan struct{})
			bound := n * tc.share
			opts := append(tc.opts, client.WithBuffer(100*n, bound), client.WithSendTimeout(time.Minute))
			p := thriftyProducer(t, &thrifty{gate: gate}, opts...)
			before := heap()
			held := fillBuffer(t, p, tc.body)
			used := heap() - before
			if held < n {
				t.Errorf("the buffer was full after %d messages, want %d", held, n)
			}
			if limit := int64(bound) * 6 / 5; used > limit {
				t.Errorf("%d bytes are in use, configured %d, allowed %d", used, bound, limit)
			} else {
				t.Logf("%d messages, %d bytes are in use, configured %d", held, used, bound)
			}
			close(gate)
			if err := p.Flush(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// fillBuffer sends until the buffer is full and returns how many messages it took.
func fillBuffer(t *testing.T, p *client.Producer, body int) (n int) {
	t.Helper()
	for ; ; n++ {
		m := &client.Message{Topic: "t", Body: make([]byte, body), Keys: []string{strconv.Itoa(n)}}
		switch err := p.TrySendAsync(context.Background(), m, ignore); {
		case errors.Is(err, client.ErrBufferFull):
			return n
		case err != nil:
			t.Fatalf("message %d: %v", n, err)
		}
	}
}

// heap returns the bytes of live objects.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkSend(b *testing.B) {
	m := &client.Message{Topic: "t", Body: make([]byte, 1024)}
	b.Run("sync-64", func(b *testing.B) {
		p := thriftyProducer(b, &thrifty{})
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := p.Send(context.Background(), m); err != nil {
					b.Error(err)
				}
			}
		})
	})
	for name, opts := range map[string][]client.ProducerOption{
		"async": nil, "linger": {client.WithLinger(time.Millisecond, 64<<10)},
	} {
		b.Run(name, func(b *testing.B) {
			p := thriftyProducer(b, &thrifty{}, opts...)
			b.ReportAllocs()
			if err := queueAll(context.Background(), p, m, b.N); err != nil {
				b.Fatal(err)
			}
		})
	}
}
