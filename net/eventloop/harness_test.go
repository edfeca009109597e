// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/zerocopy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience is how long anything in these tests may take before it counts as hanging.
const patience = 20 * time.Second

// forBackends runs a test once for each backend of the platform. All of them must behave alike.
func forBackends(t *testing.T, f func(t *testing.T, cfg eventloop.Config)) {
	for _, name := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, backendConfig(name))
		})
	}
}

func backends() []string {
	if runtime.GOOS == "linux" {
		return []string{eventloop.BackendNet, eventloop.BackendGnet, eventloop.BackendEpoll}
	}
	return []string{eventloop.BackendNet}
}

func backendConfig(name string) eventloop.Config {
	cfg := eventloop.DefaultConfig()
	cfg.Backend = name
	cfg.Loops = 1
	return cfg
}

// Codes of the test protocol.
const (
	codeEcho    = 1 // answers with the body
	codeRegions = 2 // answers with the runs of the file that the body lists
	codeClose   = 3 // closes the connection
	codeFlood   = 4 // answers with as many KiB as the body says
	codeDefer   = 5 // answers from another goroutine
	codeCount   = 6 // answers nothing
)

// run is a range of the data file, as listed in the body of a codeRegions request.
type run struct{ off, size int }

// harness is a server with handlers of the test protocol, and what they saw.
type harness struct {
	t    testing.TB
	srv  *eventloop.Server
	data *dataFile

	lossy bool // Close may end with an error

	opened, closed, commands, reads atomic.Int64

	mu      sync.Mutex
	causes  []error
	notices []string
	refs    []eventloop.Ref
}

func start(t testing.TB, cfg eventloop.Config, data *dataFile) *harness {
	t.Helper()
	h := &harness{t: t, data: data}
	cfg.Notice = func(msg string, kv ...any) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.notices = append(h.notices, fmt.Sprint(append([]any{msg}, kv...)...))
	}
	addrs := []string{"127.0.0.1:0", "127.0.0.1:0"}
	srv, err := eventloop.Listen(cfg, addrs, func(l *eventloop.Loop) eventloop.Handler {
		return &handler{h: h}
	})
	if err != nil {
		t.Fatal(err)
	}
	h.srv = srv
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *harness) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.srv.Close(ctx); err != nil && !h.lossy {
		h.t.Errorf("close: %v", err)
	}
	if o, c := h.opened.Load(), h.closed.Load(); o != c {
		h.t.Errorf("%d connections opened, %d closed", o, c)
	}
	if st := h.srv.Stats(); st.Open != 0 {
		h.t.Errorf("%d connections are open after Close", st.Open)
	}
}

// cause waits for the first n closed connections and returns the cause of the last of them.
func (h *harness) cause(n int) error {
	h.t.Helper()
	var err error
	eventually(h.t, "a connection is closed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.causes) < n {
			return false
		}
		err = h.causes[n-1]
		return true
	})
	return err
}

// ref returns the i-th connection that was opened.
func (h *harness) ref(i int) eventloop.Ref {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refs[i]
}

func (h *harness) noticed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.notices...)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// handler is the test protocol on one loop.
type handler struct {
	h       *harness
	regions []zerocopy.Region
	batch   int
}

func (s *handler) Open(c *eventloop.Conn) {
	s.h.opened.Add(1)
	s.h.mu.Lock()
	s.h.refs = append(s.h.refs, c.Ref())
	s.h.mu.Unlock()
}

func (s *handler) Close(c *eventloop.Conn, cause error) {
	s.h.closed.Add(1)
	c.WriteRegions([]zerocopy.Region{zerocopy.Bytes([]byte("late"))})
	c.Commit(append(c.Reserve(), "late"...))
	s.h.mu.Lock()
	s.h.causes = append(s.h.causes, cause)
	s.h.mu.Unlock()
}

func (s *handler) ReadDone() {
	s.h.reads.Add(1)
	if s.batch == 0 {
		s.h.t.Error("ReadDone without a command")
	}
	s.batch = 0
}

