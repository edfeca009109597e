// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// badFrames are bytes that no client may send, and that must cost it its connection.
func badFrames() map[string][]byte {
	length := func(n uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n), rest...)
	}
	head := `{"code":105,"opaque":1,"flag":0,"version":513,"language":"JAVA"`
	binary64 := func(remark uint32) []byte {
		b := make([]byte, 13, 60)
		b[1] = 105
		b = binary.BigEndian.AppendUint32(b, remark)
		return b[:60]
	}
	bad := map[string][]byte{
		"length 0":              length(0),
		"length 1":              length(1, 0),
		"length 3":              length(3, 0, 0, 0),
		"negative":              length(0xffffffff, 0, 0, 0, 0),
		"most negative":         length(0x80000000),
		"seen in a log":         length(0xe7a60829),
		"one over the limit":    length(16777213, 0, 0, 0, 0),
		"only a header mark":    length(4, 0, 0, 0, 0),
		"binary, only a mark":   length(4, 1, 0, 0, 0),
		"header over the frame": length(10, 0, 0, 0, 7, '{', '}', ' ', ' ', ' ', ' '),
		"header of 16 MiB":      length(10, 0, 0xff, 0xff, 0xff, '{', '}', ' ', ' ', ' ', ' '),
		"JSON, cut":             framed(remoting.JSON, head, ""),
		"JSON, cut in a name":   framed(remoting.JSON, head[:10], ""),
		"JSON, cut in fields":   framed(remoting.JSON, head+`,"extFields":{"topic":"a`, ""),
		"JSON, no object":       framed(remoting.JSON, `[1]`, ""),
		"JSON, rubbish":         framed(remoting.JSON, "\x00\x01\x02\x03", ""),
		"JSON, code is no code": framed(remoting.JSON, `{"code":"x","opaque":1}`, ""),
		"JSON, deep":            framed(remoting.JSON, strings.Repeat(`{"a":`, 10000), ""),
		"JSON, deep lists":      framed(remoting.JSON, `{"code":105,"a":`+strings.Repeat("[", 60000), ""),
		"binary, 1 byte":        framed(remoting.Binary, "\x00", ""),
		"binary, cut":           framed(remoting.Binary, string(make([]byte, 12)), ""),
		"binary, remark W1":     framed(remoting.Binary, string(binary64(0x7fffffff)), ""),
		"binary, remark -2":     framed(remoting.Binary, string(binary64(0xfffffffe)), ""),
		"binary, fields":        framed(remoting.Binary, string(make([]byte, 17))+"\x7f\xff\xff\xff", ""),
		"binary, field name": framed(remoting.Binary,
			string(make([]byte, 17))+"\x00\x00\x00\x08\x7f\xffa\x00\x00\x00\x01b", ""),
		"binary, field value": framed(remoting.Binary,
			string(make([]byte, 17))+"\x00\x00\x00\x08\x00\x01a\x7f\xff\xff\xffb", ""),
		"HTTP/2": []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"HTTP":   []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":    []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		"Redis":  []byte("PING\r\n"),
		"SSH":    []byte("SSH-2.0-OpenSSH_9.6\r\n"),
		"text":   []byte("hello, is anybody there?\r\n"),
		"ones":   []byte(strings.Repeat("\xff", 1000)),
	}
	for _, form := range []remoting.SerializeType{2, 3, 77, 127, 128, 255} {
		bad[fmt.Sprint("serialize type ", form)] = framed(form, `{"code":105,"opaque":1}`, "")
	}
	return bad
}

// TestFaultBadFrames: what is no frame ends the connection at once, on broker and name server, with
// one line in the log; others are served on, and nothing stays behind.
func TestFaultBadFrames(t *testing.T) { // not parallel: it counts goroutines
	var log journal
	cluster := enginetest.Start(t, logTo(&log))
	for _, addr := range []string{cluster.Broker(), cluster.NameServer()} {
		good := dialRaw(t, addr)
		goroutines := runtime.NumGoroutine()
		for name, bytes := range badFrames() {
			p := dialRaw(t, addr)
			p.write(bytes)
			text, closed := p.hungUp(time.Second)
			if !closed {
				t.Errorf("%s: the connection stays open", name)
			}
			if want := "HTTP/1.1 400 "; (name == "HTTP") != strings.HasPrefix(text, want) {
				t.Errorf("%s: answered %q", name, text)
			}
			_ = p.conn.Close()
		}
		// After a good frame a bad one is one as well, and answers that are due go out before.
		p := dialRaw(t, addr)
		p.write(append(rawFrame(remoting.JSON, remoting.GetRouteInfoByTopic, 7, nil, ""), 0xff, 0xff, 0xff, 0xff))
		if cmd, err := p.answer(time.Second); err != nil || cmd.Opaque != 7 {
			t.Errorf("the answer before a bad frame: %+v %v", cmd, err)
		}
		if _, closed := p.hungUp(time.Second); !closed {
			t.Error("a bad frame behind a good one leaves the connection open")
		}
		good.write(framed(remoting.JSON, `{"code":"105","opaque":"8"}`, "")) // numbers as text are taken
		if cmd, err := good.answer(callWithin); err != nil || cmd.Opaque != 8 {
			t.Errorf("another connection: %+v %v", cmd, err)
		}
		eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	}
	// All came from one peer: one line a minute.
	if lines := log.lines("level=WARN", "addr=127.0.0.1"); len(lines) != 1 {
		t.Errorf("%d lines about the peer:\n%s", len(lines), strings.Join(lines, ""))
	}
}

