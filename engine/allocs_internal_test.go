// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// repeating runs a measurement inside the event loop, where the hot path lives: the first command
// of a connection is given to measure, which repeats it.
type repeating struct {
	*loopHandler
	measure func(once func())
	done    chan struct{}
}

// rounds is enough to drown one-off growth, and little enough to stay inside the output bound.
const rounds = 2000

func (h *repeating) Command(c *eventloop.Conn, cmd *remoting.Command) {
	h.measure(func() {
		h.loopHandler.Command(c, cmd)
		h.ReadDone()
	})
	h.done <- struct{}{}
}

func startForAllocs(t testing.TB, options ...func(*Config)) *Broker {
	t.Helper()
	cfg := Default()
	cfg.BrokerName, cfg.BindAddress, cfg.ListenPort, cfg.FastPort = "a", "127.0.0.1", 0, -1
	cfg.StoreRoot = t.TempDir()
	cfg.CommitLogFileSize = 64 << 20
	cfg.IndexSlots, cfg.IndexEntries = 5000, 200000
	cfg.Logger = slog.New(slog.DiscardHandler)
	for _, set := range options {
		set(&cfg)
	}
	b, err := New(cfg)
	if err == nil {
		err = b.Start(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	if err := b.topics.Put(&protocol.TopicConfig{
		TopicName: "SELF_TEST", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6,
		TopicFilterType: protocol.SingleTag,
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

// allocsOf sends one frame to a broker whose loop repeats it and counts the allocations.
func allocsOf(t *testing.T, b *Broker, frame []byte) (allocs float64) {
	t.Helper()
	onLoop(t, b, frame, func(once func()) {
		for range 100 {
			once()
		}
		allocs = testing.AllocsPerRun(rounds, once)
	})()
	return allocs
}

// onLoop returns a function that sends the frame to a broker, and returns when the loop that
// received it has run measure. Between two calls the answers leave the loop.
func onLoop(t testing.TB, b *Broker, frame []byte, measure func(once func())) func() {
	t.Helper()
	done := make(chan struct{})
	cfg := eventloop.DefaultConfig()
	cfg.Loops = 1
	server, err := eventloop.Listen(cfg, []string{"127.0.0.1:0"},
		func(l *eventloop.Loop) eventloop.Handler {
			return &repeating{b.newLoopHandler(l).(*loopHandler), measure, done}
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Close(ctx)
	})
	conn, err := net.Dial("tcp", server.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
	return func() {
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		<-done
	}
}

func sendFrame(s remoting.SerializeType, batch bool) []byte {
	req := &protocol.SendRequest{
		Group: []byte("producers"), Topic: []byte("SELF_TEST"), DefaultTopic: []byte("TBW102"),
		DefaultTopicQueues: 4, BornMS: 1, MaxReconsumeTimes: -1, Batch: batch,
		Properties: record.AppendProperty(record.AppendProperty(nil, "TAGS", "a"), "KEYS", "k1 k2"),
	}
	body := make([]byte, 1024)
	code := remoting.SendMessageV2
	if batch {
		code = remoting.SendBatchMessage
		body = nil
		for range 8 {
			body = record.AppendBatchEntry(body, 0, make([]byte, 100), req.Properties)
		}
	}
	head := remoting.NewRequest(code, 1)
	head.Serialize = s
	e := remoting.Begin(nil, head)
	req.AppendFields(&e)
	return e.End(body)
}

func TestAllocsSend(t *testing.T) {
	b := startForAllocs(t)
	for name, frame := range map[string][]byte{
		"json": sendFrame(remoting.JSON, false), "binary": sendFrame(remoting.Binary, false),
		"batch of 8": sendFrame(remoting.JSON, true),
	} {
		if got := allocsOf(t, b, frame); got != 0 {
			t.Errorf("%s: %v allocations for a send, want 0", name, got)
		}
	}
	info := b.store.Info()
	if info.Wrote < rounds*1024 {
		t.Fatalf("only %d bytes were stored: the measurement did not send", info.Wrote)
	}
}

func TestAllocsPull(t *testing.T) {
	b := startForAllocs(t)
	allocsOf(t, b, sendFrame(remoting.JSON, false)) // fills the queue
	if _, _, err := b.groups.LookupOrCreate("consumers"); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(r *protocol.PullRequest){
		"found":     func(*protocol.PullRequest) {},
		"by tag":    func(r *protocol.PullRequest) { r.Subscription = []byte("a || b") },
		"no match":  func(r *protocol.PullRequest) { r.Subscription = []byte("b") },
		"committed": func(r *protocol.PullRequest) { r.SysFlag |= 1; r.CommitOffset = 3 },
		"not held":  func(r *protocol.PullRequest) { r.QueueOffset = 1 << 40 },
	} {
		if got := allocsOf(t, b, pullFrame(change)); got != 0 {
			t.Errorf("%s: %v allocations for a pull, want 0", name, got)
		}
	}
}

func pullFrame(change func(r *protocol.PullRequest)) []byte {
	req := &protocol.PullRequest{
		Group: []byte("consumers"), Topic: []byte("SELF_TEST"), MaxMessages: 4, SysFlag: 4,
		Subscription: []byte("*"),
	}
	change(req)
	e := remoting.Begin(nil, remoting.NewRequest(remoting.PullMessage, 1))
	req.AppendFields(&e)
	return e.End(nil)
}

// TestAllocsSyncFlush has sends wait for the disk and be answered, many at a time, from the socket to the
// socket.
func TestAllocsSyncFlush(t *testing.T) {
	b := startForAllocs(t, func(c *Config) { c.FlushDiskType = "SYNC_FLUSH" })
	conn, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	const each = 64
	burst, answer := bytes.Repeat(sendFrame(remoting.JSON, false), each), make([]byte, 4<<10)
	round := func() {
		if _, err := conn.Write(burst); err != nil {
			t.Fatal(err)
		}
		for range each {
			if _, err := io.ReadFull(conn, answer[:4]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, answer[:binary.BigEndian.Uint32(answer)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 50 {
		round()
	}
	if got := testing.AllocsPerRun(200, round); got != 0 {
		t.Errorf("%v allocations for %d sends that wait for the disk, want 0", got, each)
	}
	if b.releases == nil {
		t.Error("the sends did not wait")
	}
}