func (s *handler) Command(c *eventloop.Conn, cmd *remoting.Command) {
	s.batch++
	s.h.commands.Add(1)
	switch cmd.Code {
	case codeEcho:
		reply(c, cmd, cmd.Body)
	case codeClose:
		reply(c, cmd, cmd.Body)
		c.CloseWith(errors.New("asked to"))
	case codeFlood:
		reply(c, cmd, make([]byte, int(binary.BigEndian.Uint32(cmd.Body))<<10))
	case codeDefer:
		ref, own := c.Ref(), cmd.Clone()
		go ref.Post(&deferred{own})
	case codeRegions:
		s.runs(c, cmd)
	}
}

type deferred struct{ cmd *remoting.Command }

func (d *deferred) Run(c *eventloop.Conn) {
	if c != nil {
		reply(c, d.cmd, d.cmd.Body)
	}
}

func reply(c *eventloop.Conn, cmd *remoting.Command, body []byte) {
	e := remoting.Begin(c.ReserveSize(512+len(body)), cmd.Reply(remoting.Success))
	c.Commit(e.End(body))
}

func (s *handler) runs(c *eventloop.Conn, cmd *remoting.Command) {
	s.regions = s.regions[:0]
	total := 0
	for b := cmd.Body; len(b) >= 8; b = b[8:] {
		off, size := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
		s.regions = append(s.regions, s.h.data.region(int(off), int(size)))
		total += int(size)
	}
	e := remoting.Begin(c.Reserve(), cmd.Reply(remoting.Success))
	c.Commit(e.EndRegions(total))
	c.WriteRegions(s.regions)
}

// dataFile is a mapped file in which every byte follows from its offset.
type dataFile struct {
	f    *os.File
	mem  []byte
	live atomic.Int64 // regions not released
}

func pattern(off int) byte { return byte(off*7 ^ off>>8*13 ^ off>>16*31) }

func newDataFile(t testing.TB, size int) *dataFile {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = pattern(i)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	d := &dataFile{f: f, mem: b}
	mapData(t, d, size)
	t.Cleanup(func() {
		if n := d.live.Load(); n != 0 {
			t.Errorf("%d regions were not released", n)
		}
		_ = f.Close()
	})
	return d
}

func (d *dataFile) Release() { d.live.Add(-1) }

func (d *dataFile) region(off, size int) zerocopy.Region {
	d.live.Add(1)
	return zerocopy.Region{
		FD: int(d.f.Fd()), Off: int64(off), Mem: d.mem[off : off+size], Size: size, Holder: d,
	}
}

// peer is the client side of one connection.
type peer struct {
	t    testing.TB
	conn *net.TCPConn
	r    *bufio.Reader
	next remoting.Opaque
	cmd  remoting.Command
}

func (h *harness) connect(listener int) *peer {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.srv.Addrs()[listener].String())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	return &peer{t: h.t, conn: conn.(*net.TCPConn), r: bufio.NewReader(conn)}
}

// connectSmall returns a connection for one that does not read. Its kernel takes little, so that what
// it leaves unread is with the server, on a machine with large socket buffers too.
func (h *harness) connectSmall() *peer {
	h.t.Helper()
	p := h.connect(0)
	if err := p.conn.SetReadBuffer(16 << 10); err != nil {
		h.t.Fatal(err)
	}
	return p
}

func frame(code int32, opaque remoting.Opaque, body []byte) []byte {
	e := remoting.Begin(nil, remoting.Head{Code: code, Opaque: opaque, Version: 513})
	return e.End(body)
}

func runsBody(runs []run) []byte {
	var b []byte
	for _, r := range runs {
		b = binary.BigEndian.AppendUint32(b, uint32(r.off))
		b = binary.BigEndian.AppendUint32(b, uint32(r.size))
	}
	return b
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next answer.
func (p *peer) read() (*remoting.Command, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(p.r, b); err != nil {
		return nil, err
	}
	return &p.cmd, p.cmd.Decode(b)
}

// call sends one request and returns the body of its answer.
func (p *peer) call(code int32, body []byte) []byte {
	p.t.Helper()
	p.next++
	p.write(frame(code, p.next, body))
	cmd, err := p.read()
	if err != nil {
		p.t.Fatal(err)
	}
	if cmd.Opaque != p.next || !cmd.IsResponse() {
		p.t.Fatalf("answer %+v to request %d", cmd, p.next)
	}
	return cmd.Body
}

// hungUp waits for the server to close the connection.
func (p *peer) hungUp() {
	p.t.Helper()
	_, err := io.Copy(io.Discard, p.conn)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		p.t.Fatal("the server did not close the connection")
	}
}
