// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

func TestSendAndReceive(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 2)
	p := newProducer(t, c)
	m := &client.Message{
		Topic: "t", Tag: "eu", Body: []byte("hello"), Keys: []string{"k1", "k2"},
		OrderingKey: "order-7", Properties: map[string]string{"colour": "blau"},
	}
	before := *m
	res, err := p.Send(within(t), m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, *m); diff != "" {
		t.Errorf("the send changed the message (-before +after):\n%s", diff)
	}
	if res.Status != client.Stored || len(res.ID) != 32 || res.OffsetID == "" || res.Queue.Broker == "" {
		t.Errorf("result: %+v", res)
	}
	r := newReader(t, c, "", client.WithSubscription("t", client.All()), client.WithStart(client.Earliest))
	got := poll(t, r, 1)[0]
	if diff := cmp.Diff(before, got.Message); diff != "" {
		t.Errorf("message (-sent +received):\n%s", diff)
	}
	if got.ID != res.ID || got.OffsetID != res.OffsetID || got.Source != res.Queue ||
		got.Offset != res.Offset || got.Attempt != 1 {
		t.Errorf("received %+v, sent %+v", got, res)
	}
	if age := time.Since(got.BornAt); age < 0 || age > time.Minute {
		t.Errorf("born %s ago", age)
	}
	if _, err := p.Send(within(t), &got.Message); err != nil {
		t.Errorf("a received message cannot be sent again: %v", err)
	}
}

// TestSendRetries: codes of the retry set and lost answers go to the other broker, within one
// deadline; other codes do not.
func TestSendRetries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code  remoting.ResponseCode
		retry bool
	}{
		{remoting.SystemBusy, true},
		{remoting.SystemError, true},
		{remoting.ServiceNotAvailable, true},
		{remoting.NoPermission, true},
		{remoting.TopicNotExist, true},
		{remoting.FlowControl, false},
		{remoting.MessageIllegal, false},
	} {
		t.Run(tc.code.String(), func(t *testing.T) {
			t.Parallel()
			s, c := cluster(t, 2)
			s.SetTopic("t", 4)
			p := newProducer(t, c)
			for _, b := range s.Brokers {
				b.Refuse(tc.code, 1)
			}
			first := s.Brokers[0]
			res, err := p.Send(within(t), text("x"))
			tries := first.Count(remoting.SendMessageV2) + s.Brokers[1].Count(remoting.SendMessageV2)
			if tc.retry {
				// Each broker refuses once; the third attempt succeeds.
				if err != nil || tries != 3 || res.Status != client.Stored {
					t.Errorf("got %+v, %v after %d attempts", res, err, tries)
				}
				return
			}
			var be *client.BrokerError
			if !errors.As(err, &be) || be.Code != int(tc.code) || tries != 1 {
				t.Errorf("got %v after %d attempts, want the code after one", err, tries)
			}
		})
	}
}

func TestSendErrorKinds(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	p := newProducer(t, c, client.WithRetries(1))
	b := s.Brokers[0]
	for code, want := range map[remoting.ResponseCode]error{
		remoting.FlowControl: client.ErrFlowControl, remoting.MessageIllegal: client.ErrInvalidMessage,
		remoting.NoPermission: client.ErrPermission, remoting.TopicNotExist: client.ErrNoRoute,
		remoting.RequestCodeNotSupported: client.ErrUnsupported,
	} {
		b.Refuse(code, 2)
		_, err := p.Send(within(t), text("x"))
		var se *client.SendError
		if !errors.Is(err, want) || !errors.As(err, &se) || se.MaybeStored || len(se.Attempts) == 0 {
			t.Errorf("code %d: got %v", code, err)
		}
		drain(t, p)
	}
}

// drain sends until nothing is refused any more.
func drain(t *testing.T, p *client.Producer) {
	t.Helper()
	for {
		if _, err := p.Send(within(t), text("drain")); err == nil {
			return
		}
	}
}

// TestSendLostAnswer: the broker stores and never answers; the caller learns that it may have.
func TestSendLostAnswer(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.Brokers[0].Swallow(10)
	p := newProducer(t, c, client.WithSendTimeout(200*time.Millisecond))
	begin := time.Now()
	_, err := p.Send(within(t), text("x"))
	var se *client.SendError
	if !errors.As(err, &se) || !se.MaybeStored || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a SendError that may be stored, out of time", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %s, the deadline was 200 ms", took)
	}
}

// TestSendBrokerDown: one broker is gone; each send ends up at the other.
func TestSendBrokerDown(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.SetTopic("t", 2)
	s.Brokers[0].Close()
	p := newProducer(t, c)
	for i := range 10 {
		res, err := p.Send(within(t), text(fmt.Sprint(i)))
		if err != nil || res.Queue.Broker != s.Brokers[1].Name {
			t.Fatalf("send %d: %+v, %v", i, res, err)
		}
	}
}

