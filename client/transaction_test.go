// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// asking is a scripted broker that notes how transactions end and can ask about them.
type asking struct {
	*scripttest.Broker

	mu    sync.Mutex
	conns []net.Conn
	ends  []protocol.EndTransactionRequest
	more  chan struct{} // closed and replaced with each end and each connection
}

func newAsking(b *scripttest.Broker) *asking {
	a := &asking{Broker: b, more: make(chan struct{})}
	b.Handle(remoting.HeartBeat, func(r *scripttest.Request) *scripttest.Reply {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conns = append(a.conns, r.Conn)
		a.changedLocked()
		return &scripttest.Reply{}
	})
	b.Handle(remoting.EndTransaction, func(r *scripttest.Request) *scripttest.Reply {
		var h protocol.EndTransactionRequest
		if err := h.Decode(r.Command); err != nil {
			return &scripttest.Reply{Code: remoting.SystemError, Remark: err.Error()}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ends = append(a.ends, h)
		a.changedLocked()
		return &scripttest.Reply{}
	})
	return a
}

func (a *asking) changedLocked() {
	close(a.more)
	a.more = make(chan struct{})
}

// await waits until ok holds, looked at with the lock held.
func (a *asking) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	for {
		a.mu.Lock()
		done, more := ok(), a.more
		a.mu.Unlock()
		if done {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("waiting for %s", what)
		}
	}
}

// push sends a request to the client over the connection of its last heartbeat.
func (a *asking) push(t *testing.T, code remoting.RequestCode, h remoting.Header, body []byte) {
	t.Helper()
	a.await(t, "a heartbeat", func() bool { return len(a.conns) > 0 })
	head := remoting.NewRequest(code, 77)
	head.Flag = remoting.FlagOneway
	e := remoting.Begin(nil, head)
	h.AppendFields(&e)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.conns[len(a.conns)-1].Write(e.End(body)); err != nil {
		t.Error(err)
	}
}

// check asks about a half message of a group.
func (a *asking) check(t *testing.T, group, id string) {
	t.Helper()
	props := record.AppendProperty(nil, "PGROUP", group)
	props = record.AppendProperty(props, "UNIQ_KEY", id)
	props = record.AppendProperty(props, "TRAN_MSG", "true")
	host := netip.MustParseAddrPort("127.0.0.1:1")
	d := record.Draft{
		Topic: []byte("t"), BornHost: host, StoreHost: host, Body: []byte("half " + id), Properties: props,
	}
	b := make([]byte, d.Size())
	d.Encode(b, record.Place{})
	a.push(t, remoting.CheckTransactionState, &protocol.CheckTransactionStateRequest{
		Topic: protocol.HalfTopic, TranStateTableOffset: 7, CommitLogOffset: 1234, MsgID: id,
		TransactionID: id, BrokerName: a.Name,
	}, b)
}

func commits(context.Context, *client.Received) client.TxState { return client.TxCommitted }

