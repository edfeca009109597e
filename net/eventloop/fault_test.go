// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/zerocopy"
)

// TestPeerLeavesMidway proves that a peer that hangs up, orderly or not, while regions are on their
// way ends its connection and releases everything.
func TestPeerLeavesMidway(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, dataSize)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, data)
		for i, linger := range []int{-1, 0} {
			for _, size := range []int{20 << 10, 8 << 20} {
				p := h.connect(0)
				runs := []run{{0, size}, {size + 1, size}}
				for range 4 {
					p.write(frame(codeRegions, 1, runsBody(runs)))
				}
				if _, err := io.ReadFull(p.conn, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				if err := p.conn.SetLinger(linger); err != nil {
					t.Fatal(err)
				}
				_ = p.conn.Close()
				_ = i
			}
		}
		h.cause(4)
		h.stop()
	})
}

// TestFileDeleted proves that a file that is unlinked while it is queued is still sent.
func TestFileDeleted(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		data := newDataFile(t, dataSize)
		h := start(t, cfg, data)
		p := h.connect(0)
		runs := []run{{0, 8 << 20}, {10 << 20, 4 << 20}}
		p.write(frame(codeRegions, 1, runsBody(runs)))
		eventually(t, "the answer is queued", func() bool { return h.commands.Load() == 1 })
		if err := os.Remove(data.f.Name()); err != nil {
			t.Fatal(err)
		}
		cmd, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkRuns(cmd.Body, runs); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFileShort proves that a file that ends before its index says closes the connection, whether
// it would have gone by copy, by writev or by sendfile, and that others do not notice.
func TestFileShort(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		data := newDataFile(t, dataSize)
		h := start(t, cfg, data)
		other := h.connect(0)
		if err := os.Truncate(data.f.Name(), 4<<20); err != nil {
			t.Fatal(err)
		}
		for i, runs := range [][]run{
			{{8 << 20, 100}},
			{{8 << 20, 20 << 10}, {10 << 20, 20 << 10}},
			{{8 << 20, 100 << 10}},
			{{8 << 20, 100 << 10}, {10 << 20, 100 << 10}},
			{{4<<20 - 5, 100 << 10}},
		} {
			p := h.connect(0)
			p.write(frame(codeRegions, 1, runsBody(runs)))
			p.hungUp()
			if err := h.cause(i + 1); err == nil || errors.Is(err, io.EOF) {
				t.Fatalf("%v: cause %v", runs, err)
			}
			if got := other.call(codeEcho, []byte("x")); string(got) != "x" {
				t.Fatalf("another connection answers %q", got)
			}
		}
	})
}

// TestDescriptorReuse opens and closes connections as fast as it can while others have unsent
// output, so that descriptors are reused while reports about their former owners are under way.
func TestDescriptorReuse(t *testing.T) {
	data := newDataFile(t, dataSize)
	for _, name := range backends() {
		t.Run(name, func(t *testing.T) {
			cfg := backendConfig(name)
			cfg.Loops = 2
			before := descriptors(t)
			h := start(t, cfg, data)
			var wg sync.WaitGroup
			const workers, each = 8, 40
			for worker := range workers {
				wg.Go(func() {
					for i := range each {
						if err := reuse(h, worker, i); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			eventually(t, "all connections came and went", func() bool {
				st := h.srv.Stats()
				return st.Total == workers*each && st.Open == 0
			})
			h.stop()
			runtime.GC()
			eventually(t, "all descriptors are closed", func() bool {
				return descriptors(t) <= before
			})
		})
	}
}

// reuse asks for more than the socket takes, and then leaves or reads a byte-exact answer.
func reuse(h *harness, worker, i int) error {
	conn, err := net.Dial("tcp", h.srv.Addrs()[i%2].String())
	if err != nil {
		return err
	}
	defer conn.Close()
	runs := []run{{worker<<20 + i*13, 3 << 20}, {worker<<20 + i*7, 50 << 10}}
	p := &peer{t: h.t, conn: conn.(*net.TCPConn), r: nil}
	if _, err := conn.Write(frame(codeRegions, 1, runsBody(runs))); err != nil {
		return err
	}
	if i%4 != 0 {
		return p.conn.SetLinger(i%2 - 1)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	b := make([]byte, int(head[0])<<24|int(head[1])<<16|int(head[2])<<8|int(head[3]))
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if err := p.cmd.Decode(b); err != nil {
		return err
	}
	return checkRuns(p.cmd.Body, runs)
}

// TestWriteToClosed proves that regions given to a connection that is gone are released.
func TestWriteToClosed(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, 1<<20)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, data)
		p := h.connect(0)
		p.call(codeEcho, []byte("x"))
		ref := h.ref(0)
		done := make(chan struct{})
		ref.Post(taskFunc(func(c *eventloop.Conn) {
			before := c.Queued() // the echo, if its writer has not yet noted that it was sent
			c.CloseWith(errors.New("enough"))
			c.Commit(append(c.Reserve(), "dropped"...))
			c.WriteRegions([]zerocopy.Region{data.region(0, 100), data.region(5000, 100_000)})
			if !c.Closed() || c.Queued() != before {
				t.Errorf("closed %v, %d bytes queued, were %d", c.Closed(), c.Queued(), before)
			}
			close(done)
		}))
		<-done
		p.hungUp()
	})
}
