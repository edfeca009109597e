// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// quickChecks makes a broker ask soon.
func quickChecks(c *engine.Config) {
	c.TransactionTimeOutMS, c.TransactionCheckMS = 100, 200
}

func heartbeat(client string, producers ...string) []byte {
	data := protocol.HeartbeatData{ClientID: client}
	for _, name := range producers {
		data.ProducerDataSet = append(data.ProducerDataSet, protocol.ProducerData{GroupName: name})
	}
	return protocol.Marshal(data)
}

func (p *rawPeer) request(code remoting.RequestCode, header remoting.Header, body []byte) {
	p.t.Helper()
	e := remoting.Begin(nil, remoting.Head{
		Code: int32(code), Version: remoting.ProtocolVersion, Opaque: 1, Serialize: remoting.JSON,
	})
	if header != nil {
		header.AppendFields(&e)
	}
	p.write(e.End(body))
}

// half sends a half message and tells what ends it.
func (p *peer) half(topic string, queue int32, body, group string) protocol.EndTransactionRequest {
	p.t.Helper()
	r := p.send(topic, queue, body, "TRAN_MSG", "true", "PGROUP", group)
	return endOf(p.t, &r, group)
}

func endOf(t testing.TB, r *protocol.SendResponse, group string) protocol.EndTransactionRequest {
	t.Helper()
	_, at, err := record.ParseOffsetID(string(r.MsgID))
	if err != nil {
		t.Fatal(err)
	}
	return protocol.EndTransactionRequest{
		ProducerGroup: group, TranStateTableOffset: r.QueueOffset, CommitLogOffset: int64(at),
		MsgID: string(r.TransactionID), TransactionID: string(r.TransactionID),
	}
}

func (p *peer) end(r protocol.EndTransactionRequest, how int32) remoting.ResponseCode {
	p.t.Helper()
	r.CommitOrRollback = how
	return p.call(remoting.EndTransaction, &r, nil).Code
}

func (p *peer) bodies(topic string, queue int32) []string {
	p.t.Helper()
	var out []string
	for from := int64(0); ; {
		got := p.pull(pullRequest(topic, queue, from, "*", 0))
		if got.code != remoting.Success {
			return out
		}
		for _, v := range got.views {
			out = append(out, string(v.Body()))
		}
		from = got.head.NextOffset
	}
}

// A half message is out of sight until it is committed; what is not ended is asked about, on the
// connection of a producer of the group.
func TestTransactions(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t, quickChecks)
	p := newPeer(t, c.Broker())
	p.send("Orders", 0, "plain")
	commit := p.half("Orders", 0, "committed", "PG")
	rollback := p.half("Orders", 0, "rolled back", "PG")
	p.half("Orders", 0, "unknown", "PG")
	if got := p.bodies("Orders", 0); fmt.Sprint(got) != "[plain]" {
		t.Fatalf("half messages are seen: %v", got)
	}
	if code := p.end(commit, protocol.TransactionCommit); code != 0 {
		t.Errorf("commit: %v", code)
	}
	if code := p.end(rollback, protocol.TransactionRollback); code != 0 {
		t.Errorf("rollback: %v", code)
	}
	if got := p.bodies("Orders", 0); fmt.Sprint(got) != "[plain committed]" {
		t.Fatalf("after the ends: %v", got)
	}

	producer := dialRaw(t, c.Broker())
	producer.request(remoting.HeartBeat, nil, heartbeat("producer@1", "PG"))
	var check protocol.CheckTransactionStateRequest
	for check.MsgID == "" {
		cmd, err := producer.answer(callWithin)
		if err != nil {
			t.Fatal("no check:", err)
		}
		if cmd.IsResponse() {
			continue
		}
		if cmd.Code != int32(remoting.CheckTransactionState) || !cmd.IsOneway() {
			t.Fatalf("code %d, flag %d", cmd.Code, cmd.Flag)
		}
		if err := check.Decode(cmd); err != nil {
			t.Fatal(err)
		}
		if v, err := record.Parse(cmd.Body); err != nil || string(v.Body()) != "unknown" ||
			string(v.Topic()) != "Orders" {
			t.Fatalf("asked about %q, %v", cmd.Body, err)
		}
	}
	answer := protocol.EndTransactionRequest{
		ProducerGroup: "PG", TranStateTableOffset: check.TranStateTableOffset,
		CommitLogOffset: check.CommitLogOffset, FromCheck: true, MsgID: check.MsgID,
	}
	if code := p.end(answer, protocol.TransactionCommit); code != 0 {
		t.Errorf("commit after the check: %v", code)
	}
	if got := p.bodies("Orders", 0); fmt.Sprint(got) != "[plain committed unknown]" {
		t.Fatalf("after the check: %v", got)
	}
}