func TestTransact(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := newAsking(s.Brokers[0])
	tp, err := c.NewTransactionProducer("pg", commits)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	type contextKey struct{}
	res, err := tp.Transact(context.WithValue(ctx, contextKey{}, "mine"), text("x"),
		func(ctx context.Context, tx *client.Tx) error {
			// Fault 24: the context did not reach the local transaction.
			if ctx.Value(contextKey{}) != "mine" || tx.ID == "" {
				t.Errorf("context %v, transaction %+v", ctx, tx)
			}
			return nil
		})
	if err != nil || res.Status != client.Stored {
		t.Fatalf("%+v, %v", res, err)
	}
	v, err := record.Parse(b.Records("t", 0)[0])
	if err != nil {
		t.Fatal(err)
	}
	if group, _ := record.Property(v.Properties(), "PGROUP"); string(group) != "pg" ||
		v.SysFlag() != protocol.SysFlagPrepared {
		t.Errorf("half message of group %q with flag %#x", group, v.SysFlag())
	}
	want := protocol.EndTransactionRequest{
		Topic: "t", ProducerGroup: "pg", TranStateTableOffset: res.Offset,
		CommitLogOffset: int64(v.PhysicalOffset()), CommitOrRollback: protocol.TransactionCommit,
		MsgID: res.ID, TransactionID: res.ID, BrokerName: b.Name, HasBrokerName: true,
	}
	if diff := cmp.Diff([]protocol.EndTransactionRequest{want}, b.ends); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
	bad := errors.New("no")
	if _, err := tp.Transact(ctx, text("x"), func(context.Context, *client.Tx) error {
		return bad
	}); !errors.Is(err, bad) {
		t.Errorf("failed transaction: %v", err)
	}
	if _, err := tp.Transact(ctx, text("x"), func(context.Context, *client.Tx) error {
		panic("user")
	}); err == nil || !strings.Contains(err.Error(), "user") {
		t.Errorf("panic: %v", err)
	}
	for i, end := range b.ends[1:] {
		if end.CommitOrRollback != protocol.TransactionRollback {
			t.Errorf("end %d: %+v", i+1, end)
		}
	}
	if len(b.ends) != 3 {
		t.Errorf("%d ends, want 3", len(b.ends))
	}
	tx, err := tp.Begin(ctx, text("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tx.Commit(ctx), tx.Commit(ctx)); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(ctx); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("rollback after commit: %v", err)
	}
	m := text("x")
	m.Delay = time.Second
	if _, err := tp.Begin(ctx, m); !errors.Is(err, client.ErrInvalidMessage) {
		t.Errorf("delayed: %v", err)
	}
}

// TestTransactionChecks: the broker's questions are answered with its own offsets, by the producer of
// the group, and one that blocks or panics keeps nobody from answering.
func TestTransactionChecks(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	b := newAsking(s.Brokers[0])
	release := make(chan struct{})
	blocked := make(chan struct{})
	tp, err := c.NewTransactionProducer("pg", func(ctx context.Context, m *client.Received) client.TxState {
		switch m.ID {
		case "blocks":
			close(blocked)
			<-release
			return client.TxUnknown
		case "panics":
			panic("user")
		case "drop":
			return client.TxRolledBack
		}
		if m.Topic != "t" || string(m.Body) != "half "+m.ID {
			t.Errorf("asked about %+v", m)
		}
		return client.TxCommitted
	})
	if err != nil {
		t.Fatal(err)
	}
	b.check(t, "pg", "blocks")
	<-blocked
	for _, id := range []string{"panics", "drop", "keep"} {
		b.check(t, "pg", id)
	}
	b.check(t, "others", "not ours")
	b.await(t, "three answers", func() bool { return len(b.ends) >= 3 })
	close(release)
	b.await(t, "four answers", func() bool { return len(b.ends) >= 4 })
	got := map[string]string{}
	for _, e := range b.ends {
		if !e.FromCheck || e.Topic != protocol.HalfTopic || e.TranStateTableOffset != 7 ||
			e.CommitLogOffset != 1234 || e.ProducerGroup != "pg" {
			t.Errorf("answer %+v", e)
		}
		got[e.MsgID] = fmt.Sprint(e.CommitOrRollback)
	}
	want := map[string]string{"blocks": "0", "panics": "0", "drop": "12", "keep": "8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := tp.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// TestRequest: the reply that carries the correlation id ends the wait, another one does not.
func TestRequest(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := newAsking(s.Brokers[0])
	p := newProducer(t, c)
	ctx := within(t)
	type answer struct {
		m   *client.Received
		err error
	}
	got := make(chan answer, 1)
	go func() {
		m, err := p.Request(ctx, text("question"))
		got <- answer{m, err}
	}()
	b.await(t, "a heartbeat", func() bool { return len(b.conns) > 0 })
	var asked record.View
	for len(b.Records("t", 0)) == 0 {
		if ctx.Err() != nil {
			t.Fatal("no request came")
		}
	}
	asked, err := record.Parse(b.Records("t", 0)[0])
	if err != nil {
		t.Fatal(err)
	}
	id, _ := record.Property(asked.Properties(), "CORRELATION_ID")
	to, _ := record.Property(asked.Properties(), "REPLY_TO_CLIENT")
	ttl, _ := record.Property(asked.Properties(), "TTL")
	if len(id) != 36 || string(to) != c.ID() || len(ttl) < 4 {
		t.Errorf("properties %q", asked.Properties())
	}
	reply := func(id, body string) {
		props := record.AppendProperty(nil, "CORRELATION_ID", id)
		props = record.AppendProperty(props, "colour", "green")
		b.push(t, remoting.PushReplyMessageToClient, &protocol.ReplyPush{
			Group: "rg", Topic: "c_REPLY_TOPIC", Properties: string(props), BornHost: "127.0.0.1:1",
			StoreHost: "127.0.0.1:2",
		}, []byte(body))
	}
	reply("another", "wrong")
	reply(string(id), "right")
	reply(string(id), "twice")
	a := <-got
	if a.err != nil || string(a.m.Body) != "right" || a.m.Properties["colour"] != "green" {
		t.Errorf("reply %+v, %v", a.m, a.err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := p.Request(short, text("x")); !errors.Is(err, client.ErrNoReply) {
		t.Errorf("without a reply: %v", err)
	}
}

// TestTrace holds the records to the bytes of Apache's Java client, and lets nothing of it be lost by
// Close.
func TestTrace(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	s.SetTopic(protocol.TraceTopic, 1)
	p := newProducer(t, c, client.WithTrace(""))
	m := &client.Message{Topic: "t", Tag: "T", Keys: []string{"tracekey"}, Body: []byte("traced")}
	res, err := p.Send(within(t), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SendAsync(within(t), text("plain"), nil); err != nil {
		t.Fatal(err)
	}
	_, errs := p.SendBatch(within(t), text("one"), text("two"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	var traces []string
	keys := ""
	for _, rec := range s.Brokers[0].Records(protocol.TraceTopic, 0) {
		v, err := record.Parse(rec)
		if err != nil {
			t.Fatal(err)
		}
		k, _ := record.Property(v.Properties(), "KEYS")
		keys += string(k) + " "
		traces = append(traces, strings.Split(strings.TrimSuffix(string(v.Body()), "\x02"), "\x02")...)
	}
	if len(traces) != 4 || !strings.Contains(keys, res.ID) || !strings.Contains(keys, "tracekey") {
		t.Fatalf("%d records %q, keys %s", len(traces), traces, keys)
	}
	f := strings.Split(traces[0], "\x01")
	if len(f) != 14 {
		t.Fatalf("record %q", traces[0])
	}
	f[1], f[10] = "time", "cost"
	want := []string{
		"Pub", "time", "DefaultRegion", "pg", "t", res.ID, "T", "tracekey", s.Brokers[0].Addr, "6", "cost",
		"0", res.OffsetID, "true",
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if f := strings.Split(traces[1], "\x01"); f[6] != "null" || f[7] != "null" {
		t.Errorf("absent tag and keys: %q", f)
	}
}
