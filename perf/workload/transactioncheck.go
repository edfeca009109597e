// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/storage/record"
)

// States of a transaction, as RocketMQ's LocalTransactionState numbers them.
const (
	stateCommit   byte = 0
	stateRollback byte = 1
	stateUnknown  byte = 2
)

// Layout of a body: what will be answered stands in the message itself, as in RocketMQ's benchmark,
// so that a checker in another process knows it too. Big-endian.
const (
	planBatch  = 0  // int64
	planNumber = 8  // int64
	planSend   = 16 // state at the send
	planChecks = 17 // states at the checks, one byte each
	planTimes  = 20
	planSize   = planChecks + planTimes

	answersMost      = 256    // answers to checks on their way
	checksRemembered = 50_000 // messages, to tell a check that comes twice
)

// plan is what will be said of a transaction.
type plan struct {
	number int64
	send   byte
	checks [planTimes]byte
}

func (p *plan) appendBody(dst []byte, batch int64, size int) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(batch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.number))
	dst = append(append(dst, p.send), p.checks[:]...)
	return append(dst, make([]byte, size-len(dst))...)
}

// transact sends a half message and ends its transaction as planned. A cause says why it failed.
func (t *transactor) transact(
	ctx context.Context, to *target, p *plan,
) (cause string, refused bool) {
	id := string(t.checker.ids.Append(nil))
	props := record.AppendProperty(nil, "UNIQ_KEY", id)
	props = record.AppendProperty(props, "WAIT", "true")
	props = record.AppendProperty(props, "TRAN_MSG", "true")
	props = record.AppendProperty(props, "PGROUP", t.cfg.Group)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.cfg.Timeout))
	defer cancel()
	res, err := t.pool.Call(ctx, to.addr, &invoke.Request{
		Code: remoting.SendMessageV2,
		Header: &protocol.SendRequest{
			Group: []byte(t.cfg.Group), Topic: []byte(to.topic), DefaultTopic: []byte(protocol.TBW102),
			DefaultTopicQueues: transactionQueues, QueueID: to.queue, SysFlag: record.SysPrepared,
			BornMS: time.Now().UnixMilli(), Properties: props, MaxReconsumeTimes: -1,
			BrokerName: []byte(to.broker),
		},
		Body: p.appendBody(nil, t.cfg.BatchID, t.cfg.Size),
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time", false
	case errors.Is(err, context.Canceled):
		return "run ended", false
	case err != nil:
		return "connection lost", false
	case !isStored(int32(res.Code)):
		return res.Code.String(), true
	}
	var stored protocol.SendResponse
	if err := stored.Decode(res.Command); err != nil {
		return "unexpected answer", false
	}
	_, at, err := record.ParseOffsetID(string(stored.MsgID))
	if err != nil {
		return "unexpected answer", false
	}
	err = t.pool.Oneway(ctx, to.addr, &invoke.Request{
		Code: remoting.EndTransaction,
		Header: &protocol.EndTransactionRequest{
			Topic: to.topic, ProducerGroup: t.cfg.Group, TranStateTableOffset: stored.QueueOffset,
			CommitLogOffset: int64(at), CommitOrRollback: endOf(p.send), MsgID: id,
			TransactionID: string(stored.TransactionID), BrokerName: to.broker, HasBrokerName: true,
		},
	})
	if err != nil {
		return "connection lost", false
	}
	return "", false
}

func endOf(state byte) int32 {
	switch state {
	case stateCommit:
		return protocol.TransactionCommit
	case stateRollback:
		return protocol.TransactionRollback
	}
	return protocol.TransactionUnknown
}

// checker answers the brokers' checks as the messages say, and judges whether they ought to come.
type checker struct {
	load *transactor
	out  Output
	ids  *record.UniqueIDs

	answering chan struct{} // has room while another answer may be on its way

	checks, unexpected, duplicated atomic.Int64

	mu    sync.Mutex
	seen  map[int64]int // number of the last check by message
	order []int64       // messages in seen, as a ring
	next  int

	snaps [][4]int64 // one a second: failed, checks, unexpected, duplicated; the driver's goroutine
}

func newChecker(t *transactor, out Output) *checker {
	return &checker{
		load: t, out: out, ids: record.NewUniqueIDs(netip.IPv4Unspecified()), seen: map[int64]int{},
		answering: make(chan struct{}, answersMost),
	}
}

func (c *checker) newPlan(number int64) plan {
	cfg := c.load.cfg
	p := plan{number: number, send: share(cfg.SendRollback, cfg.SendUnknown)}
	for i := range p.checks {
		p.checks[i] = share(cfg.CheckRollback, cfg.CheckUnknown)
	}
	return p
}

