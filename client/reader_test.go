// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

func fill(t *testing.T, c *client.Client, n int) {
	t.Helper()
	p := newProducer(t, c)
	for i := range n {
		if _, err := p.Send(within(t), text(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

func earliest(topic string) []client.ConsumerOption {
	return []client.ConsumerOption{
		client.WithSubscription(topic, client.All()), client.WithStart(client.Earliest),
	}
}

// TestReaderCommit: what is done is stored by Close, what was only handed out is not.
func TestReaderCommit(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 10)
	r := newReader(t, c, "g", earliest("t")...)
	poll(t, r, 4)
	if got := poll(t, r, 2); string(got[0].Body) != "4" { // now 0 to 3 are done
		t.Fatalf("the second poll begins with %s", got[0].Body)
	}
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	b := s.Brokers[0]
	if at := b.Offset("g", "t", 0); at != 4 {
		t.Errorf("stored position %d, want 4", at)
	}
	r = newReader(t, c, "g", earliest("t")...)
	got := poll(t, r, 6)
	if string(got[0].Body) != "4" {
		t.Errorf("the next reader begins with %s, want 4", got[0].Body)
	}
	if err := r.Commit(within(t), got[2]); err != nil {
		t.Fatal(err)
	}
	if at := b.Offset("g", "t", 0); at != 7 {
		t.Errorf("position after commit of one message: %d, want 7", at)
	}
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if at := b.Offset("g", "t", 0); at != 7 {
		t.Errorf("position after commit and close: %d, want 7", at)
	}
}

// TestReaderMessages: the message at which a loop is left comes again.
func TestReaderMessages(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 5)
	r := newReader(t, c, "g", earliest("t")...)
	n := 0
	for m, err := range r.Messages(within(t)) {
		if err != nil || string(m.Body) != fmt.Sprint(n) {
			t.Fatalf("message %d: %v %v", n, m, err)
		}
		if n == 3 {
			break
		}
		n++
	}
	ctx, cancel := context.WithCancel(within(t))
	var last error
	for m, err := range r.Messages(ctx) {
		if err != nil {
			last = err
			break
		}
		if string(m.Body) != fmt.Sprint(n) {
			t.Fatalf("after the break came %s, want %d", m.Body, n)
		}
		if n++; n == 5 {
			cancel()
		}
	}
	cancel()
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the loop ended with %v", last)
	}
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if at := s.Brokers[0].Offset("g", "t", 0); at != 5 {
		t.Errorf("stored position %d, want 5", at)
	}
}

func TestReaderSeekAndLag(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 100)
	q := client.Queue{Topic: "t", Broker: s.Brokers[0].Name}
	r := newReader(t, c, "", client.WithStart(client.Earliest), client.WithPrefetch(10, 1<<20))
	if err := r.Seek(within(t), q, 1); !errors.Is(err, client.ErrNotAssigned) {
		t.Errorf("seek before assign: got %v", err)
	}
	if err := r.Assign(q); err != nil {
		t.Fatal(err)
	}
	poll(t, r, 5)
	if err := r.Seek(within(t), q, 50); err != nil {
		t.Fatal(err)
	}
	if got := poll(t, r, 1)[0]; got.Offset != 50 {
		t.Errorf("after seek to 50 came %d", got.Offset)
	}
	poll(t, r, 9)
	lag, err := r.Lag(within(t))
	if err != nil || lag[q] != 49 { // 51 to 59 are in hand, not done
		t.Errorf("lag %v, %v, want 49", lag, err)
	}
	if err := r.Seek(within(t), q, 101); !errors.Is(err, client.ErrOffsetOutOfRange) {
		t.Errorf("seek beyond the end: got %v", err)
	}
	if err := r.SeekTime(within(t), q, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := poll(t, r, 1)[0]; got.Offset != 0 {
		t.Errorf("after seek to an hour ago came %d", got.Offset)
	}
	if err := r.Commit(within(t)); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("commit without a group: got %v", err)
	}
}

