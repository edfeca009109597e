// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// manyPieces is a request whose answer is a hundred pieces of a file, and the bytes of these.
func manyPieces(opaque remoting.Opaque) (request, answer []byte) {
	runs := make([]run, 100)
	for i := range runs {
		runs[i] = run{off: 1000*i + int(opaque), size: 100}
		for at := range runs[i].size {
			answer = append(answer, pattern(runs[i].off+at))
		}
	}
	return frame(codeRegions, opaque, runsBody(runs)), answer
}

// TestPipelinedPieces has a client ask for a thousand times more pieces than may wait, before it reads
// the first one. It reads, so it gets all of them, in order.
func TestPipelinedPieces(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, dataSize)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.CopyBelow = 64 // each piece is sent from where it lies
		cfg.MaxOutSegments = 256
		h := start(t, cfg, data)
		p := h.connect(0)
		const count = 2560
		go func() {
			var all []byte
			for i := range count {
				request, _ := manyPieces(remoting.Opaque(i))
				all = append(all, request...)
			}
			if _, err := p.conn.Write(all); err != nil {
				t.Error(err)
			}
		}()
		eventually(t, "it waits for its peer", func() bool { return settled(&h.commands) })
		for i := range count {
			cmd, err := p.read()
			if err != nil {
				t.Fatalf("answer %d: %v; %+v", i, err, h.srv.Stats())
			}
			_, want := manyPieces(remoting.Opaque(i))
			if cmd.Opaque != remoting.Opaque(i) || !bytes.Equal(cmd.Body, want) {
				t.Fatalf("answer %d: opaque %d, %d bytes", i, cmd.Opaque, len(cmd.Body))
			}
		}
		if st := h.srv.Stats(); st.SlowReaders != 0 || st.Open != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestPipelinedBytes is the same with answers that the server keeps in memory: not much more is made
// than may wait.
func TestPipelinedBytes(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutBytes = 16 << 20
		h := start(t, cfg, nil)
		p := h.connect(0)
		const count, size = 200, 512 << 10
		request := frame(codeFlood, 1, []byte{0, 0, size >> 18, size >> 10 & 0xff})
		p.write(bytes.Repeat(request, count))
		eventually(t, "it waits for its peer", func() bool { return settled(&h.commands) })
		// Two MiB may wait, and the kernel takes some.
		if n := h.commands.Load(); n > 40 {
			t.Errorf("%d requests were handled for a peer that reads nothing", n)
		}
		for i := range count {
			cmd, err := p.read()
			if err != nil || len(cmd.Body) != size {
				t.Fatalf("answer %d: %+v, %v; %+v", i, cmd, err, h.srv.Stats())
			}
		}
	})
}

// settled reports whether a counter has begun to count and now rests.
func settled(n *atomic.Int64) bool {
	before := n.Load()
	<-time.After(100 * time.Millisecond)
	return before > 0 && n.Load() == before
}

// TestNeverReads has a client go on asking and never read: what is kept for it is bounded, however its
// answers are made up, and it is closed when nothing has moved for the idle timeout.
func TestNeverReads(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, dataSize)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.CopyBelow, cfg.IdleTimeout, cfg.MaxOutBytes = 64, 500*time.Millisecond, 8<<20
		h := start(t, cfg, data)
		p := h.connectSmall()
		request, _ := manyPieces(1)
		go func() {
			for all := bytes.Repeat(request, 100); ; {
				if _, err := p.conn.Write(all); err != nil {
					return
				}
			}
		}()
		begun := time.Now()
		err := h.cause(1)
		// gnet goes on reading, and then comes to the bound of memory.
		if took := time.Since(begun); took < cfg.IdleTimeout && cfg.Backend != eventloop.BackendGnet {
			t.Errorf("closed after %v: %v; %v", took, err, h.noticed())
		}
		// 1024 pieces are ten answers. What the kernel takes of small ones is some MiB.
		if n := h.commands.Load(); n > 2000 {
			t.Errorf("%d requests were handled", n)
		}
		checkTooSlow(t, h, h.connect(0))
	})
}