func TestSendContextEnds(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	resume := s.Brokers[0].Stall()
	defer resume()
	p := newProducer(t, c)
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Send(ctx, text("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestSendToExplicitQueueOnce(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.SetTopic("t", 4)
	p := newProducer(t, c)
	q := client.Queue{Topic: "t", Broker: s.Brokers[1].Name, ID: 3}
	m := text("x")
	m.Queue = &q
	res, err := p.Send(within(t), m)
	if err != nil || res.Queue != q {
		t.Fatalf("got %+v, %v, want queue %s", res, err, q)
	}
	s.Brokers[1].Refuse(remoting.SystemBusy, 1)
	if _, err = p.Send(within(t), m); err == nil {
		t.Error("a refused send to an explicit queue succeeded elsewhere")
	}
}

func TestNoRouteAndNoNameServer(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	p := newProducer(t, c, client.WithDefaultTopicRoute(false))
	if _, err := p.Send(within(t), text("x")); !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("unknown topic: got %v", err)
	}
	lost := newClient(t, "127.0.0.1:1")
	if err := lost.Ping(within(t)); !errors.Is(err, client.ErrNoNameServer) {
		t.Errorf("ping: got %v", err)
	}
	if _, err := newProducer(t, lost).Send(within(t), text("x")); !errors.Is(err, client.ErrNoNameServer) {
		t.Errorf("send: got %v", err)
	}
}

// TestSecondNameServer: one that is down is passed over.
func TestSecondNameServer(t *testing.T) {
	t.Parallel()
	s, _ := cluster(t, 1)
	for range 4 { // the list is shuffled
		c := newClient(t, "127.0.0.1:1;"+s.NameServer.Addr)
		if err := c.Ping(within(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestInvalidMessages(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	p := newProducer(t, c)
	for name, tc := range map[string]struct {
		m    *client.Message
		want error
	}{
		"nil":         {nil, client.ErrInvalidMessage},
		"no topic":    {&client.Message{Body: []byte("x")}, client.ErrInvalidMessage},
		"bad topic":   {&client.Message{Topic: "a b", Body: []byte("x")}, client.ErrInvalidMessage},
		"long topic":  {&client.Message{Topic: strings.Repeat("t", 128), Body: []byte("x")}, client.ErrInvalidMessage},
		"no body":     {&client.Message{Topic: "t"}, client.ErrInvalidMessage},
		"large body":  {&client.Message{Topic: "t", Body: make([]byte, 4<<20+1)}, client.ErrMessageTooLarge},
		"system":      {&client.Message{Topic: "SCHEDULE_TOPIC_XXXX", Body: []byte("x")}, client.ErrInvalidMessage},
		"reserved":    {&client.Message{Topic: "t", Body: []byte("x"), Properties: map[string]string{"KEYS": "a"}}, client.ErrInvalidMessage},
		"empty value": {&client.Message{Topic: "t", Body: []byte("x"), Properties: map[string]string{"a": ""}}, client.ErrInvalidMessage},
		"separator":   {&client.Message{Topic: "t", Body: []byte("x"), Tag: "a\x02b"}, client.ErrInvalidMessage},
		"key blank":   {&client.Message{Topic: "t", Body: []byte("x"), Keys: []string{"a b"}}, client.ErrInvalidMessage},
		"properties":  {&client.Message{Topic: "t", Body: []byte("x"), Properties: map[string]string{"a": strings.Repeat("x", 40000)}}, client.ErrMessageTooLarge},
		"two delays":  {&client.Message{Topic: "t", Body: []byte("x"), Delay: time.Second, DelayLevel: 1}, client.ErrInvalidMessage},
		"queue":       {&client.Message{Topic: "t", Body: []byte("x"), Queue: &client.Queue{Topic: "u", Broker: "b"}}, client.ErrInvalidMessage},
	} {
		if _, err := p.Send(within(t), tc.m); !errors.Is(err, tc.want) {
			t.Errorf("%s: send: got %v", name, err)
		}
		if err := p.SendAsync(within(t), tc.m, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: async: got %v", name, err)
		}
		if _, errs := p.SendBatch(within(t), tc.m); !errors.Is(errs[0], tc.want) {
			t.Errorf("%s: batch: got %v", name, errs)
		}
	}
}

// TestCompression: each codec comes back as it was, small bodies and batches go as they are.
func TestCompression(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("compress me "), 1000)
	for name, codec := range map[string]client.Codec{
		"none": client.NoCompression, "zlib": client.Zlib, "lz4": client.LZ4, "zstd": client.Zstd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := cluster(t, 1)
			s.SetTopic("t", 1)
			p := newProducer(t, c, client.WithCompression(codec, 5, 4096))
			for range 3 { // writers are used again
				if _, err := p.Send(within(t), &client.Message{Topic: "t", Body: body}); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(s.Brokers[0].Records("t", 0)[0]); (n < 4096) != (codec != client.NoCompression) {
				t.Errorf("stored record has %d bytes", n)
			}
			r := newReader(t, c, "", client.WithSubscription("t", client.All()), client.WithStart(client.Earliest))
			for _, m := range poll(t, r, 3) {
				if !bytes.Equal(m.Body, body) {
					t.Errorf("body of %d bytes came back as %d others", len(body), len(m.Body))
				}
			}
		})
	}
}

// TestCompressionFrom: without options bodies of 4096 bytes and more are compressed, by zlib, and no
// smaller ones.
func TestCompressionFrom(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	p := newProducer(t, c)
	for _, size := range []int{4095, 4096} {
		m := &client.Message{Topic: "t", Body: bytes.Repeat([]byte{'x'}, size)}
		if _, err := p.Send(within(t), m); err != nil {
			t.Fatal(err)
		}
	}
	const compressed, algorithm, zlib = 1, 0x700, 0x300 // bits of the system flag
	for i, want := range []int32{0, compressed | zlib} {
		v, err := record.Parse(s.Brokers[0].Records("t", 0)[i])
		if err != nil {
			t.Fatal(err)
		}
		if got := v.SysFlag() & (compressed | algorithm); got != want {
			t.Errorf("a body of %d bytes has flag %#x, want %#x", 4095+i, got, want)
		}
	}
}

func TestSendAsync(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.Brokers[0].Refuse(remoting.SystemBusy, 3)
	p := newProducer(t, c, client.WithBuffer(50, 1<<20))
	var stored, failed atomic.Int32
	for i := range 500 {
		err := p.SendAsync(within(t), text(fmt.Sprint(i)), func(r client.SendResult, err error) {
			if err != nil || r.Status != client.Stored {
				failed.Add(1)
				return
			}
			stored.Add(1)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SendAsync(within(t), text("nobody listens"), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.SendAsync(within(t), text("panic"), func(client.SendResult, error) { panic("user") }); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if stored.Load() != 500 || failed.Load() != 0 {
		t.Errorf("stored %d, failed %d", stored.Load(), failed.Load())
	}
	r := newReader(t, c, "", client.WithSubscription("t", client.All()), client.WithStart(client.Earliest))
	seen := map[string]bool{}
	for _, m := range poll(t, r, 502) {
		seen[string(m.Body)] = true
	}
	if len(seen) != 502 {
		t.Errorf("%d different messages arrived, want 502", len(seen))
	}
}

// TestSendAsyncOrder: messages with one ordering key keep the order of the calls.
func TestSendAsyncOrder(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 2)
	p := newProducer(t, c)
	for i := range 300 {
		m := text(fmt.Sprint(i))
		m.OrderingKey = "one"
		if err := p.SendAsync(within(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, c, "", client.WithSubscription("t", client.All()), client.WithStart(client.Earliest))
	for i, m := range poll(t, r, 300) {
		if string(m.Body) != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, m.Body)
		}
	}
}

func TestBufferBound(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	resume := s.Brokers[0].Stall()
	p := newProducer(t, c, client.WithBuffer(2, 1<<20))
	for i := range 2 {
		if err := p.TrySendAsync(within(t), text(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.TrySendAsync(within(t), text("3"), nil); !errors.Is(err, client.ErrBufferFull) {
		t.Errorf("third: got %v", err)
	}
	ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	if err := p.SendAsync(ctx, text("3"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for space: got %v", err)
	}
	if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush with a stalled broker: got %v", err)
	}
	resume()
	if err := p.SendAsync(within(t), text("3"), nil); err != nil {
		t.Errorf("after the stall: %v", err)
	}
	if err := p.Flush(within(t)); err != nil {
		t.Error(err)
	}
}

// TestCloseWithPending: what cannot be settled in time fails with ErrClosed, and Close says so.
func TestCloseWithPending(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	resume := s.Brokers[0].Stall()
	defer resume()
	p := newProducer(t, c, client.WithSendTimeout(time.Minute))
	got := make(chan error, 1)
	err := p.SendAsync(within(t), text("x"), func(_ client.SendResult, err error) { got <- err })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker has the message", func() bool {
		return s.Brokers[0].Count(remoting.SendMessageV2) > 0
	})
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: got %v", err)
	}
	if err := <-got; !errors.Is(err, client.ErrClosed) {
		t.Errorf("callback: got %v", err)
	}
	if err := p.Close(within(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second close: got %v, want what the first returned", err)
	}
	if _, err := p.Send(within(t), text("x")); !errors.Is(err, client.ErrClosed) {
		t.Errorf("send after close: got %v", err)
	}
	if err := p.SendAsync(within(t), text("x"), nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("async send after close: got %v", err)
	}
	if s.Brokers[0].Count(remoting.UnregisterClient) != 1 {
		t.Error("the group was not unregistered once")
	}
}

func TestSendBatch(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	p := newProducer(t, c)
	var ms []*client.Message
	for i := range 100 {
		ms = append(ms, &client.Message{Topic: fmt.Sprintf("t%d", i%2), Body: []byte(fmt.Sprint(i))})
	}
	ms = append(ms, &client.Message{Topic: "t0", Body: make([]byte, 2<<20)}, text(""))
	results, errs := p.SendBatch(within(t), ms...)
	for i := range 101 {
		if errs[i] != nil || results[i].Status != client.Stored || results[i].ID == "" {
			t.Fatalf("message %d: %+v, %v", i, results[i], errs[i])
		}
	}
	if !errors.Is(errs[101], client.ErrInvalidMessage) {
		t.Errorf("the empty message: got %v", errs[101])
	}
	batches := s.Brokers[0].Count(remoting.SendBatchMessage) + s.Brokers[1].Count(remoting.SendBatchMessage)
	if batches != 2 {
		t.Errorf("%d batch requests, want one for each topic", batches)
	}
	r := newReader(t, c, "", client.WithSubscription("t0", client.All()),
		client.WithSubscription("t1", client.All()), client.WithStart(client.Earliest))
	byID := map[string]*client.Received{}
	for _, m := range poll(t, r, 101) {
		byID[m.ID] = m
	}
	for i := range 101 {
		m := byID[results[i].ID]
		if m == nil || !bytes.Equal(m.Body, ms[i].Body) || m.Offset != results[i].Offset ||
			m.OffsetID != results[i].OffsetID || m.Source != results[i].Queue {
			t.Fatalf("message %d: result %+v, received %+v", i, results[i], m)
		}
	}
}

func TestSendOneWay(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	p := newProducer(t, c)
	if err := p.SendOneWay(within(t), text("x")); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, c, "", client.WithSubscription("t", client.All()), client.WithStart(client.Earliest))
	poll(t, r, 1)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, endpoints := range [][]string{nil, {"host"}, {":9876"}, {"a:1", "b"}} {
		if _, err := client.New(endpoints); err == nil {
			t.Errorf("endpoints %q were accepted", endpoints)
		}
	}
	_, err := client.New([]string{"a:1"}, client.WithCallTimeout(0), client.WithInstanceName("a@b"),
		client.WithLogger(nil))
	for _, want := range []string{"call timeout", "a@b", "logger"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("client: got %v, want it to name %q", err, want)
		}
	}
	_, c := cluster(t, 1)
	_, err = c.NewProducer("bad group", client.WithRetries(-1), client.WithBuffer(0, 0),
		client.WithCompression(client.Codec(9), 1, 1))
	for _, want := range []string{"bad group", "retries", "buffer", "codec"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("producer: got %v, want it to name %q", err, want)
		}
	}
	_, err = c.NewReader("DEFAULT_CONSUMER", client.WithSubscription("a b", client.All()),
		client.WithPrefetch(0, 0), client.WithStart(-9))
	for _, want := range []string{"DEFAULT_CONSUMER", "a b", "prefetch", "start"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reader: got %v, want it to name %q", err, want)
		}
	}
}

func TestClientClose(t *testing.T) {
	t.Parallel()
	s, _ := cluster(t, 1)
	c, err := client.New([]string{s.NameServer.Addr})
	if err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, c)
	r := newReader(t, c, "g", client.WithSubscription("t", client.All()))
	if _, err := p.Send(within(t), text("x")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- c.Close(within(t)) }()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Poll(within(t), 1); !errors.Is(err, client.ErrClosed) {
		t.Errorf("poll: got %v", err)
	}
	if err := c.Ping(within(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("ping: got %v", err)
	}
	if _, err := c.NewProducer("x"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("new producer: got %v", err)
	}
	if n := s.Brokers[0].Count(remoting.UnregisterClient); n != 2 {
		t.Errorf("%d groups were unregistered, want 2", n)
	}
}

// TestHashJava holds the hash to values of Java's String.hashCode.
func TestHashJava(t *testing.T) {
	t.Parallel()
	queues := make([]client.Queue, 7)
	for key, hash := range map[string]int{"TagA": 2598919, "order-created": -392709271, "订单": 1129459} {
		want := hash % 7
		if want < 0 {
			want = -want
		}
		if got := client.HashJava.Select(&client.Message{OrderingKey: key}, queues); got != want {
			t.Errorf("%s: queue %d, want %d", key, got, want)
		}
	}
}
