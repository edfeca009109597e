// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// WithTrace has the client send a record of each message to a topic, for RocketMQ's
// queryMsgTraceById and the dashboard; the empty name is RMQ_SYS_TRACE_TOPIC, which brokers have
// with traceTopicEnable. Records are gathered for up to 5 s and are dropped when 2048 wait. The
// default is no trace.
func WithTrace(topic string) ProducerOption {
	return func(c *producerConfig) {
		c.trace = topic
		if topic == "" {
			c.trace = protocol.TraceTopic
		}
	}
}

// Bounds of the trace (RocketMQ's AsyncTraceDispatcher).
const (
	traceTogether = 10     // records in one message
	traceBytes    = 128000 // of records in one message
	traceWaiting  = 2048   // records on their way; further ones are dropped
	traceEvery    = 5 * time.Second

	traceField = "\x01"
	traceEnd   = "\x02"
)

// tracer writes trace records with a producer of its own, made of the same client. Producers and
// consumers have one each; a nil *tracer records nothing.
type tracer struct {
	topic    string
	group    string // of whom the records tell
	producer *Producer

	// Guards what follows. Never held across I/O.
	mu      sync.Mutex
	closed  bool
	records int
	body    strings.Builder
	keys    []string
	timer   *time.Timer
	armed   bool
}

// newTracer makes the tracer of a group; kind is PRODUCE or CONSUME.
func (c *Client) newTracer(group, kind, topic string) (*tracer, error) {
	const groupMost = 80 // so that the name of the inner group stays valid
	name := fmt.Sprintf("_INNER_TRACE_PRODUCER-%.*s-%s-%d", groupMost, group, kind, c.tracers.Add(1))
	p, err := c.newProducer(name, []ProducerOption{
		WithBuffer(traceWaiting/traceTogether, 64<<20), WithSendTimeout(5 * time.Second),
	})
	if err != nil {
		return nil, err
	}
	// It is no member of the client: its owner closes it, after the last record.
	if _, err = p.newTopic(topic, true); err != nil {
		p.cancel(ErrClosed)
		p.wg.Wait()
		return nil, err
	}
	return &tracer{topic: topic, group: c.onWire(group), producer: p}, nil
}

// add appends one record.
func (t *tracer) add(keys []string, fields ...string) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	for i, f := range fields {
		if i > 0 {
			t.body.WriteString(traceField)
		}
		if f == "" {
			f = "null"
		}
		t.body.WriteString(f)
	}
	t.body.WriteString(traceEnd)
	for _, k := range keys {
		if k != "" && !slices.Contains(t.keys, k) {
			t.keys = append(t.keys, k)
		}
	}
	t.records++
	var full *Message
	if t.records >= traceTogether || t.body.Len() >= traceBytes {
		full = t.takeLocked()
	} else if !t.armed {
		t.armed = true
		if t.timer == nil {
			t.timer = time.AfterFunc(traceEvery, t.expire)
		} else {
			t.timer.Reset(traceEvery)
		}
	}
	t.mu.Unlock()
	t.send(full)
}

// takeLocked returns what was gathered as a message; nil: nothing.
func (t *tracer) takeLocked() *Message {
	if t.records == 0 {
		return nil
	}
	m := &Message{Topic: t.topic, Body: []byte(t.body.String()), Keys: t.keys}
	t.body.Reset()
	t.records, t.keys = 0, nil
	return m
}

// send hands a message to the producer, which drops it rather than wait.
func (t *tracer) send(m *Message) {
	if m == nil {
		return
	}
	logger := t.producer.client.cfg.logger
	err := t.producer.TrySendAsync(context.Background(), m, func(_ SendResult, err error) {
		if err != nil {
			logger.Debug("trace", "group", t.group, "topic", t.topic, "err", err)
		}
	})
	if err != nil {
		logger.Debug("trace dropped", "group", t.group, "topic", t.topic, "err", err)
	}
}

func (t *tracer) expire() {
	t.mu.Lock()
	t.armed = false
	m := t.takeLocked()
	closed := t.closed
	t.mu.Unlock()
	if !closed {
		t.send(m)
	}
}

// close sends what is left and ends the producer of the trace.
func (t *tracer) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
	m := t.takeLocked()
	t.mu.Unlock()
	t.send(m)
	return t.producer.Close(ctx)
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// published records a send. Brokers that switch the trace off, and messages of the trace itself,
// are left out, as are sends that failed, as in RocketMQ.
func (t *tracer) published(w *watched, r SendResult) {
	m := w.message
	if t == nil || m.Topic == t.topic || w.region == "" || !w.traceOn {
		return
	}
	kind := w.kind
	if m.timed() {
		kind = kindDelay
	}
	cost := time.Since(w.from).Milliseconds()
	keys := strings.Join(m.Keys, " ")
	t.add(append([]string{r.ID}, m.Keys...), "Pub", millis(w.from), w.region, t.group,
		t.producer.client.onWire(m.Topic), r.ID, m.Tag, keys, w.addr, strconv.Itoa(len(m.Body)),
		strconv.FormatInt(cost, 10), strconv.Itoa(kind), r.OffsetID,
		strconv.FormatBool(r.Status == Stored))
}

// ended records the end of a transaction.
func (t *tracer) ended(m *Message, id, addr string, state TxState, fromCheck bool) {
	if t == nil {
		return
	}
	name := map[TxState]string{
		TxCommitted: "COMMIT_MESSAGE", TxRolledBack: "ROLLBACK_MESSAGE", TxUnknown: "UNKNOW",
	}[state]
	t.add(append([]string{id}, m.Keys...), "EndTransaction", millis(time.Now()),
		protocol.DefaultRegion, t.group, t.producer.client.onWire(m.Topic), id, m.Tag,
		strings.Join(m.Keys, " "), addr, strconv.Itoa(kindCommit), id, name,
		strconv.FormatBool(fromCheck))
}

// recalled records the recall of a timer message.
func (t *tracer) recalled(topic, id string, ok bool) {
	if t == nil {
		return
	}
	t.add([]string{id}, "Recall", millis(time.Now()), protocol.DefaultRegion, t.group,
		t.producer.client.onWire(topic), id, strconv.FormatBool(ok))
}

// consuming records that a handler is given a message, consumed that it has returned: code is the
// ordinal of RocketMQ's ConsumeReturnType (0 success, 1 timeout, 2 exception, 3 null, 4 failed).
// request is the same text in both, and each call of a handler has its own.
func (t *tracer) consuming(m *Received, request string) {
	if t == nil || m.Topic == t.topic {
		return
	}
	t.add(append([]string{m.ID}, m.Keys...), "SubBefore", millis(time.Now()), protocol.DefaultRegion,
		t.group, request, m.ID, strconv.Itoa(m.Attempt-1), strings.Join(m.Keys, " "))
}

func (t *tracer) consumed(m *Received, request string, took time.Duration, ok bool, code int) {
	if t == nil || m.Topic == t.topic {
		return
	}
	t.add(append([]string{m.ID}, m.Keys...), "SubAfter", request, m.ID,
		strconv.FormatInt(took.Milliseconds(), 10), strconv.FormatBool(ok), strings.Join(m.Keys, " "),
		strconv.Itoa(code), millis(time.Now()), t.group)
}