func TestReaderStarts(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 3)
	qs, err := c.Queues(within(t), "t")
	if err != nil || len(qs) != 1 {
		t.Fatalf("queues %v, %v", qs, err)
	}
	r := newReader(t, c, "", client.WithStart(client.At(time.Now().Add(-time.Minute))))
	if err := r.Assign(qs...); err != nil {
		t.Fatal(err)
	}
	if got := poll(t, r, 1)[0]; got.Offset != 0 {
		t.Errorf("start a minute ago: first offset %d", got.Offset)
	}
	late := newReader(t, c, "", client.WithStart(client.Latest))
	if err := late.Assign(qs...); err != nil {
		t.Fatal(err)
	}
	for s.Brokers[0].Count(remoting.LitePullMessage) < 3 { // two pulls of r and the first of late
		if _, err := late.Lag(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, c, 1)
	if got := poll(t, late, 1)[0]; got.Offset != 3 {
		t.Errorf("start at the end: first offset %d, want 3", got.Offset)
	}
}

// TestReaderTopicComesLater: a topic made after the reader is read from its first message, although
// the reader starts at the end.
func TestReaderTopicComesLater(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	r := newReader(t, c, "g", client.WithSubscription("t", client.All()))
	for s.NameServer.Count(remoting.GetRouteInfoByTopic) == 0 {
		if err := c.Ping(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, c, 1)
	poll(t, r, 1)
}

// TestReaderFilter: brokers compare hashes only, so the client looks at the tag itself; what does
// not match counts as done.
func TestReaderFilter(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	tag := record.AppendProperty(nil, "TAGS", "BB") // the same hash as Aa
	want := record.AppendProperty(nil, "TAGS", "Aa")
	b := s.Brokers[0]
	b.Put("t", 0, 0, []byte("other"), tag)
	b.Put("t", 0, 0, []byte("wanted"), want)
	r := newReader(t, c, "", client.WithSubscription("t", client.Tags("Aa")), client.WithStart(client.Earliest))
	if got := poll(t, r, 1)[0]; string(got.Body) != "wanted" {
		t.Errorf("got %s", got.Body)
	}
}

// TestReaderDecodeError: a body that does not decompress is told of, and reading goes on behind it.
func TestReaderDecodeError(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := s.Brokers[0]
	b.Put("t", 0, 0, []byte("before"), nil)
	b.Put("t", 0, 0x301, []byte("this is not zlib"), nil)
	b.Put("t", 0, 0, []byte("after"), nil)
	r := newReader(t, c, "", earliest("t")...)
	var bodies []string
	var bad *client.DecodeError
	for len(bodies) < 2 || bad == nil {
		ms, err := r.Poll(within(t), 10)
		if err != nil && !errors.As(err, &bad) {
			t.Fatal(err)
		}
		for _, m := range ms {
			bodies = append(bodies, string(m.Body))
		}
	}
	if bad.Offset != 1 || bad.Source.Topic != "t" || bodies[1] != "after" {
		t.Errorf("error %v, bodies %v", bad, bodies)
	}
}

// TestReaderInnerBatch: a record that holds a batch is handed out as its messages.
func TestReaderInnerBatch(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	var body []byte
	for i := range 3 {
		body = record.AppendBatchEntry(body, 0, []byte(fmt.Sprint(i)),
			record.AppendProperty(nil, "UNIQ_KEY", fmt.Sprintf("id-%d", i)))
	}
	s.Brokers[0].Put("t", 0, 0xC0, body, nil)
	r := newReader(t, c, "", earliest("t")...)
	for i, m := range poll(t, r, 3) {
		if string(m.Body) != fmt.Sprint(i) || m.ID != fmt.Sprintf("id-%d", i) || m.Offset != int64(i) {
			t.Errorf("message %d: %+v", i, m)
		}
	}
}

// TestReaderSurvives: a broker that drops connections costs no message and none twice.
func TestReaderSurvives(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 2)
	fill(t, c, 200)
	r := newReader(t, c, "g", append(earliest("t"), client.WithPrefetch(5, 1<<20))...)
	seen := map[string]int{}
	for i := range 10 {
		for _, m := range poll(t, r, 20) {
			seen[string(m.Body)]++
		}
		if i%3 == 0 {
			s.Brokers[0].Drop()
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d different messages, want 200", len(seen))
	}
}

// TestReaderPermission: what waiting does not cure is told.
func TestReaderPermission(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	s.Brokers[0].Handle(remoting.LitePullMessage, refusePull)
	r := newReader(t, c, "g", earliest("t")...)
	if _, err := r.Poll(within(t), 1); !errors.Is(err, client.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func TestReaderMisuse(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	r := newReader(t, c, "g", earliest("t")...)
	if err := r.Assign(client.Queue{Topic: "t", Broker: "b"}); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("assign beside a subscription: got %v", err)
	}
	if _, err := r.Poll(within(t), 0); err == nil {
		t.Error("polling for nothing was accepted")
	}
	if err := r.Commit(within(t), &client.Received{}); !errors.Is(err, client.ErrNotAssigned) {
		t.Errorf("commit of a foreign message: got %v", err)
	}
}

// TestReaderSaysWhyItWaits: a wait that ends without a queue to read names the cause and a next step.
func TestReaderSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.NameServer.Handle(remoting.GetRouteInfoByTopic, permitting(s, "unreadable", protocol.PermWrite))
	lost := newClient(t, "127.0.0.1:1")
	for name, tc := range map[string]struct {
		r    *client.Reader
		want error
		step string
	}{
		"absent":         {newReader(t, c, "a", all("absent")), client.ErrNoRoute, "create the topic"},
		"unreadable":     {newReader(t, c, "b", all("unreadable")), client.ErrNoQueue, "permission"},
		"no name server": {newReader(t, lost, "", all("t")), client.ErrNoNameServer, "name server addresses"},
		"not assigned":   {newReader(t, c, ""), client.ErrNotAssigned, "Assign"},
	} {
		eventually(t, name+" is told", func() bool {
			ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
			defer cancel()
			_, err := tc.r.Poll(ctx, 1)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s: %v", name, err)
			}
			return errors.Is(err, tc.want) && strings.Contains(err.Error(), tc.step)
		})
	}
	if qs, err := c.Queues(within(t), "unreadable"); !errors.Is(err, client.ErrNoQueue) {
		t.Errorf("queues %v, %v", qs, err)
	}
	for _, err := range newReader(t, c, "loop", all("unreadable")).Messages(stopped(t)) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("loop: %v", err)
		}
	}
}

