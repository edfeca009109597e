// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestSlowReader proves that a client that never reads its answers is closed at the bound of bytes,
// with a notice, and that another one does not suffer.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutBytes = 8 << 20
		h := start(t, cfg, nil)
		other, p := h.connect(0), h.connectSmall()
		p.write(frame(codeFlood, 1, []byte{0, 0, 0x50, 0})) // 20 MiB
		checkTooSlow(t, h, other)
	})
}

// checkTooSlow expects that one connection was closed as a slow reader, and that another still works.
func checkTooSlow(t *testing.T, h *harness, other *peer) {
	t.Helper()
	if err := h.cause(1); !errors.Is(err, eventloop.ErrSlowReader) {
		t.Fatalf("cause %v", err)
	}
	if got := other.call(codeEcho, []byte("x")); string(got) != "x" {
		t.Fatalf("another connection answers %q", got)
	}
	if n := h.noticed(); len(n) == 0 || !strings.Contains(n[len(n)-1], "does not read") {
		t.Fatalf("notices %q", n)
	}
	if st := h.srv.Stats(); st.SlowReaders != 1 || st.IdleClosed != 0 {
		t.Fatalf("%+v", st)
	}
}

// TestCrowded proves that all connections together are bounded: where one alone could have its answers
// wait, many cannot, and those that read are served.
func TestCrowded(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutTotal = 36 << 20
		h := start(t, cfg, nil)
		other := h.connect(0)
		request := frame(codeFlood, 1, []byte{0, 0, 0x28, 0}) // 10 MiB
		const count = 8
		for range count {
			h.connectSmall().write(request)
		}
		eventually(t, "some are closed", func() bool { return h.srv.Stats().SlowReaders > 0 })
		eventually(t, "all are answered or closed", func() bool { return h.commands.Load() >= count })
		if st := h.srv.Stats(); st.SlowReaders > count-2 {
			t.Errorf("also those are closed for whom there was room: %+v", st)
		}
		if got := other.call(codeEcho, []byte("x")); string(got) != "x" {
			t.Errorf("another connection answers %q", got)
		}
	})
}

func scattered(count, size int) []run {
	runs := make([]run, count)
	for i := range runs {
		runs[i] = run{off: i * (size + 1), size: size}
	}
	return runs
}

// TestPause proves that a client that does not read is not read from either, and that it gets every
// answer once it reads.
func TestPause(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutBytes = 16 << 20 // much less than all answers together
		if cfg.Backend == eventloop.BackendGnet {
			cfg.MaxOutBytes = 40 << 20 // it goes on reading
		}
		h := start(t, cfg, nil)
		p := h.connect(0)
		body := make([]byte, 1<<20)
		const count = 60
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range count {
				if _, err := p.conn.Write(frame(codeEcho, remoting.Opaque(i), body)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		eventually(t, "the first requests are read", func() bool { return h.commands.Load() > 0 })
		for i := range count {
			cmd, err := p.read()
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			if cmd.Opaque != remoting.Opaque(i) || len(cmd.Body) != len(body) {
				t.Fatalf("answer %d: opaque %d, %d bytes", i, cmd.Opaque, len(cmd.Body))
			}
		}
		<-sent
	})
}

func TestIdle(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.IdleTimeout = 300 * time.Millisecond
		h := start(t, cfg, nil)
		silent, busy := h.connect(0), h.connect(1)
		begun := time.Now()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					busy.call(codeEcho, []byte("x"))
				}
			}
		})
		silent.hungUp()
		if took := time.Since(begun); took < cfg.IdleTimeout {
			t.Errorf("closed after %v", took)
		}
		if err := h.cause(1); !errors.Is(err, eventloop.ErrIdle) {
			t.Errorf("cause %v", err)
		}
		close(stop)
		wg.Wait()
		busy.call(codeEcho, []byte("still here"))
		if st := h.srv.Stats(); st.IdleClosed != 1 || st.Open != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestHalfFrame proves that a client that sends half a frame and stays is closed, even if a byte
// comes now and then so that it is never idle.
func TestHalfFrame(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.FrameTimeout = 300 * time.Millisecond
		h := start(t, cfg, nil)
		p, stuck, other := h.connect(0), h.connect(0), h.connect(0)
		stuck.write([]byte{0, 0})
		whole := frame(codeEcho, 1, make([]byte, 10_000))
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range whole {
				if _, err := p.conn.Write(whole[i : i+1]); err != nil {
					return
				}
				<-time.After(5 * time.Millisecond)
			}
		})
		p.hungUp()
		stuck.hungUp()
		wg.Wait()
		for i := range 2 {
			if err := h.cause(i + 1); !errors.Is(err, eventloop.ErrFrameTimeout) {
				t.Errorf("cause %v", err)
			}
		}
		other.call(codeEcho, []byte("x"))
	})
}

func TestMaxConns(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxConns = 3
		h := start(t, cfg, nil)
		var peers []*peer
		for range 3 {
			p := h.connect(0)
			p.call(codeEcho, []byte("x"))
			peers = append(peers, p)
		}
		h.connect(0).hungUp()
		if n := h.noticed(); len(n) != 1 || !strings.Contains(n[0], "too many") {
			t.Fatalf("notices %q", n)
		}
		_ = peers[0].conn.Close()
		h.cause(1)
		h.connect(0).call(codeEcho, []byte("x"))
	})
}

// TestOpenedAndDropped proves that 1000 connections that come and go at once leave nothing behind.
func TestOpenedAndDropped(t *testing.T) {
	for _, name := range backends() {
		t.Run(name, func(t *testing.T) {
			h := start(t, backendConfig(name), nil)
			stays := h.connect(0)
			stays.call(codeEcho, []byte("x"))
			goroutines, fds := runtime.NumGoroutine(), descriptors(t)
			conns := dialMany(t, h, 1000)
			for _, c := range conns {
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
			eventually(t, "all are gone", func() bool {
				st := h.srv.Stats()
				return st.Total == 1001 && st.Open == 1
			})
			stays.call(codeEcho, []byte("x"))
			eventually(t, "nothing is left", func() bool {
				return runtime.NumGoroutine() <= goroutines && descriptors(t) <= fds
			})
		})
	}
}

func dialMany(t *testing.T, h *harness, count int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, count)
	for i := range conns {
		c, err := net.Dial("tcp", h.srv.Addrs()[i%2].String())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return conns
}

// TestAnnouncedMemory proves that memory follows what has arrived: 1000 connections that announce
// 16 MiB each and send little must cost next to nothing.
func TestAnnouncedMemory(t *testing.T) {
	for _, name := range backends() {
		t.Run(name, func(t *testing.T) {
			h := start(t, backendConfig(name), nil)
			conns := dialMany(t, h, 1000)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for _, c := range conns {
				if _, err := c.Write([]byte{0x00, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 'x'}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "all is read", func() bool { return h.srv.Stats().BytesIn == 9000 })
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
				t.Fatalf("heap has grown by %d bytes", grown)
			}
		})
	}
}
