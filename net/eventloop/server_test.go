// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
)

func TestEcho(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		for listener := range 2 {
			p := h.connect(listener)
			for _, size := range []int{1, 100, 20_000, 300_000, 3 << 20} {
				body := bytes.Repeat([]byte{byte(size)}, size)
				if got := p.call(codeEcho, body); !bytes.Equal(got, body) {
					t.Fatalf("%d bytes: echo differs (%d bytes)", size, len(got))
				}
			}
			if got := p.call(codeDefer, []byte("later")); string(got) != "later" {
				t.Fatalf("deferred answer %q", got)
			}
		}
		if h.srv.Addrs()[0] == h.srv.Addrs()[1] || h.srv.Addrs()[0].Port() == 0 {
			t.Fatalf("addresses %v", h.srv.Addrs())
		}
		st := h.srv.Stats()
		if st.Open != 2 || st.Total != 2 || st.Frames != 12 || st.BytesIn < 6<<20 || st.BytesOut < 6<<20 {
			t.Fatalf("%+v", st)
		}
	})
}

// TestListener proves that the listener index and the peer's address are right.
func TestListener(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		for i, listener := range []int{1, 0, 1} {
			p := h.connect(listener)
			p.call(codeEcho, []byte("x"))
			ref := h.ref(i)
			got := make(chan string, 2)
			ref.Post(taskFunc(func(c *eventloop.Conn) {
				if c.Listener() != listener {
					t.Errorf("listener %d, want %d", c.Listener(), listener)
				}
				got <- c.RemoteAddr().String()
			}))
			if a := <-got; a != p.conn.LocalAddr().String() {
				t.Errorf("remote address %s, want %s", a, p.conn.LocalAddr())
			}
		}
	})
}

type taskFunc func(c *eventloop.Conn)

func (f taskFunc) Run(c *eventloop.Conn) { f(c) }

// TestPipeline proves that answers keep the order of a connection, and that the frames of one read
// are handed over together.
func TestPipeline(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		var all []byte
		const count = 1000
		for i := range count {
			all = append(all, frame(codeEcho, 1, []byte{byte(i), byte(i >> 8)})...)
		}
		p.write(all)
		for i := range count {
			cmd, err := p.read()
			if err != nil {
				t.Fatal(err)
			}
			if want := []byte{byte(i), byte(i >> 8)}; !bytes.Equal(cmd.Body, want) {
				t.Fatalf("answer %d has body %x, want %x", i, cmd.Body, want)
			}
		}
		if got := h.reads.Load(); got > count/8 {
			t.Fatalf("%d frames came in %d batches", count, got)
		}
	})
}

// TestTrickle proves that a frame may arrive in any pieces.
func TestTrickle(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		f := frame(codeEcho, 7, []byte("abc"))
		f = append(f, frame(codeEcho, 8, []byte("def"))...)
		before := int64(0)
		for i := range f {
			before = int64(h.srv.Stats().BytesIn)
			p.write(f[i : i+1])
			eventually(t, "the byte is read", func() bool {
				return int64(h.srv.Stats().BytesIn) > before
			})
		}
		for _, want := range []string{"abc", "def"} {
			cmd, err := p.read()
			if err != nil || string(cmd.Body) != want {
				t.Fatalf("answer %q, %v", cmd.Body, err)
			}
		}
	})
}

func TestCloseWith(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		// What was queued before still arrives; what is asked afterwards is not handled.
		p.write(append(frame(codeClose, 1, []byte("bye")), frame(codeEcho, 2, []byte("x"))...))
		cmd, err := p.read()
		if err != nil || string(cmd.Body) != "bye" {
			t.Fatalf("answer %+v, %v", cmd, err)
		}
		if _, err := p.read(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last answer: %v", err)
		}
		if err := h.cause(1); err.Error() != "asked to" {
			t.Fatalf("cause %v", err)
		}
		if n := h.commands.Load(); n != 1 {
			t.Fatalf("%d commands, want 1", n)
		}
	})
}

// TestPeerHangsUp proves the cause, and that a peer that only stops sending gets its answers.
func TestPeerHangsUp(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		p.write(frame(codeEcho, 1, []byte("abc")))
		if err := p.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		cmd, err := p.read()
		if err != nil || string(cmd.Body) != "abc" {
			t.Fatalf("answer %+v, %v", cmd, err)
		}
		if err := h.cause(1); !errors.Is(err, io.EOF) {
			t.Fatalf("cause %v", err)
		}
	})
}

