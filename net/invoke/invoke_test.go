// SPDX-License-Identifier: Apache-2.0

package invoke_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

type topicHeader string

func (h topicHeader) AppendFields(e *remoting.Encoder) { e.String("topic", string(h)) }

func TestCallCarriesEverything(t *testing.T) {
	t.Parallel()
	for _, form := range []remoting.SerializeType{remoting.JSON, remoting.Binary} {
		srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
			topic, _ := cmd.Fields.Get("topic")
			text := fmt.Sprintf("%d %s %s %d %d", cmd.Code, topic, cmd.Body, cmd.Language, cmd.Version)
			_, _ = nc.Write(answer(cmd, remoting.TopicNotExist, text, []byte("body")))
		})
		pool := newPool(t, invoke.Config{Language: remoting.LanguageGo, Serialize: form})
		r, err := pool.Call(within(t), srv.addr, &invoke.Request{
			Code: remoting.GetRouteInfoByTopic, Header: topicHeader("T"),
			Body: []byte("a"), Bodies: [][]byte{[]byte("b"), []byte("c")},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != 17 || r.Remark != "105 T abc 9 513" || string(r.Body) != "body" ||
			r.Version != 513 || r.Command == nil {
			t.Errorf("serialize=%d: got %+v", form, r)
		}
		var wire *remoting.Error
		if !errors.As(r.Err(), &wire) || wire.Code != 17 || wire.Remark != r.Remark {
			t.Errorf("Err() = %v", r.Err())
		}
	}
}

// Answers come in the reverse order of the requests, and each finds its caller.
func TestAnswersMatchOutOfOrder(t *testing.T) {
	t.Parallel()
	const calls = 64
	var held [][]byte
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		held = append(held, answer(cmd, remoting.Success, "", cmd.Body))
		if len(held) == calls {
			for i := len(held) - 1; i >= 0; i-- {
				_, _ = nc.Write(held[i])
			}
		}
	})
	pool := newPool(t, invoke.Config{})
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			want := strconv.Itoa(i)
			r, err := pool.Call(within(t), srv.addr, &invoke.Request{Body: []byte(want)})
			if err != nil || string(r.Body) != want {
				t.Errorf("call %d: got %v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	if n := srv.accepted.Load(); n != 1 {
		t.Errorf("%d connections for callers that came at once, want 1", n)
	}
}

func TestContextEndsOnlyItsWait(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		if string(cmd.Body) == "slow" {
			return
		}
		<-release
		echo(nc, cmd)
	})
	pool := newPool(t, invoke.Config{})
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the user went away")
	first := make(chan error, 1)
	go func() {
		_, err := pool.Call(ctx, srv.addr, &invoke.Request{Body: []byte("slow")})
		first <- err
	}()
	other := make(chan error, 1)
	go func() {
		_, err := pool.Call(within(t), srv.addr, &invoke.Request{})
		other <- err
	}()
	cancel(cause)
	err := receive(t, first)
	var e *invoke.Error
	if !errors.Is(err, cause) || !errors.As(err, &e) || e.Addr != srv.addr {
		t.Errorf("cancelled call: %v", err)
	}
	close(release)
	if err := receive(t, other); err != nil {
		t.Errorf("the other call on the connection: %v", err)
	}
	if _, err := pool.Call(ctx, srv.addr, &invoke.Request{}); !errors.Is(err, cause) {
		t.Errorf("call with an ended context: %v", err)
	}
}

func TestCloseByPeerFailsCallsAtOnce(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 8)
	quiet := true
	var mu sync.Mutex
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		mu.Lock()
		defer mu.Unlock()
		if quiet {
			arrived <- struct{}{}
			return
		}
		echo(nc, cmd)
	})
	closed := make(chan string, 2)
	pool := newPool(t, invoke.Config{OnClose: func(addr string, _ error) { closed <- addr }})
	result := make(chan error, 2)
	go func() {
		_, err := pool.Call(within(t), srv.addr, &invoke.Request{})
		result <- err
	}()
	receive(t, arrived)
	err := pool.Async(within(t), srv.addr, &invoke.Request{},
		func(_ *invoke.Response, err error) { result <- err })
	if err != nil {
		t.Fatal(err)
	}
	receive(t, arrived)
	srv.closeConns()
	for range 2 {
		err := receive(t, result)
		var e *invoke.Error
		if !errors.As(err, &e) || !e.Sent {
			t.Errorf("call on a connection that closed: %v, want an Error with Sent", err)
		}
	}
	if addr := receive(t, closed); addr != srv.addr {
		t.Errorf("OnClose(%q)", addr)
	}
	mu.Lock()
	quiet = false
	mu.Unlock()
	if _, err := pool.Call(within(t), srv.addr, &invoke.Request{}); err != nil {
		t.Errorf("call after the close: %v, want a new connection", err)
	}
	if n := srv.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestAsyncEnds(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", silent)
	pool := newPool(t, invoke.Config{})
	outcomes := make(chan error, 4)
	done := func(_ *invoke.Response, err error) { outcomes <- err }
	ctx, cancel := context.WithCancel(context.Background())
	if err := pool.Async(ctx, srv.addr, &invoke.Request{}, done); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := receive(t, outcomes); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	begin := time.Now()
	for _, timeout := range []time.Duration{80 * time.Millisecond, 30 * time.Millisecond, time.Hour} {
		err := pool.Async(context.Background(), srv.addr, &invoke.Request{Timeout: timeout}, done)
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := receive(t, outcomes); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("timed out: %v", err)
		}
	}
	if took := time.Since(begin); took < 80*time.Millisecond {
		t.Errorf("ended after %v, before the deadline", took)
	}
	_ = pool.Close()
	if err := receive(t, outcomes); !errors.Is(err, invoke.ErrClosed) {
		t.Errorf("pool closed: %v", err)
	}
}

