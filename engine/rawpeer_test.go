// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/net/remoting"
)

// rawPeer writes bytes to a port, frames or not.
type rawPeer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func dialRaw(t testing.TB, addr string) *rawPeer {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, callWithin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &rawPeer{t: t, conn: conn, in: bufio.NewReader(conn)}
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	_ = p.conn.SetWriteDeadline(time.Now().Add(callWithin))
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("write %d bytes: %v", len(b), err)
	}
}

// answer reads one frame, which must come within a limit.
func (p *rawPeer) answer(within time.Duration) (*remoting.Command, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(within))
	var head [4]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(p.in, frame); err != nil {
		return nil, err
	}
	cmd := new(remoting.Command)
	return cmd, cmd.Decode(frame)
}

// hungUp reads until the other side closes and returns what came before that.
func (p *rawPeer) hungUp(within time.Duration) (text string, closed bool) {
	_ = p.conn.SetReadDeadline(time.Now().Add(within))
	b, err := io.ReadAll(p.in)
	return string(b), !errors.Is(err, os.ErrDeadlineExceeded)
}

// rawFrame builds a request frame. Nil fields are absent, empty ones an empty map.
func rawFrame(form remoting.SerializeType, code remoting.RequestCode, opaque int,
	fields map[string]string, body string,
) []byte {
	e := remoting.Begin(nil, remoting.Head{
		Code: int32(code), Version: remoting.ProtocolVersion, Opaque: remoting.Opaque(opaque),
		Serialize: form,
	})
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		e.String(name, fields[name])
	}
	if fields != nil && len(fields) == 0 {
		e.EmptyFields()
	}
	return e.End([]byte(body))
}

// framed puts length and header mark in front of what is said to be a header, and a body behind it.
func framed(form remoting.SerializeType, header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(form)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

// journal collects what a broker logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// lines returns the logged lines that contain every part.
func (j *journal) lines(parts ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for line := range strings.Lines(j.text.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			found = append(found, line)
		}
	}
	return found
}

// logTo makes a broker log to j.
func logTo(j *journal) func(*engine.Config) {
	return func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(j, nil)) }
}

// rssAnon is the anonymous resident memory of a process in bytes.
func rssAnon(t testing.TB, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Skip("memory is not measured: this system has no /proc/PID/status")
	}
	_, rest, ok := strings.Cut(string(text), "RssAnon:")
	value, _, _ := strings.Cut(rest, "kB")
	kb, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if !ok || err != nil {
		t.Fatalf("RssAnon of %d: %v", pid, err)
	}
	return kb << 10
}