func stopped(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// permitting answers the route of one topic with a permission; there are no others.
func permitting(s *scripttest.Cluster, topic string, perm int32) scripttest.Handler {
	return func(r *scripttest.Request) *scripttest.Reply {
		var h protocol.RouteRequest
		if err := h.Decode(r.Command); err != nil || h.Topic != topic {
			return &scripttest.Reply{Code: remoting.TopicNotExist, Remark: "scripted"}
		}
		b := s.Brokers[0]
		return &scripttest.Reply{Body: protocol.Marshal(&protocol.TopicRouteData{
			BrokerDatas: []protocol.BrokerData{{
				BrokerName: b.Name, Cluster: "c", BrokerAddrs: map[int64]string{0: b.Addr},
			}},
			QueueDatas: []protocol.QueueData{{
				BrokerName: b.Name, Perm: perm, ReadQueueNums: 4, WriteQueueNums: 4,
			}},
		})}
	}
}

// TestNoQueueToWrite: a topic that may only be read is told apart from one that does not exist.
func TestNoQueueToWrite(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.NameServer.Handle(remoting.GetRouteInfoByTopic, permitting(s, "t", protocol.PermRead))
	_, err := newProducer(t, c).Send(within(t), text("x"))
	if !errors.Is(err, client.ErrNoQueue) || !errors.Is(err, client.ErrNoRoute) ||
		!strings.Contains(err.Error(), "written to") || !strings.Contains(err.Error(), "permission") {
		t.Errorf("got %v", err)
	}
}