// TestFaultOtherProtocolIsNamed: a client of another protocol is told apart in the log.
func TestFaultOtherProtocolIsNamed(t *testing.T) {
	t.Parallel()
	var log journal
	cluster := enginetest.Start(t, logTo(&log))
	p := dialRaw(t, cluster.Broker())
	p.write(badFrames()["HTTP/2"])
	if _, closed := p.hungUp(callWithin); !closed { // an unfinished frame has 60 s
		t.Error("the connection is left open")
	}
	eventually(t, func() bool { return len(log.lines("gRPC", "proxy port")) == 1 })
}

// TestFaultLyingFrames: 10 000 frames that announce a remark of 2 GiB, over 100 connections at a
// time, cost no memory to speak of, and a producer beside them is served on.
func TestFaultLyingFrames(t *testing.T) {
	t.Parallel()
	v := startVictim(t, t.TempDir(), "ASYNC_FLUSH")
	defer v.end(t, false)
	w := watch(t, v)
	bad := badFrames()
	before := rssAnon(t, v.cmd.Process.Pid)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			addr, frame := v.addr, bad["binary, remark W1"]
			if i%4 == 0 {
				addr = v.names
			}
			for range 100 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Errorf("connect: %v", err)
					return
				}
				_, _ = conn.Write(frame)
				_ = conn.SetReadDeadline(time.Now().Add(callWithin))
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	w.stop()
	if grown := rssAnon(t, v.cmd.Process.Pid) - before; grown > 16<<20 {
		t.Errorf("memory has grown by %d KiB", grown>>10)
	}
}

// TestFaultAnnouncedFrames: 1000 connections that announce 16 MiB and send next to nothing stay
// cheap, and so do those that stop in the middle of the length.
func TestFaultAnnouncedFrames(t *testing.T) {
	t.Parallel()
	v := startVictim(t, t.TempDir(), "ASYNC_FLUSH")
	defer v.end(t, false)
	w := watch(t, v)
	for i := range 1000 {
		addr := v.addr
		if i%2 == 0 {
			addr = v.names
		}
		half := []byte{0x00, 0xff, 0xff, 0xfc, 0, 0, 0, 40, '{', '"'}
		dialRaw(t, addr).write(half[:2+i%9])
	}
	w.stop()
	if used := rssAnon(t, v.cmd.Process.Pid); used > 50<<20 {
		t.Errorf("%d KiB are in use", used>>10)
	}
}

// TestFaultHalfFrameIsFinished: a client may take its time for a frame; the rest of it, cut anywhere,
// is taken when it comes.
func TestFaultHalfFrameIsFinished(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	frame := rawFrame(remoting.JSON, remoting.GetBrokerConfig, 3, nil, "")
	peers := make([]*rawPeer, len(frame))
	for i := range peers {
		peers[i] = dialRaw(t, cluster.Broker())
		peers[i].write(frame[:i])
	}
	newPeer(t, cluster.Broker()).send("beside", 0, "served")
	for i, p := range peers {
		p.write(frame[i:])
		if cmd, err := p.answer(callWithin); err != nil || cmd.Opaque != 3 || cmd.Code != 0 {
			t.Fatalf("cut at %d: %+v %v", i, cmd, err)
		}
	}
}

// TestFaultConnectionsDropped: 1000 clients that connect, join a group and are gone leave nothing.
func TestFaultConnectionsDropped(t *testing.T) { // not parallel: it counts goroutines
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("drop", 0, "x")
	goroutines := runtime.NumGoroutine()
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conn, err := net.Dial("tcp", cluster.Broker())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
		if i%2 == 0 {
			body := fmt.Sprintf(`{"clientID":"c%d","consumerDataSet":[{"groupName":"droppers",`+
				`"subscriptionDataSet":[{"topic":"drop","subString":"*"}]}]}`, i)
			_, _ = conn.Write(rawFrame(remoting.JSON, remoting.HeartBeat, i, nil, body))
		}
	}
	for _, conn := range conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	eventually(t, func() bool {
		r := p.call(remoting.GetConsumerListByGroup, &protocol.ConsumerListRequest{Group: "droppers"}, nil)
		return r.Code == remoting.SystemError && runtime.NumGoroutine() <= goroutines+16 // workers stay
	})
	p.send("drop", 0, "y")
}

