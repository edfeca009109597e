// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestFaultTwoClusters: two clients of one process, alike in group and instance name, keep to their
// own clusters, and one that ends does not disturb the other.
func TestFaultTwoClusters(t *testing.T) {
	// Fault 20: clusters shared an instance or a list of name servers, and routes went stale.
	t.Parallel()
	one, two := scripttest.NewCluster(t, 1), scripttest.NewCluster(t, 1)
	var clients []*client.Client
	for _, s := range []*scripttest.Cluster{one, two} {
		s.SetTopic("t", 1)
		c, err := client.New([]string{s.NameServer.Addr}, client.WithInstanceName("same"))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	var producers []*client.Producer
	for i, c := range clients {
		p := newProducer(t, c)
		producers = append(producers, p)
		for range i + 1 {
			if _, err := p.Send(within(t), text("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := len(one.Brokers[0].Records("t", 0)), len(two.Brokers[0].Records("t", 0)); a != 1 || b != 2 {
		t.Errorf("the clusters have %d and %d messages, want 1 and 2", a, b)
	}
	if err := clients[0].Close(within(t)); err != nil {
		t.Error(err)
	}
	if _, err := producers[1].Send(within(t), text("x")); err != nil {
		t.Errorf("after the other client ended: %v", err)
	}
	if err := clients[1].Close(within(t)); err != nil {
		t.Error(err)
	}
}

// TestFaultNoisyLogger: nothing is printed without a logger, and each client has its own. It is not
// parallel: it watches the process's output.
func TestFaultNoisyLogger(t *testing.T) {
	// Fault 23: one logger for the whole package, which wrote to standard output by itself.
	s, _ := cluster(t, 1)
	s.SetTopic("t", 1)
	use := func(opts ...client.Option) {
		c := newClient(t, "127.0.0.1:1;"+s.NameServer.Addr, opts...)
		p := newProducer(t, c, client.WithSendTimeout(50*time.Millisecond))
		_, _ = p.Send(within(t), text("x"))
		_, _ = p.Send(within(t), &client.Message{Topic: "absent%", Body: []byte("x")})
		_ = p.SendAsync(within(t), text("x"), func(client.SendResult, error) { panic("user") })
		_ = c.Close(within(t))
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := os.Stdout, os.Stderr
	defaultLogger := slog.Default()
	os.Stdout, os.Stderr = write, write
	slog.SetDefault(slog.New(slog.NewTextHandler(write, nil)))
	use()
	os.Stdout, os.Stderr = stdout, stderr
	slog.SetDefault(defaultLogger)
	_ = write.Close()
	if printed, _ := io.ReadAll(read); len(printed) > 0 {
		t.Errorf("printed without a logger: %s", printed)
	}
	var one, two bytes.Buffer
	use(client.WithLogger(slog.New(slog.NewTextHandler(&one, nil))))
	use(client.WithLogger(slog.New(slog.NewTextHandler(&two, nil))))
	for _, b := range []*bytes.Buffer{&one, &two} {
		if n := strings.Count(b.String(), "panic in a send callback"); n != 1 {
			t.Errorf("the panic was logged %d times:\n%s", n, b)
		}
	}
}

// TestFaultTransactionContext: the caller's context reaches the local transaction, with its values
// and its end; the checker's ends with the producer.
func TestFaultTransactionContext(t *testing.T) {
	// Fault 24: listeners of transactions got no context.
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := newAsking(s.Brokers[0])
	checking, ended := make(chan struct{}), make(chan error, 1)
	tp, err := c.NewTransactionProducer("pg",
		func(ctx context.Context, _ *client.Received) client.TxState {
			close(checking)
			<-ctx.Done()
			ended <- ctx.Err()
			return client.TxUnknown
		})
	if err != nil {
		t.Fatal(err)
	}
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(within(t), key{}, 7))
	_, err = tp.Transact(ctx, text("x"), func(ctx context.Context, _ *client.Tx) error {
		cancel()
		if ctx.Value(key{}) != 7 {
			t.Error("the context's value is missing")
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// It was rolled back although its context had ended.
	if len(b.ends) != 1 || b.ends[0].CommitOrRollback != protocol.TransactionRollback {
		t.Errorf("ends %+v", b.ends)
	}
	b.check(t, "pg", "id")
	<-checking
	short, stop := context.WithTimeout(within(t), 20*time.Millisecond)
	defer stop()
	if err := tp.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the checker's context did not end")
	}
}

// TestFaultRaces uses everything at once; it is the race detector that fails it.
func TestFaultRaces(t *testing.T) {
	// Fault 25: data races.
	t.Parallel()
	s := scripttest.NewCluster(t, 2)
	s.SetTopic("t", 2)
	var h spy
	c := newClient(t, s.NameServer.Addr, client.WithHooks(&h, &sendSpy{}))
	ctx := within(t)
	p := newProducer(t, c, client.WithLinger(time.Millisecond, 1<<10), client.WithTrace("traces"),
		client.WithLatencyFaultTolerance(true), client.WithBuffer(100, 1<<20))
	tp, err := c.NewTransactionProducer("tg", commits)
	if err != nil {
		t.Fatal(err)
	}
	newAsking(s.Brokers[0])
	newAsking(s.Brokers[1])
	shared := &client.Message{
		Topic: "t", Body: []byte("shared"), Keys: []string{"k"}, Properties: map[string]string{"a": "b"},
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				switch (g + i) % 9 {
				case 0:
					_, _ = p.Send(ctx, shared)
				case 1:
					_ = p.SendAsync(ctx, shared, func(client.SendResult, error) {})
				case 2:
					_, _ = p.SendBatch(ctx, shared, shared, text("x"))
				case 3:
					_ = p.SendOneWay(ctx, shared)
				case 4:
					_, _ = tp.Transact(ctx, shared, func(context.Context, *client.Tx) error { return nil })
				case 5:
					_, _ = c.Queues(ctx, "t")
				case 6:
					s.Brokers[g%2].Refuse(remoting.SystemBusy, 1)
					s.Brokers[g%2].Drop()
				case 7:
					_ = p.Flush(ctx)
				default:
					ordered := *shared
					ordered.OrderingKey = fmt.Sprint(i)
					_ = p.TrySendAsync(ctx, &ordered, nil)
				}
			}
		})
	}
	wg.Wait()
	_ = p.Close(ctx)
}

// sendSpy adds a property to each message.
type sendSpy struct{ sends, ends, buffers atomic.Int32 }

func (s *sendSpy) OnSend(ctx context.Context, m *client.Message) context.Context {
	s.sends.Add(1)
	m.Properties["traceparent"] = fmt.Sprint("00-", s.sends.Load())
	return ctx
}

func (s *sendSpy) OnSent(context.Context, *client.Message, client.SendResult, error) { s.ends.Add(1) }

func (s *sendSpy) OnBuffer(int, int) { s.buffers.Add(1) }

// TestFaultOneStatusForABatch: of a batch to two topics the part that is refused fails alone.
func TestFaultOneStatusForABatch(t *testing.T) {
	// Fault 27: a batch had one status for all its messages.
	t.Parallel()
	s, c := cluster(t, 1)
	p := newProducer(t, c, client.WithRetries(0))
	ms := []*client.Message{
		{Topic: "good", Body: []byte("0")},
		{Topic: "good", Body: []byte("1")},
		{Topic: "bad topic", Body: []byte("2")},
		{Topic: "good", Body: nil},
		{Topic: "good", Body: []byte("4")},
		{Topic: "good", OrderingKey: "k", Body: []byte("5")},
	}
	results, errs := p.SendBatch(within(t), ms...)
	for i := range ms {
		if bad := i == 2 || i == 3; bad != (errs[i] != nil) || bad != (results[i].Status == 0) {
			t.Errorf("message %d: %+v, %v", i, results[i], errs[i])
		}
	}
	if results[1].Offset != results[0].Offset+1 || results[0].ID == results[1].ID {
		t.Errorf("results %+v", results[:2])
	}
	s.Brokers[0].Refuse(remoting.FlowControl, 1)
	_, errs = p.SendBatch(within(t), text("a"), text("b"))
	if !errors.Is(errs[0], client.ErrFlowControl) || !errors.Is(errs[1], client.ErrFlowControl) {
		t.Errorf("refused batch: %v", errs)
	}
}

// TestFaultCompressionEmptiesBody: bodies of all kinds come back from each codec as they were, and the
// caller's body is not touched.
func TestFaultCompressionEmptiesBody(t *testing.T) {
	// Fault 27: a compressed message arrived with an empty body.
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	bodies := map[string][]byte{
		"text": bytes.Repeat([]byte("hello "), 5000), "zeroes": make([]byte, 1<<20),
		"one": {7}, "limit": bytes.Repeat([]byte{1, 2}, 2048), "random": make([]byte, 100_000),
	}
	for i := range bodies["random"] {
		bodies["random"][i] = byte(random.Uint32())
	}
	for _, codec := range []client.Codec{client.Zlib, client.LZ4, client.Zstd} {
		s, c := cluster(t, 1)
		s.SetTopic("t", 1)
		p := newProducer(t, c, client.WithCompression(codec, 5, 1))
		for name, body := range bodies {
			before := bytes.Clone(body)
			m := &client.Message{Topic: "t", Tag: name, Body: body}
			if _, err := p.Send(within(t), m); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Body, before) {
				t.Errorf("codec %d changed the caller's body %s", codec, name)
			}
		}
		r := newReader(t, c, "", client.WithSubscription("t", client.All()),
			client.WithStart(client.Earliest))
		for _, m := range poll(t, r, len(bodies)) {
			if !bytes.Equal(m.Body, bodies[m.Tag]) {
				t.Errorf("codec %d: body %s of %d bytes came back with %d", codec, m.Tag,
					len(bodies[m.Tag]), len(m.Body))
			}
		}
	}
}

// TestFaultReflection: the client needs the standard library, this module and two compression
// libraries, none of which looks inside the runtime.
func TestFaultReflection(t *testing.T) {
	// Fault 30: a reflection library broke the client with a new release of Go.
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		known := false
		for _, prefix := range []string{
			"github.com/skylarkmq/skylark/", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4",
		} {
			known = known || strings.HasPrefix(pkg, prefix)
		}
		if !known {
			t.Errorf("the client imports %s", pkg)
		}
	}
}