// request takes a check from a broker. The answer is a request of its own, without an answer.
func (c *checker) request(addr string, cmd *remoting.Command) *invoke.Response {
	if remoting.RequestCode(cmd.Code) != remoting.CheckTransactionState {
		return nil
	}
	var h protocol.CheckTransactionStateRequest
	v, err := record.Parse(cmd.Body)
	if err != nil || h.Decode(cmd) != nil {
		return nil
	}
	end := &protocol.EndTransactionRequest{
		Topic: string(v.Topic()), ProducerGroup: c.load.cfg.Group,
		TranStateTableOffset: h.TranStateTableOffset, CommitLogOffset: h.CommitLogOffset,
		CommitOrRollback: endOf(c.judge(v, h.TransactionID)), FromCheck: true, MsgID: h.MsgID,
		TransactionID: h.TransactionID, BrokerName: h.BrokerName, HasBrokerName: true,
	}
	select {
	case c.answering <- struct{}{}:
	default:
		return nil // the broker asks again
	}
	go func() { // the reader must not wait for its own connection
		defer func() { <-c.answering }()
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_ = c.load.pool.Oneway(ctx, addr, &invoke.Request{Code: remoting.EndTransaction, Header: end})
	}()
	return nil
}

// judge returns what a check is answered. It is unexpected when the send, or an earlier check, has
// said more than unknown.
func (c *checker) judge(v record.View, transaction string) byte {
	body := v.Body()
	if len(body) < planSize ||
		int64(binary.BigEndian.Uint64(body[planBatch:])) != c.load.cfg.BatchID {
		return stateRollback
	}
	c.checks.Add(1)
	value, _ := record.Property(v.Properties(), "TRANSACTION_CHECK_TIMES")
	times, _ := strconv.Atoi(string(value))
	if times <= 0 || times > planTimes {
		return stateRollback
	}
	if c.before(int64(binary.BigEndian.Uint64(body[planNumber:])), times) {
		c.duplicated.Add(1)
	}
	if state := body[planSend]; state != stateUnknown {
		c.say(v, transaction, times, "sendResult="+stateName(state))
		return state
	}
	for _, state := range body[planChecks : planChecks+times-1] {
		if state != stateUnknown {
			c.say(v, transaction, times, "sendResult,lastCheckResult="+stateName(state))
			return state
		}
	}
	return body[planChecks+times-1]
}

// before reports whether the last check of a message had the same number, and remembers this one.
func (c *checker) before(number int64, times int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.seen[number]
	c.seen[number] = times
	switch {
	case known:
	case len(c.order) < checksRemembered:
		c.order = append(c.order, number)
	default:
		delete(c.seen, c.order[c.next])
		c.order[c.next] = number
		c.next = (c.next + 1) % checksRemembered
	}
	return known && last == times
}

func stateName(state byte) string {
	switch state {
	case stateCommit:
		return "COMMIT_MESSAGE"
	case stateRollback:
		return "ROLLBACK_MESSAGE"
	}
	return "UNKNOW"
}

// say prints an unexpected check, as RocketMQ's benchmark does.
func (c *checker) say(v record.View, transaction string, times int, what string) {
	c.unexpected.Add(1)
	if c.out.Reports == nil || c.out.JSON {
		return
	}
	id, _ := record.Property(v.Properties(), "UNIQ_KEY")
	_, _ = io.WriteString(c.out.Reports, fmt.Sprintf("%s unexpected check: msgId=%s,txId=%s,"+
		"checkTimes=%d,%s\n", time.Now().Format("15:04:05,000"), id, transaction, times, what))
}

// tick takes a snapshot of what the report line tells of the last ten seconds.
func (c *checker) tick() {
	t := c.load.own.sampler.Totals()
	const keep = 10
	c.snaps = append(c.snaps, [4]int64{
		t.SendFailed + t.ResponseFailed, c.checks.Load(), c.unexpected.Load(), c.duplicated.Load(),
	})
	c.snaps = c.snaps[max(len(c.snaps)-keep, 0):]
}

// line renders the report line of RocketMQ's TransactionProducer: everything in it is of the last
// ten seconds, the maximum since the last line.
func (c *checker) line(r measure.Rates, now time.Time, longestNS int64) string {
	var d [4]int64
	if n := len(c.snaps); n > 0 {
		for i := range d {
			d[i] = c.snaps[n-1][i] - c.snaps[0][i]
		}
	}
	mean := r.RequestMean
	if r.Messages == 0 {
		mean = math.NaN()
	}
	return fmt.Sprintf("Current Time: %s | Send TPS: %5d | Max RT(ms): %5d | AVG RT(ms): %3.1f | "+
		"Send Failed: %d | Check: %d | UnexpectedCheck: %d | DuplicatedCheck: %d",
		now.Format("2006-01-02 15:04:05,000"), int64(r.Messages), longestNS/1e6, mean,
		d[0], d[1], d[2], d[3])
}