// A half message is given up when files as old as it may be deleted: fileReservedTime decides both.
func TestTransactionsKeptAsLongAsFiles(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t, quickChecks, func(c *engine.Config) { c.FileReservedHours = 1 })
	p := newPeer(t, c.Broker())
	p.send("Orders", 0, "plain")
	old := sendRequest("Orders", 0, "TRAN_MSG", "true", "PGROUP", "PG")
	old.BornMS -= (2 * time.Hour).Milliseconds()
	if r := p.call(remoting.SendMessageV2, old, []byte("old")); r.Code != remoting.Success {
		t.Fatalf("send: %v %s", r.Code, r.Remark)
	}
	p.half("Orders", 0, "young", "PG")
	eventually(t, func() bool {
		return fmt.Sprint(p.bodies(protocol.TransCheckMaxTimeTopic, 0)) == "[old]"
	})
}

func TestTransactionsRejected(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t, func(c *engine.Config) { c.RejectTransactions = true })
	p := newPeer(t, c.Broker())
	r := p.call(remoting.SendMessageV2, sendRequest("T", 0, "TRAN_MSG", "true", "PGROUP", "G"), []byte("b"))
	if r.Code != remoting.NoPermission {
		t.Errorf("code %v, remark %q", r.Code, r.Remark)
	}
}

// What cannot be a half message is refused, and nothing is stored.
func TestHalfRefused(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	p := newPeer(t, c.Broker())
	flagged := sendRequest("T", 0)
	flagged.SysFlag = protocol.SysFlagPrepared
	batch := sendRequest("T", 0, "TRAN_MSG", "true")
	batch.Batch = true
	for name, r := range map[string]*protocol.SendRequest{"flag without property": flagged, "batch": batch} {
		body := []byte("b")
		if r.Batch {
			body = record.AppendBatchEntry(nil, 0, body, nil)
		}
		if got := p.call(remoting.SendMessageV2, r, body); got.Code != remoting.MessageIllegal {
			t.Errorf("%s: code %v, remark %q", name, got.Code, got.Remark)
		}
	}
	if got := p.bodies("T", 0); len(got) != 0 {
		t.Errorf("stored: %v", got)
	}
}

// transactor runs transactions against a broker that is killed, and keeps count of each.
type transactor struct {
	mu        sync.Mutex
	decisions map[string]bool // of acknowledged half messages, by body: true to commit
	serial    atomic.Int64
}

func (x *transactor) decide(body string) bool {
	n, _ := strconv.Atoi(body)
	return n%3 != 0
}

// run makes transactions until ctx ends or the broker dies: half of them are ended at once, the
// others are left to the check.
func (x *transactor) run(ctx context.Context, addr string) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			pool := invoke.NewPool(invoke.Config{})
			defer func() { _ = pool.Close() }()
			for ctx.Err() == nil {
				if !x.one(ctx, pool, addr) {
					return
				}
			}
		})
	}
	wg.Wait()
}

func (x *transactor) one(ctx context.Context, pool *invoke.Pool, addr string) bool {
	body := strconv.FormatInt(x.serial.Add(1), 10)
	r, err := pool.Call(ctx, addr, &invoke.Request{
		Code: remoting.SendMessageV2, Body: []byte(body),
		Header: sendRequest("Tx", 0, "TRAN_MSG", "true", "PGROUP", "PG"),
	})
	if err != nil || r.Code != remoting.Success {
		return false
	}
	var sent protocol.SendResponse
	if sent.Decode(r.Command) != nil {
		return false
	}
	x.mu.Lock()
	x.decisions[body] = x.decide(body)
	x.mu.Unlock()
	if rand.IntN(2) == 0 {
		return true
	}
	_, at, _ := record.ParseOffsetID(string(sent.MsgID))
	end := protocol.EndTransactionRequest{
		ProducerGroup: "PG", TranStateTableOffset: sent.QueueOffset, CommitLogOffset: int64(at),
		MsgID: "m", CommitOrRollback: outcome(x.decide(body)),
	}
	_, err = pool.Call(ctx, addr, &invoke.Request{Code: remoting.EndTransaction, Header: &end})
	return err == nil
}