// TestPostToGone proves that tasks for a closed connection run without one, also when its slot has
// a new owner, and after the server was closed.
func TestPostToGone(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		p.call(codeEcho, []byte("x"))
		old := h.ref(0)
		_ = p.conn.Close()
		h.cause(1)
		q := h.connect(0)
		q.call(codeEcho, []byte("x"))
		ran := make(chan bool, 10)
		expect := func(gone bool) {
			t.Helper()
			select {
			case got := <-ran:
				if got != gone {
					t.Fatalf("connection gone: %v, want %v", got, gone)
				}
			case <-time.After(patience):
				t.Fatal("the task did not run")
			}
		}
		task := taskFunc(func(c *eventloop.Conn) { ran <- c == nil })
		old.Post(task)
		expect(true)
		current := h.ref(1)
		if current == old || old.Loop() != current.Loop() {
			t.Fatal("references do not tell connections apart")
		}
		current.Loop().Post([]eventloop.Posted{{To: current, Task: task}, {To: old, Task: task}})
		expect(false)
		expect(true)
		h.stop()
		current.Post(task)
		expect(true)
		current.Loop().Post([]eventloop.Posted{{To: current, Task: task}})
		expect(true)
		eventloop.Ref{}.Post(task)
		expect(true)
	})
}

// TestPostStorm proves that tasks from many goroutines are neither lost nor run twice.
func TestPostStorm(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		p.call(codeEcho, []byte("x"))
		ref := h.ref(0)
		const workers, each = 8, 500
		ran := 0 // confined to the loop
		done := make(chan struct{})
		task := taskFunc(func(*eventloop.Conn) {
			if ran++; ran == workers*each {
				close(done)
			}
		})
		for w := range workers {
			go func() {
				for i := range each {
					if (w+i)%2 == 0 {
						ref.Post(task)
					} else {
						ref.Loop().Post([]eventloop.Posted{{To: ref, Task: task}})
					}
				}
			}()
		}
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("tasks were lost")
		}
	})
}

// TestCloseDrains proves that Close sends what is queued before it hangs up.
func TestCloseDrains(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		p.write(frame(codeFlood, 1, []byte{0, 0, 0x20, 0})) // 8 MiB
		eventually(t, "the request is handled", func() bool { return h.commands.Load() == 1 })
		closed := make(chan struct{})
		go func() {
			h.stop()
			close(closed)
		}()
		cmd, err := p.read()
		if err != nil || len(cmd.Body) != 8<<20 {
			t.Fatalf("answer %d bytes, %v", len(cmd.Body), err)
		}
		p.hungUp()
		<-closed
		if err := h.cause(1); !errors.Is(err, eventloop.ErrServerClosed) {
			t.Fatalf("cause %v", err)
		}
		if c, err := net.Dial("tcp", h.srv.Addrs()[0].String()); err == nil {
			_ = c.Close()
			t.Fatal("still accepting after Close")
		}
	})
}

// TestCloseBounded proves that a peer that does not read cannot hold up Close.
func TestCloseBounded(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		h.lossy = true
		p := h.connect(0)
		for range 3 {
			p.write(frame(codeFlood, 1, []byte{0, 0, 0x30, 0})) // 12 MiB
		}
		eventually(t, "requests are handled", func() bool { return h.commands.Load() > 0 })
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if err := h.srv.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Close: %v", err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Fatalf("Close took %v", took)
		}
		if h.opened.Load() != h.closed.Load() {
			t.Fatal("connections were not closed")
		}
	})
}

func TestListenErrors(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		none := func(*eventloop.Loop) eventloop.Handler { return nil }
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		taken := ln.Addr().String()
		for _, addrs := range [][]string{nil, {"nonsense"}, {taken}, {"127.0.0.1:0", taken}} {
			if _, err := eventloop.Listen(cfg, addrs, none); err == nil {
				t.Errorf("listen on %v: no error", addrs)
			} else if !strings.HasPrefix(err.Error(), "eventloop: ") {
				t.Errorf("listen on %v: %v", addrs, err)
			}
		}
		cfg.Backend = "nonesuch"
		if _, err := eventloop.Listen(cfg, []string{"127.0.0.1:0"}, none); err == nil {
			t.Error("unknown backend: no error")
		}
	})
}