// later is a task that makes an answer when there is room for it.
type later struct {
	cmd  *remoting.Command
	size int
	ran  *atomic.Int64
	late *atomic.Int64 // of these, the ones that had no connection any more
}

func (l *later) Run(c *eventloop.Conn) {
	if c == nil {
		l.late.Add(1)
		l.ran.Add(1)
		return
	}
	if c.Full() {
		c.Later(l)
		return
	}
	l.ran.Add(1)
	reply(c, l.cmd, make([]byte, l.size))
}

// postLater posts tasks that answer to the first connection.
func postLater(h *harness, count, size int) (ran, late *atomic.Int64) {
	ran, late = new(atomic.Int64), new(atomic.Int64)
	ref := h.ref(0)
	var tasks []eventloop.Posted
	for i := range count {
		cmd := &remoting.Command{Opaque: remoting.Opaque(i)}
		tasks = append(tasks, eventloop.Posted{To: ref, Task: &later{cmd, size, ran, late}})
	}
	ref.Loop().Post(tasks)
	return ran, late
}

// TestLater posts far more answers than may wait, all at once: to a client that reads they all go, in
// order, and what it asks meanwhile is answered behind them.
func TestLater(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutBytes = 8 << 20
		h := start(t, cfg, nil)
		p := h.connect(0)
		p.call(codeEcho, []byte("x"))
		const count, size = 1000, 64 << 10
		ran, _ := postLater(h, count, size)
		eventually(t, "it waits for its peer", func() bool { return settled(ran) })
		if n := ran.Load(); n > 200 {
			t.Errorf("%d answers were made for a peer that reads nothing", n)
		}
		p.write(frame(codeEcho, count, []byte("behind")))
		for i := range count + 1 {
			cmd, err := p.read()
			if err != nil || cmd.Opaque != remoting.Opaque(i) {
				t.Fatalf("answer %d: %+v, %v; %+v", i, cmd, err, h.srv.Stats())
			}
		}
	})
}

// TestLaterOfClosed proves that tasks that wait for room run without a connection when theirs ends.
func TestLaterOfClosed(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutBytes = 8 << 20
		h := start(t, cfg, nil)
		p := h.connectSmall()
		p.call(codeEcho, []byte("x"))
		const count = 1000
		ran, late := postLater(h, count, 64<<10)
		eventually(t, "it waits for its peer", func() bool { return settled(ran) })
		_ = p.conn.SetLinger(0)
		_ = p.conn.Close()
		eventually(t, "all have run", func() bool { return ran.Load() == count })
		if late.Load() == 0 {
			t.Error("none of them came too late")
		}
	})
}

// TestCrowdedBySilent proves that where all connections together have too much, those go that take
// nothing, and not one that reads.
func TestCrowdedBySilent(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		cfg.MaxOutTotal = 36 << 20
		h := start(t, cfg, nil)
		reader := h.connect(0)
		flood := frame(codeFlood, 1, []byte{0, 0, 0x28, 0}) // 10 MiB
		small := frame(codeFlood, 2, []byte{0, 0, 4, 0})    // 1 MiB
		for range 6 {
			h.connectSmall().write(flood)
			reader.write(bytes.Repeat(small, 8))
			for range 8 {
				if cmd, err := reader.read(); err != nil || len(cmd.Body) != 1<<20 {
					t.Fatalf("the reader got %+v, %v; %+v", cmd, err, h.srv.Stats())
				}
			}
		}
		eventually(t, "some are closed", func() bool { return h.srv.Stats().SlowReaders > 0 })
	})
}

// BenchmarkFrames is what a command costs on its way in, by itself.
func BenchmarkFrames(b *testing.B) {
	for _, backend := range backends() {
		b.Run(backend, func(b *testing.B) {
			h := start(b, backendConfig(backend), nil)
			p := h.connect(0)
			const batch = 1000
			all := bytes.Repeat(frame(codeCount, 1, make([]byte, 16)), batch)
			b.ResetTimer()
			for n := 0; n < b.N; n += batch {
				p.write(all)
			}
			p.call(codeEcho, nil) // behind all of them
		})
	}
}