// TestFaultSlowReader: a client that asks for a large backlog again and again and never reads an
// answer costs a bounded amount of memory, whatever it asks for, and hinders nobody.
func TestFaultSlowReader(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]remoting.RequestCode{
		"pulls": remoting.PullMessage, "tables": remoting.GetAllTopicConfig,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := startVictim(t, t.TempDir(), "ASYNC_FLUSH")
			defer v.end(t, false)
			w := watch(t, v)
			p := newPeer(t, v.addr)
			body := strings.Repeat("x", 7000) // below what is sent without a copy
			for range 500 {
				p.send("backlog", 0, body)
			}
			p.pull(pullRequest("backlog", 0, 0, "*", 0)) // makes the group known
			if code == remoting.GetAllTopicConfig {
				p.manyTopics(500)
			}
			before := rssAnon(t, v.cmd.Process.Pid)
			var fields map[string]string
			if code == remoting.PullMessage {
				fields = map[string]string{
					"consumerGroup": "consumers", "topic": "backlog", "queueId": "0", "queueOffset": "0",
					"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
					"subscription": "*", "subVersion": "0",
				}
			}
			var wg sync.WaitGroup
			for range 4 {
				slow := dialRaw(t, v.addr)
				wg.Go(func() {
					_ = slow.conn.SetWriteDeadline(time.Now().Add(time.Second))
					for i := range 4000 {
						if _, err := slow.conn.Write(rawFrame(remoting.JSON, code, i, fields, "")); err != nil {
							break // the broker does not read any more
						}
					}
				})
			}
			wg.Wait()
			w.stop()
			grown := rssAnon(t, v.cmd.Process.Pid) - before
			t.Logf("memory has grown by %d KiB", grown>>10)
			if grown > 300<<20 {
				t.Errorf("memory has grown by %d KiB", grown>>10)
			}
		})
	}
}

func (p *peer) manyTopics(count int) {
	p.t.Helper()
	var list protocol.TopicConfigList
	for i := range count {
		list.TopicConfigList = append(list.TopicConfigList, &protocol.TopicConfig{
			TopicName: fmt.Sprint("topic", i), ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6,
			TopicFilterType: protocol.SingleTag,
		})
	}
	r := p.call(remoting.UpdateAndCreateTopicList, nil, protocol.Marshal(&list))
	if r.Code != remoting.Success {
		p.t.Fatalf("%d topics: %v %s", count, r.Code, r.Remark)
	}
}

// TestFaultFlood: large requests that come faster than they are worked on wait in bounded memory;
// what does not fit is told so.
func TestFaultFlood(t *testing.T) {
	t.Parallel()
	v := startVictim(t, t.TempDir(), "ASYNC_FLUSH")
	defer v.end(t, false)
	before := rssAnon(t, v.cmd.Process.Pid)
	var most, busy atomic.Int64
	body := `{"clientID":"flood","consumerDataSet":[` + strings.Repeat("{},", 50_000) +
		`{}],"padding":"` + strings.Repeat("x", 3<<20) + `"}`
	frames, limit := 40, int64(400<<20)
	if raceDetector {
		frames, limit = 5, 1<<30
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p := dialRaw(t, v.addr)
			wg.Go(func() {
				for range frames {
					cmd, err := p.answer(4 * callWithin)
					if err != nil {
						t.Errorf("answer: %v", err)
						return
					}
					if cmd.Code == int32(remoting.SystemBusy) {
						busy.Add(1)
					}
				}
			})
			for i := range frames {
				if _, err := p.conn.Write(rawFrame(remoting.JSON, remoting.HeartBeat, i, nil, body)); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				if used := rssAnon(t, v.cmd.Process.Pid) - before; used > most.Load() {
					most.Store(used)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d MiB at most, %d of %d refused", most.Load()>>20, busy.Load(), 4*frames)
	if most.Load() > limit {
		t.Errorf("memory has grown by %d MiB", most.Load()>>20)
	}
	newPeer(t, v.addr).send("after", 0, "served")
}

// watcher is a normal producer and consumer beside an attack.
type watcher struct {
	t      *testing.T
	cancel context.CancelFunc
	done   sync.WaitGroup
	served atomic.Int64
}

// watch sends and pulls all the time; each answer must come within callWithin.
func watch(t *testing.T, v *victim) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{t: t, cancel: cancel}
	w.done.Go(func() {
		pool := invoke.NewPool(invoke.Config{})
		defer func() { _ = pool.Close() }()
		for ctx.Err() == nil {
			for _, r := range []*invoke.Request{
				{Code: remoting.SendMessageV2, Header: sendRequest("beside", 0), Body: []byte("x")},
				{Code: remoting.PullMessage, Header: pullRequest("beside", 0, w.served.Load(), "*", 0)},
			} {
				call, end := context.WithTimeout(context.Background(), callWithin)
				a, err := pool.Call(call, v.addr, r)
				end()
				if err != nil || a.Code != remoting.Success {
					t.Errorf("a normal client: %v: %+v %v", r.Code, a, err)
					return
				}
			}
			w.served.Add(1)
		}
	})
	return w
}

// stop ends it once the client was served some more, so that a short attack does not count as one.
func (w *watcher) stop() {
	w.t.Helper()
	within(w.t, 30*time.Second, func() bool { return w.served.Load() >= 10 || w.t.Failed() })
	w.cancel()
	w.done.Wait()
}
