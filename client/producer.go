// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// ProducerOption sets up a Producer. Options are checked together by NewProducer.
type ProducerOption func(*producerConfig)

type producerConfig struct {
	retries      int
	sendTimeout  time.Duration
	selector     Selector // nil: round robin, HashJava with an ordering key
	bufferCount  int
	bufferBytes  int
	codec        Codec
	level        int
	compressFrom int
	template     bool
}

// WithRetries sets how many further brokers are tried. The default is 2.
func WithRetries(n int) ProducerOption { return func(c *producerConfig) { c.retries = n } }

// WithSendTimeout bounds a whole send, retries included. The default is 3 s.
func WithSendTimeout(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.sendTimeout = d }
}

// WithSelector replaces how queues are picked. Anything but RoundRobin and Random makes a send one
// attempt only, since another queue would break the order. The default is round robin, and HashJava
// for messages with an ordering key.
func WithSelector(s Selector) ProducerOption {
	return func(c *producerConfig) { c.selector = s }
}

// WithBuffer bounds messages and bytes of bodies that SendAsync holds. The default is 10000 and
// 64 MiB. One message larger than the bytes is let in when the buffer is empty.
func WithBuffer(messages, bytes int) ProducerOption {
	return func(c *producerConfig) { c.bufferCount, c.bufferBytes = messages, bytes }
}

// WithCompression compresses bodies from minBytes on. The default is zlib, level 5, from 4096.
// Batches are never compressed, as in RocketMQ.
func WithCompression(codec Codec, level, minBytes int) ProducerOption {
	return func(c *producerConfig) { c.codec, c.level, c.compressFrom = codec, level, minBytes }
}

// WithDefaultTopicRoute says whether a topic that does not exist is sent to the brokers that would
// create it. The default is yes.
func WithDefaultTopicRoute(on bool) ProducerOption {
	return func(c *producerConfig) { c.template = on }
}

func (c *producerConfig) check() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.retries < 0, "retries is %d, must not be negative", c.retries)
	bad(c.sendTimeout <= 0, "send timeout is %s, must be positive", c.sendTimeout)
	bad(c.bufferCount < 1 || c.bufferBytes < 1, "buffer of %d messages and %d bytes, at least 1 each",
		c.bufferCount, c.bufferBytes)
	bad(c.compressFrom < 1, "compression from %d bytes, at least 1", c.compressFrom)
	return errors.Join(errs...)
}

// SendStatus says how sure a stored message is. Each value other than zero means that the master
// has it; those other than Stored say what was not confirmed in time.
type SendStatus uint8

// The statuses.
const (
	Stored SendStatus = 1 + iota
	FlushDiskTimeout
	FlushSlaveTimeout
	SlaveNotAvailable
)

// String returns RocketMQ's name of the status.
func (s SendStatus) String() string {
	switch s {
	case Stored:
		return "SEND_OK"
	case FlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case FlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case SlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	default:
		return "NOT_SENT"
	}
}

// SendResult says where a message was stored.
type SendResult struct {
	Status       SendStatus
	ID           string // unique id, made here
	OffsetID     string // the broker's, see RocketMQ's offset message id
	Queue        Queue
	Offset       int64  // in the queue
	RecallHandle string // of a timer message
}

// Producer sends messages for one group. It is safe for concurrent use. Goroutines, from the first
// SendAsync on: one that picks queues, one for each broker that hands requests to its connection,
// and one that runs callbacks; Close ends them.
type Producer struct {
	client     *Client
	group      string
	cfg        producerConfig
	compressor *compressor
	turn       atomic.Uint32 // round robin

	ctx    context.Context // ends when Close gives up waiting
	cancel context.CancelCauseFunc
	buffer *buffer
	async  *pipeline

	closing sync.Once
	done    chan struct{}
	failure error
}

// NewProducer makes a producer of a group. It makes no connection.
func (c *Client) NewProducer(group string, opts ...ProducerOption) (*Producer, error) {
	cfg := producerConfig{
		retries: 2, sendTimeout: 3 * time.Second, bufferCount: 10_000, bufferBytes: 64 << 20,
		codec: Zlib, level: 5, compressFrom: 4096, template: true,
	}
	for _, o := range opts {
		o(&cfg)
	}
	err := cfg.check()
	if verr := protocol.ValidGroup([]byte(group)); verr != nil {
		err = errors.Join(fmt.Errorf("group %q: %w", group, verr), err)
	} else if group == protocol.DefaultProducerGroup {
		err = errors.Join(fmt.Errorf("group %s is refused: choose a name of your own", group), err)
	}
	comp, cerr := newCompressor(cfg.codec, cfg.level, cfg.compressFrom)
	if err = errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("client: options of producer: %w", err)
	}
	p := &Producer{
		client: c, group: group, cfg: cfg, compressor: comp,
		buffer: newBuffer(cfg.bufferCount, cfg.bufferBytes), done: make(chan struct{}),
	}
	p.turn.Store(rand.Uint32())
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.async = newPipeline(p)
	if err := c.join(p); err != nil {
		return nil, err
	}
	c.wakeHeartbeats()
	return p, nil
}

func (p *Producer) beatInto(h *protocol.HeartbeatData) {
	h.ProducerDataSet = append(h.ProducerDataSet, protocol.ProducerData{GroupName: p.client.onWire(p.group)})
}

// Send delivers one message and waits. Retries on other brokers stay inside ctx and the send
// timeout. It fails with a *SendError, or before any attempt with an error that wraps
// ErrInvalidMessage, ErrMessageTooLarge or ErrClosed. A result whose status is not Stored is no
// error: the master has the message.
func (p *Producer) Send(ctx context.Context, m *Message) (SendResult, error) {
	op, err := p.prepare(m)
	if err != nil {
		return SendResult{}, err
	}
	if err := p.buffer.enter(); err != nil {
		return SendResult{}, err
	}
	defer p.buffer.leave()
	return p.send(ctx, op)
}

// SendOneWay hands one message to a connection and waits for no answer: whether it is stored stays
// unknown.
func (p *Producer) SendOneWay(ctx context.Context, m *Message) error {
	op, err := p.prepare(m)
	if err != nil {
		return err
	}
	if err := p.buffer.enter(); err != nil {
		return err
	}
	defer p.buffer.leave()
	ctx, cancel := p.bound(ctx)
	defer cancel()
	if err := p.pick(ctx, op); err != nil {
		return op.fail(err)
	}
	if err := p.client.pool.Oneway(ctx, op.addr, op.request()); err != nil {
		op.tried(op.started, err)
		return op.fail(nil)
	}
	return nil
}

// Flush waits until all that was queued before is settled, or ctx ends.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.buffer.wait(ctx); err != nil {
		return fmt.Errorf("client: flushing producer %s: %w", p.group, err)
	}
	return nil
}

// Close refuses new messages, flushes, unregisters the group and waits for the goroutines. What is
// not settled when ctx ends fails with ErrClosed, and Close returns the error of ctx. It may be
// called again and concurrently.
func (p *Producer) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.buffer.close()
		p.failure = p.Flush(ctx)
		p.cancel(ErrClosed)
		p.async.stop()
		p.client.leave(p)
		p.client.unregister(context.WithoutCancel(ctx), p.client.onWire(p.group), "")
		close(p.done)
	})
	<-p.done
	return p.failure
}

// bound puts the send timeout and the producer's own end on a caller's context.
func (p *Producer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.sendTimeout)
	out, give := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { give(ErrClosed) })
	return out, func() {
		stop()
		give(nil)
		cancel()
	}
}