func TestOnewayIsWrittenBeforeClose(t *testing.T) {
	t.Parallel()
	got := make(chan string, 200)
	srv := serve(t, "127.0.0.1:0", func(_ net.Conn, cmd *remoting.Command) {
		got <- fmt.Sprintf("%v %s", cmd.IsOneway(), cmd.Body)
	})
	pool := newPool(t, invoke.Config{})
	for i := range 100 {
		r := &invoke.Request{Body: []byte(strconv.Itoa(i))}
		if err := pool.Oneway(within(t), srv.addr, r); err != nil {
			t.Fatal(err)
		}
	}
	_ = pool.Close()
	for i := range 100 {
		if text := receive(t, got); text != fmt.Sprintf("true %d", i) {
			t.Fatalf("oneway %d arrived as %q", i, text)
		}
	}
	if err := pool.Oneway(within(t), srv.addr, &invoke.Request{}); !errors.Is(err, invoke.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := pool.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// The peer sends requests with the opaques of ours: they are told apart by the response bit.
func TestRequestsOfThePeer(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 4)
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		if cmd.IsResponse() {
			answers <- fmt.Sprintf("%d %d %s %s", cmd.Opaque, cmd.Code, cmd.Remark, cmd.Body)
			return
		}
		for _, body := range []string{"now", "none", "later"} {
			e := remoting.Begin(nil, remoting.Head{Code: 40, Opaque: cmd.Opaque})
			_, _ = nc.Write(e.End([]byte(body)))
		}
		e := remoting.Begin(nil, remoting.Head{Code: 40, Flag: remoting.FlagOneway})
		_, _ = nc.Write(e.End([]byte("now")))
		echo(nc, cmd)
	})
	var later remoting.Opaque
	cfg := invoke.Config{OnRequest: func(addr string, cmd *remoting.Command) *invoke.Response {
		switch string(cmd.Body) {
		case "now":
			return &invoke.Response{Code: 3, Remark: "no", Body: []byte(addr)}
		case "later":
			later = cmd.Opaque
		}
		return nil
	}}
	pool := newPool(t, cfg)
	if _, err := pool.Call(within(t), srv.addr, &invoke.Request{}); err != nil {
		t.Fatal(err)
	}
	if got, want := receive(t, answers), "1 3 no "+srv.addr; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if err := pool.Respond(srv.addr, later, &invoke.Response{Remark: "late"}); err != nil {
		t.Fatal(err)
	}
	if got, want := receive(t, answers), "1 0 late "; got != want {
		t.Errorf("later answer %q, want %q", got, want)
	}
	if err := pool.Respond("127.0.0.1:1", 1, &invoke.Response{}); err == nil {
		t.Error("answer to an address without connection: no error")
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	srv := serve(t, "127.0.0.1:0", func(net.Conn, *remoting.Command) { <-hold })
	t.Cleanup(func() { close(hold) })
	pool := newPool(t, invoke.Config{MaxPending: 2, MaxFrame: 1 << 20, MaxQueued: 1 << 20})
	ctx := within(t)
	done := func(*invoke.Response, error) {}
	for range 2 {
		if err := pool.Async(ctx, srv.addr, &invoke.Request{}, done); err != nil {
			t.Fatal(err)
		}
	}
	if err := pool.Async(ctx, srv.addr, &invoke.Request{}, done); !errors.Is(err, invoke.ErrBusy) {
		t.Errorf("third request without an answer: %v, want ErrBusy", err)
	}
	for _, r := range []*invoke.Request{
		{Body: make([]byte, 1<<20)},
		{Bodies: [][]byte{make([]byte, 1<<20), make([]byte, 1)}},
	} {
		if err := pool.Oneway(ctx, srv.addr, r); !errors.Is(err, invoke.ErrTooLarge) {
			t.Errorf("large frame: %v, want ErrTooLarge", err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = pool.Oneway(short, srv.addr, &invoke.Request{Body: make([]byte, 1<<19)})
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("peer does not read: %v, want the sender to wait until its context ends", err)
	}
}

func TestWriteTimeoutCloses(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	srv := serve(t, "127.0.0.1:0", func(net.Conn, *remoting.Command) { <-hold })
	t.Cleanup(func() { close(hold) })
	failed := make(chan error, 1)
	pool := newPool(t, invoke.Config{
		WriteTimeout: 50 * time.Millisecond,
		OnClose:      func(_ string, err error) { failed <- err },
	})
	go func() {
		for pool.Oneway(within(t), srv.addr, &invoke.Request{Body: make([]byte, 8<<20)}) == nil {
			if srv.accepted.Load() > 1 {
				return
			}
		}
	}()
	var timeout net.Error
	if err := receive(t, failed); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("closed with %v, want a timeout", err)
	}
	_ = pool.Close()
}

// A large frame over a slow line takes longer than the time-out of a write, and arrives.
func TestLargeFrameOverASlowLine(t *testing.T) {
	t.Parallel()
	const pieces = 12 // of 1 MiB, one in 100 ms
	ours, theirs := net.Pipe()
	arrived := make(chan error, 1)
	go func() {
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for range pieces {
			<-pace.C
			if _, err := io.CopyN(io.Discard, theirs, 1<<20); err != nil {
				arrived <- err
				return
			}
		}
		arrived <- nil
		_, _ = io.Copy(io.Discard, theirs)
	}()
	pool := newPool(t, invoke.Config{
		WriteTimeout: 900 * time.Millisecond,
		Dial:         func(context.Context, string, string) (net.Conn, error) { return ours, nil },
	})
	err := pool.Oneway(within(t), "slow:1", &invoke.Request{Body: make([]byte, pieces<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if err := receive(t, arrived); err != nil {
		t.Errorf("the peer saw the end of it after %v", err)
	}
}

func TestLargeFramesAndIPv6(t *testing.T) {
	t.Parallel()
	srv := serve(t, "[::1]:0", echo)
	pool := newPool(t, invoke.Config{})
	_, port, err := net.SplitHostPort(srv.addr)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	for _, addr := range []string{"[::1]:" + port, "::1:" + port, " [::1]:" + port} {
		for _, size := range []int{0, 1, 65535, len(body), 100, 1 << 20} {
			r, err := pool.Call(within(t), addr, &invoke.Request{Body: body[:size]})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.Body, body[:size]) {
				t.Errorf("%s: body of %d bytes came back changed, %d bytes", addr, size, len(r.Body))
			}
		}
	}
}

func TestIdleConnectionCloses(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", echo)
	closed := make(chan error, 2)
	pool := newPool(t, invoke.Config{
		IdleTimeout: 40 * time.Millisecond,
		OnClose:     func(_ string, err error) { closed <- err },
	})
	if _, err := pool.Call(within(t), srv.addr, &invoke.Request{}); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, closed); !errors.Is(err, invoke.ErrIdle) {
		t.Errorf("closed with %v, want ErrIdle", err)
	}
	if _, err := pool.Call(within(t), srv.addr, &invoke.Request{}); err != nil {
		t.Errorf("after the idle close: %v", err)
	}
}

func TestStrayAndBrokenFrames(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		stray := &remoting.Command{Opaque: 12345}
		_, _ = nc.Write(answer(stray, remoting.Success, "", nil))
		if string(cmd.Body) == "break" {
			_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			return
		}
		echo(nc, cmd)
	})
	pool := newPool(t, invoke.Config{})
	if _, err := pool.Call(within(t), srv.addr, &invoke.Request{}); err != nil {
		t.Errorf("with a stray answer before: %v", err)
	}
	_, err := pool.Call(within(t), srv.addr, &invoke.Request{Body: []byte("break")})
	if !errors.Is(err, remoting.ErrFrameTooLarge) {
		t.Errorf("broken frame: %v, want ErrFrameTooLarge", err)
	}
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	pool := newPool(t, invoke.Config{
		DialTimeout: 30 * time.Millisecond,
		Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, "hang") {
				<-ctx.Done()
			}
			return nil, errors.Join(errors.New("no route"), ctx.Err())
		},
	})
	for addr, text := range map[string]string{
		"fast:1": "no route", "hang:1": "deadline", "nocolon": "not host:port", "a:": "invalid",
	} {
		_, err := pool.Call(within(t), addr, &invoke.Request{})
		var e *invoke.Error
		if !errors.As(err, &e) || e.Op != "dial" || e.Sent || e.Addr != addr {
			t.Errorf("%s: %v, want a dial Error", addr, err)
		} else if text != "invalid" && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q in it", addr, err, text)
		}
	}
}

func TestDialIsTheCallers(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", echo)
	pool := newPool(t, invoke.Config{})
	var conns []*invoke.Conn
	for range 3 {
		c, err := pool.Dial(within(t), srv.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		if _, err := c.Call(within(t), &invoke.Request{}); err != nil {
			t.Error(err)
		}
	}
	_ = conns[0].Close()
	_ = conns[0].Close()
	if _, err := conns[0].Call(within(t), &invoke.Request{}); !errors.Is(err, invoke.ErrClosed) {
		t.Errorf("call on a closed connection: %v", err)
	}
	if _, err := conns[1].Call(within(t), &invoke.Request{}); err != nil || conns[1].Err() != nil {
		t.Errorf("call on another connection: %v", err)
	}
	if n := srv.accepted.Load(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
	_ = pool.Close()
	if err := conns[2].Err(); !errors.Is(err, invoke.ErrClosed) {
		t.Errorf("after the pool's Close: %v", err)
	}
}
