// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
)

// sentOlder notes what was sent and what the client said of it.
type sentOlder struct {
	t  *testing.T
	mu sync.Mutex

	messages map[string]*client.Message
	results  map[string]client.SendResult
}

func (s *sentOlder) message(topic, body string) *client.Message {
	m := &client.Message{
		Topic: topic, Body: []byte(body), Tag: "a", Keys: []string{"k1", "k2"},
		Properties: map[string]string{"colour": "green", "umlaut": "grün"},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages[body] = m
	return m
}

func (s *sentOlder) note(body string, r client.SendResult, err error) {
	s.t.Helper()
	if err != nil || r.Status != client.Stored || r.ID == "" {
		s.t.Errorf("send of %.20s: %+v, %v", body, r, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[body] = r
}

func (s *sentOlder) async(ctx context.Context, p *client.Producer, topic, prefix string, n int) {
	s.t.Helper()
	for i := range n {
		body := fmt.Sprint(prefix, i)
		err := p.SendAsync(ctx, s.message(topic, body), func(r client.SendResult, err error) {
			s.note(body, r, err)
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// Every way to send stores the message as it was, where the result says.
func olderSends(t *testing.T, o *older) {
	topic, p := o.topic(t, 4), o.producer(t)
	s := &sentOlder{
		t: t, messages: map[string]*client.Message{}, results: map[string]client.SendResult{},
	}
	for i := range 10 {
		body := fmt.Sprint("sync", i)
		r, err := p.Send(o.ctx, s.message(topic, body))
		s.note(body, r, err)
	}
	s.async(o.ctx, p, topic, "async", 300)
	linger, err := o.c.NewProducer(name(t, "LG"), client.WithLinger(5*time.Millisecond, 32<<10))
	if err != nil {
		t.Fatal(err)
	}
	s.async(o.ctx, linger, topic, "linger", 600)
	var batch []*client.Message
	for i := range 40 {
		batch = append(batch, s.message(topic, fmt.Sprint("batch", i)))
	}
	rs, errs := p.SendBatch(o.ctx, batch...)
	for i, m := range batch {
		s.note(string(m.Body), rs[i], errs[i])
	}
	codecs := map[string]client.Codec{"zlib": client.Zlib, "lz4": client.LZ4, "zstd": client.Zstd}
	for what, codec := range codecs {
		p, err := o.c.NewProducer(name(t, "PG")+what, client.WithCompression(codec, 5, 4096))
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Repeat("compressible by "+what, 400)
		r, err := p.Send(o.ctx, s.message(topic, body))
		s.note(body, r, err)
	}
	for i := range 5 {
		if err := p.SendOneWay(o.ctx, s.message(topic, fmt.Sprint("oneway", i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range o.poll(t, o.reader(t, "", topic), len(s.messages)) {
		want := *s.messages[string(m.Body)]
		got := m.Message
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("message %.20s (-sent +received):\n%s", m.Body, diff)
		}
		r, known := s.results[string(m.Body)]
		if known && (m.ID != r.ID || m.OffsetID != r.OffsetID || m.Source != r.Queue || m.Offset != r.Offset) {
			t.Fatalf("message %.20s: received %+v, result %+v", m.Body, m, r)
		}
	}
}

// Committed messages arrive, those rolled back do not; the broker asks about the others.
func olderTransactions(t *testing.T, o *older) {
	topic := o.topic(t, 2)
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
		case body == "later" && asked[body] > 1:
			return client.TxCommitted
		case body == "dropped":
			return client.TxRolledBack
		}
		return client.TxUnknown
	}
	tp, err := o.c.NewTransactionProducer(name(t, "PG"), check)
	if err != nil {
		t.Fatal(err)
	}
	message := func(body string) *client.Message {
		return &client.Message{
			Topic: topic, Body: []byte(body), Properties: map[string]string{"colour": "green"},
		}
	}
	for _, body := range []string{"later", "dropped"} {
		if _, err := tp.Begin(o.ctx, message(body)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		_, err := tp.Transact(o.ctx, message(fmt.Sprint("committed", i)),
			func(context.Context, *client.Tx) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	bad := errors.New("no")
	if _, err := tp.Transact(o.ctx, message("rolled back"),
		func(context.Context, *client.Tx) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("rolled back: %v", err)
	}
	want := []string{"committed0", "committed1", "committed2", "later"}
	if err := each(counts(o.poll(t, o.reader(t, "", topic), len(want))), want, 1); err != nil {
		t.Error(err)
	}
	eventually(t, 20*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if asked["later"] < 2 || asked["dropped"] < 1 || len(asked) != 2 {
			return fmt.Errorf("asked %v", asked)
		}
		return nil
	})
}

// Requests find their replies.
func olderRequests(t *testing.T, o *older) {
	topic, p := o.topic(t, 2), o.producer(t)
	server := ourClient(t, o.at)
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
	defer r.Close(o.ctx)
	wg.Go(func() {
		for m, err := range r.Messages(o.ctx) {
			if err != nil {
				continue
			}
			if err := replier.Reply(o.ctx, m, append([]byte("re: "), m.Body...)); err != nil {
				t.Errorf("reply: %v", err)
			}
		}
	})
	for i := range 5 {
		body := fmt.Sprint("question ", i)
		got, err := p.Request(o.ctx, &client.Message{Topic: topic, Body: []byte(body)})
		if err != nil || string(got.Body) != "re: "+body {
			t.Fatalf("request %d: %+v, %v", i, got, err)
		}
	}
}

// Delay levels are what 4.9 has for later delivery.
func olderDelays(t *testing.T, o *older) {
	topic, p := o.topic(t, 1), o.producer(t)
	began := time.Now()
	m := &client.Message{Topic: topic, Body: []byte("later"), DelayLevel: 2}
	if _, err := p.Send(o.ctx, m); err != nil {
		t.Fatal(err)
	}
	o.send(t, p, topic, "now")
	r := o.reader(t, "", topic)
	got := o.poll(t, r, 2)
	if string(got[0].Body) != "now" || string(got[1].Body) != "later" {
		t.Errorf("got %s, then %s", got[0].Body, got[1].Body)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the second delay level, 2 s, took %s", took)
	}
}
