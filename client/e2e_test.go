// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine/enginetest"
)

// TestE2EProduceAndRead goes through a real name server and a real broker: every kind of send,
// batches, compression, tags, keys, positions that outlive reader and broker.
func TestE2EProduceAndRead(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	c := newClient(t, cluster.NameServer())
	p := newProducer(t, c)
	want := map[string]bool{}
	add := func(body string) *client.Message {
		want[body] = true
		return &client.Message{Topic: "e2e", Body: []byte(body), Tag: "a", Keys: []string{"k"}}
	}
	if _, err := p.Send(within(t), add("sync")); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		err := p.SendAsync(within(t), add(fmt.Sprintf("async-%d", i)), func(_ client.SendResult, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var batch []*client.Message
	for i := range 50 {
		batch = append(batch, add(fmt.Sprintf("batch-%d", i)))
	}
	results, errs := p.SendBatch(within(t), batch...)
	for i, err := range errs {
		if err != nil || results[i].Offset != results[0].Offset+int64(i) {
			t.Fatalf("batch message %d: %+v, %v", i, results[i], err)
		}
	}
	large := string(bytes.Repeat([]byte("large "), 10_000))
	if _, err := p.Send(within(t), add(large)); err != nil {
		t.Fatal(err)
	}
	if err := p.SendOneWay(within(t), add("one-way")); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}

	r := newReader(t, c, "e2e-group", client.WithSubscription("e2e", client.Tags("a", "b")),
		client.WithStart(client.Earliest))
	for _, m := range poll(t, r, len(want)) {
		if !want[string(m.Body)] || m.Tag != "a" || !slices.Equal(m.Keys, []string{"k"}) {
			t.Fatalf("received %q tag %s keys %v", m.Body, m.Tag, m.Keys)
		}
		delete(want, string(m.Body))
	}
	if len(want) != 0 {
		t.Errorf("%d messages did not arrive", len(want))
	}
	if err := p.SendOneWay(within(t), add("last")); err != nil {
		t.Fatal(err)
	}
	poll(t, r, 1)
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}

	cluster.Restart()
	after := newReader(t, c, "e2e-group", client.WithSubscription("e2e", client.All()),
		client.WithStart(client.Earliest))
	if got := poll(t, after, 1)[0]; string(got.Body) != "last" {
		t.Errorf("after a restart the group begins with %q, want the message that was not done", got.Body)
	}
}

// TestE2EDelay: a message with a delay level comes when its time is there.
func TestE2EDelay(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	c := newClient(t, cluster.NameServer())
	p := newProducer(t, c)
	r := newReader(t, c, "", client.WithSubscription("e2e", client.All()), client.WithStart(client.Earliest))
	sent := time.Now()
	if _, err := p.Send(within(t), &client.Message{
		Topic: "e2e", Body: []byte("x"), DelayLevel: 1,
	}); err != nil {
		t.Fatal(err)
	}
	if poll(t, r, 1); time.Since(sent) < 900*time.Millisecond {
		t.Errorf("a message for a second later came after %s", time.Since(sent))
	}
}
