// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
)

// raw returns a frame of the given mark and header, whatever they say.
func raw(mark uint32, header string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	b = binary.BigEndian.AppendUint32(b, mark)
	return append(b, header...)
}

// badFrames are inputs that must end the connection and nothing else.
func badFrames() map[string][]byte {
	huge := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	remark := "\x00\x0a\x00\x01\xff\x00\x00\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff"
	m := map[string][]byte{
		"length 0":             huge(0),
		"length 1":             append(huge(1), 0),
		"length 3":             append(huge(3), 0, 0, 0),
		"length 4, header 5":   raw(5, ""),
		"header beyond frame":  raw(0xffffff, "{}"),
		"length E7A60829":      huge(0xE7A60829),
		"length -1":            huge(0xffffffff),
		"length over the cap":  huge(16777213),
		"json cut":             raw(9, `{"code":1`),
		"json code is no text": raw(14, `{"code":"abc"}`),
		"json is an array":     raw(2, `[]`),
		"json deep":            raw(20000, strings.Repeat("[", 20000)),
		"binary cut":           raw(1<<24|4, "\x00\x0a\x00\x01"),
		"binary huge remark":   raw(1<<24|uint32(len(remark)), remark),
		"no header":            raw(0, ""),
	}
	for _, kind := range []uint32{2, 3, 127, 128, 255} {
		m[fmt.Sprint("serialize type ", kind)] = raw(kind<<24|2, "{}")
	}
	return m
}

// TestBadFrames proves that each bad input closes its connection, that answers to requests before
// it still arrive, and that the operator hears of the peer once a minute.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		count := 0
		for name, bad := range badFrames() {
			for _, first := range []bool{true, false} {
				p := h.connect(0)
				if !first {
					p.write(append(frame(codeEcho, 1, []byte("good")), bad...))
					if cmd, err := p.read(); err != nil || string(cmd.Body) != "good" {
						t.Fatalf("%s: answer before it: %v", name, err)
					}
				} else {
					p.write(bad)
				}
				p.hungUp()
				count++
				if err := h.cause(count); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("%s: cause %v", name, err)
				}
			}
		}
		if n := h.noticed(); len(n) != 1 || !strings.Contains(n[0], "bad frame") {
			t.Errorf("notices %q", n)
		}
		if st := h.srv.Stats(); st.Refused != uint64(count) || st.Frames != uint64(count/2) {
			t.Errorf("%d inputs: %+v", count, st)
		}
	})
}

// TestLyingRemark proves that frames which claim a remark of 2 GiB cost no memory.
func TestLyingRemark(t *testing.T) {
	bad := badFrames()["binary huge remark"]
	for _, name := range backends() {
		t.Run(name, func(t *testing.T) {
			h := start(t, backendConfig(name), nil)
			normal := h.connect(0)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			const count = 500
			for range count {
				p := h.connect(1)
				p.write(bad)
				p.hungUp()
				_ = p.conn.Close()
				normal.call(codeEcho, []byte("x"))
			}
			h.cause(count)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
				t.Fatalf("heap has grown by %d bytes", grown)
			}
		})
	}
}

// TestOtherProtocols proves that clients of other protocols are recognised and sent away within
// 100 ms. Since the machine may be busy with something else, one quick try of a few is enough.
func TestOtherProtocols(t *testing.T) {
	for _, c := range []struct{ name, send, notice string }{
		{
			"grpc", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
			"a gRPC client speaks to the remoting port, use the proxy port",
		},
		{"get", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP client"},
		{"post", "POST /a HTTP/1.0\r\n\r\n", "an HTTP client"},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS client"},
		{"ssh", "SSH-2.0-OpenSSH_9.6\r\n", "an SSH client"},
		{"redis", "*1\r\n$4\r\nPING\r\n", "a Redis client"},
		{"redis inline", "PING\r\n", "a Redis client"},
		{"proxy", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "PROXY"},
		{"something", "hello there", "bad frame"},
	} {
		for _, backend := range backends() {
			t.Run(c.name+"/"+backend, func(t *testing.T) {
				h := start(t, backendConfig(backend), nil)
				best := patience
				for try := 0; try < 5 && best > 100*time.Millisecond; try++ {
					best = min(best, sendAway(t, h, c.send))
				}
				if best > 100*time.Millisecond {
					t.Errorf("closed after %v", best)
				}
				if n := h.noticed(); len(n) != 1 || !strings.Contains(n[0], c.notice) {
					t.Errorf("notices %q", n)
				}
			})
		}
	}
}

// sendAway returns how long the server took to close a connection that began with text.
func sendAway(t *testing.T, h *harness, text string) time.Duration {
	t.Helper()
	p := h.connect(0)
	begun := time.Now()
	p.write([]byte(text))
	if strings.HasPrefix(text, "GET ") {
		resp, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("answer %+v, %v", resp, err)
		}
		page, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(page), "RocketMQ remoting") {
			t.Fatalf("page %q, %v", page, err)
		}
	}
	p.hungUp()
	return time.Since(begun)
}
