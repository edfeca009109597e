// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// ourClient is a client of package client until the end of the test.
func ourClient(t *testing.T, at target, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New([]string{at.NameServer}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// bothServers runs a test against the real broker and against ours, with the same settings.
func bothServers(t *testing.T, conf map[string]string, test func(t *testing.T, at target)) {
	t.Helper()
	t.Run("apache", func(t *testing.T) {
		t.Parallel()
		test(t, startApache(t, scratch(t), conf))
	})
	t.Run("skylark", func(t *testing.T) {
		t.Parallel()
		made, _ := startServer(t, scratch(t), conf)
		test(t, made)
	})
}

// Transactions of package client: committed messages arrive, those rolled back do not, and another
// process of the group answers for one whose end never came.
func TestOurTransactions(t *testing.T) {
	t.Parallel()
	conf := map[string]string{"transactionCheckInterval": "1000", "transactionTimeOut": "8000"}
	bothServers(t, conf, func(t *testing.T, at target) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		topic, group := name(t, "T"), name(t, "PG")
		var mu sync.Mutex
		asked := map[string]int{}
		check := func(_ context.Context, m *client.Received) client.TxState {
			mu.Lock()
			defer mu.Unlock()
			body := string(m.Body)
			asked[body]++
			switch {
			case m.Topic != topic || m.Properties["colour"] != "green":
				t.Errorf("asked about %+v", m)
				return client.TxUnknown
			case body == "later" && asked[body] == 1:
				return client.TxUnknown
			case body == "dropped", body == "rolled back":
				return client.TxRolledBack
			}
			return client.TxCommitted
		}
		tp, err := ourClient(t, at).NewTransactionProducer(group, check)
		if err != nil {
			t.Fatal(err)
		}
		message := func(body string) *client.Message {
			return &client.Message{
				Topic: topic, Body: []byte(body), Properties: map[string]string{"colour": "green"},
			}
		}
		for i := range 3 {
			_, err := tp.Transact(ctx, message(fmt.Sprint("committed", i)),
				func(context.Context, *client.Tx) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		bad := errors.New("no")
		if _, err := tp.Transact(ctx, message("rolled back"),
			func(context.Context, *client.Tx) error { return bad }); !errors.Is(err, bad) {
			t.Errorf("rolled back: %v", err)
		}
		for _, body := range []string{"later", "dropped"} {
			if _, err := tp.Begin(ctx, message(body)); err != nil {
				t.Fatal(err)
			}
		}
		// Only another process is left to be asked.
		other, err := ourClient(t, at).NewTransactionProducer(group, check)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(ctx)
		if err := tp.Close(ctx); err != nil {
			t.Fatal(err)
		}
		want := []string{"committed0", "committed1", "committed2", "later"}
		readAll(ctx, t, ourClient(t, at), topic, want)
		eventually(t, 60*time.Second, func() error {
			mu.Lock()
			defer mu.Unlock()
			if asked["later"] < 2 || asked["dropped"] < 1 {
				return fmt.Errorf("asked %v", asked)
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		for body := range asked {
			if !slices.Contains([]string{"later", "dropped"}, body) {
				t.Errorf("asked about %s, which was ended", body)
			}
		}
	})
}

// Batches that linger arrive whole at the real broker, with the results they were given.
func TestOurLingerAgainstApache(t *testing.T) {
	t.Parallel()
	at := apacheServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic := name(t, "T")
	c := ourClient(t, at)
	p, err := c.NewProducer(name(t, "PG"), client.WithLinger(5*time.Millisecond, 32<<10))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	results := map[string]client.SendResult{}
	const n = 3000
	for i := range n {
		body := fmt.Sprint("m", i)
		err := p.SendAsync(ctx, &client.Message{Topic: topic, Body: []byte(body), Keys: []string{body}},
			func(r client.SendResult, err error) {
				if err != nil {
					t.Errorf("message %s: %v", body, err)
				}
				mu.Lock()
				defer mu.Unlock()
				results[body] = r
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := c.NewReader("", client.WithSubscription(topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(ctx)
	for got := 0; got < n; {
		ms, err := r.Poll(ctx, 32)
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, n, err)
		}
		for _, m := range ms {
			res := results[string(m.Body)]
			if m.ID != res.ID || m.OffsetID != res.OffsetID || m.Source != res.Queue || m.Offset != res.Offset {
				t.Fatalf("message %s: received %+v, result %+v", m.Body, m, res)
			}
		}
		got += len(ms)
	}
}

// Requests find their replies, and a request without a reply says so.
func TestOurRequestReply(t *testing.T) {
	t.Parallel()
	bothServers(t, nil, func(t *testing.T, at target) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		topic := name(t, "T")
		p, err := ourClient(t, at).NewProducer(name(t, "PG"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Send(ctx, &client.Message{Topic: topic, Body: []byte("first")}); err != nil {
			t.Fatal(err) // makes the topic
		}
		waitForRoute(t, at.NameServer, topic)
		server := ourClient(t, at)
		replier, err := server.NewProducer(name(t, "RG"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := server.NewReader("", client.WithSubscription(topic, client.All()),
			client.WithStart(client.Earliest))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		defer r.Close(ctx)
		wg.Go(func() {
			for m, err := range r.Messages(ctx) {
				if err != nil || m.Tag != "ask" {
					continue
				}
				if err := replier.Reply(ctx, m, append([]byte("re: "), m.Body...)); err != nil {
					t.Errorf("reply: %v", err)
				}
			}
		})
		for i := range 5 {
			body := fmt.Sprint("question ", i)
			got, err := p.Request(ctx, &client.Message{Topic: topic, Tag: "ask", Body: []byte(body)})
			if err != nil || string(got.Body) != "re: "+body {
				t.Fatalf("request %d: %+v, %v", i, got, err)
			}
		}
		short, end := context.WithTimeout(ctx, 500*time.Millisecond)
		defer end()
		_, err = p.Request(short, &client.Message{Topic: topic, Tag: "silent", Body: []byte("x")})
		if !errors.Is(err, client.ErrNoReply) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("silent: %v", err)
		}
		if err := replier.Reply(ctx, &client.Received{}, []byte("x")); !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("reply to no request: %v", err)
		}
	})
}

// A timer message is withdrawn by its handle.
func TestOurRecall(t *testing.T) {
	t.Parallel()
	conf := map[string]string{"recallMessageEnable": "true"}
	bothServers(t, conf, func(t *testing.T, at target) {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		topic := name(t, "T")
		p, err := ourClient(t, at).NewProducer(name(t, "PG"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.Send(ctx, &client.Message{Topic: topic, Body: []byte("x"), Delay: time.Minute})
		if err != nil || res.RecallHandle == "" {
			t.Fatalf("%+v, %v", res, err)
		}
		id, err := p.Recall(ctx, topic, res.RecallHandle)
		if err != nil || id != res.ID {
			t.Errorf("recalled %s, %v, want %s", id, err, res.ID)
		}
		if _, err := p.Recall(ctx, "other", res.RecallHandle); !errors.Is(err, client.ErrInvalidMessage) {
			t.Errorf("handle of another topic: %v", err)
		}
	})
}

// Apache's consumer reads what each codec of ours has made.
func TestOurCodecsAgainstApache(t *testing.T) {
	t.Parallel()
	at, jvm := apacheServers(t), java(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic := name(t, "T")
	c := ourClient(t, at)
	body := strings.Repeat("compressible text ", 400)
	codecs := map[string]client.Codec{"zlib": client.Zlib, "lz4": client.LZ4, "zstd": client.Zstd}
	for tag, codec := range codecs {
		p, err := c.NewProducer(name(t, "PG")+tag, client.WithCompression(codec, 5, 4096))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Send(ctx, &client.Message{Topic: topic, Tag: tag, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	waitForRoute(t, at.NameServer, topic)
	push := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	got := awaitPush(t, jvm, push, len(codecs), 30_000)
	if len(got) != len(codecs) {
		t.Fatalf("%d messages of %d", len(got), len(codecs))
	}
	for _, m := range got {
		if m.BodySize != len(body) || m.BodySHA256 != hashOf(body) {
			t.Errorf("codec %s: %d bytes came of %d", m.Tags, m.BodySize, len(body))
		}
	}
}