func outcome(commit bool) int32 {
	if commit {
		return protocol.TransactionCommit
	}
	return protocol.TransactionRollback
}

// answerChecks is a producer of the group that answers every check until its connection ends.
func (x *transactor) answerChecks(t *testing.T, producer *rawPeer) {
	t.Helper()
	for {
		cmd, err := producer.answer(time.Minute)
		if err != nil {
			return
		}
		if cmd.IsResponse() {
			continue
		}
		var check protocol.CheckTransactionStateRequest
		v, parseErr := record.Parse(cmd.Body)
		if err := check.Decode(cmd); err != nil || parseErr != nil {
			t.Errorf("check: %v, %v", err, parseErr)
			return
		}
		producer.request(remoting.EndTransaction, &protocol.EndTransactionRequest{
			ProducerGroup: "PG", TranStateTableOffset: check.TranStateTableOffset,
			CommitLogOffset: check.CommitLogOffset, FromCheck: true, MsgID: check.MsgID,
			CommitOrRollback: outcome(x.decide(string(v.Body()))),
		}, nil)
	}
}

// The broker is killed again and again while transactions are at work. In the end each acknowledged
// half message that its producer commits is delivered, none that is rolled back is, and none twice:
// its op record was stored with it.
func TestCrashTransactions(t *testing.T) {
	t.Parallel()
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			crashTransactions(t, flush)
		})
	}
}

func crashTransactions(t *testing.T, flush string) {
	t.Helper()
	dir := t.TempDir()
	x := &transactor{decisions: map[string]bool{}}
	for range 4 {
		v := startVictim(t, dir, flush)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		x.run(ctx, v.addr)
		cancel()
		v.end(t, true)
	}
	v := startVictim(t, dir, flush)
	defer v.end(t, false)
	producer := dialRaw(t, v.addr)
	producer.request(remoting.HeartBeat, nil, heartbeat("checker@1", "PG"))
	var wg sync.WaitGroup
	wg.Go(func() { x.answerChecks(t, producer) })
	defer func() { _ = producer.conn.Close(); wg.Wait() }()
	p := newPeer(t, v.addr)
	count := map[string]int{}
	missing := func() (string, bool) {
		clear(count)
		for _, body := range p.bodies("Tx", 0) {
			count[body]++
		}
		for body, commit := range x.decisions {
			if commit && count[body] == 0 {
				return body, true
			}
		}
		return "", false
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		body, more := missing()
		if !more {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("message %s of %d was acknowledged, committed and never delivered", body, len(x.decisions))
		}
	}
	for body, n := range count {
		if !x.decide(body) {
			t.Errorf("message %s was rolled back and delivered", body)
		}
		if n > 1 {
			t.Errorf("message %s was delivered %d times", body, n)
		}
	}
	if len(x.decisions) < 50 {
		t.Errorf("only %d transactions", len(x.decisions))
	}
}

// TestHalfCounts: the file transactionMetrics has how many half messages of a topic are undecided.
func TestHalfCounts(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	count := func() string {
		t.Helper()
		cluster.Restart() // writes it
		p = newPeer(t, cluster.Broker())
		text, err := os.ReadFile(filepath.Join(cluster.Dir(), "config", transaction.CountsName))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), `"counted":{"count":`)
		number, _, _ := strings.Cut(rest, ",")
		return number
	}
	var halves []protocol.SendResponse
	for range 3 {
		halves = append(halves, p.send("counted", 0, "half", "TRAN_MSG", "true", "PGROUP", "PG"))
	}
	p.send("counted", 0, "plain")
	if got := count(); got != "3" {
		t.Errorf("%s half messages, want 3", got)
	}
	for i, how := range []int32{protocol.TransactionCommit, protocol.TransactionRollback} {
		_, at, err := record.ParseOffsetID(string(halves[i].MsgID))
		if err != nil {
			t.Fatal(err)
		}
		r := p.call(remoting.EndTransaction, &protocol.EndTransactionRequest{
			ProducerGroup: "PG", TranStateTableOffset: halves[i].QueueOffset, CommitLogOffset: int64(at),
			CommitOrRollback: how, MsgID: string(halves[i].TransactionID),
		}, nil)
		if r.Code != remoting.Success {
			t.Fatalf("end %d: %v %q", i, r.Code, r.Remark)
		}
	}
	if got := count(); got != "1" {
		t.Errorf("%s half messages after a commit and a rollback, want 1", got)
	}
}
