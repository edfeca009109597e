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
	linger       time.Duration
	lingerBytes  int // 0: no batches
	codec        Codec
	level        int
	compressFrom int
	template     bool
	tolerant     bool // of slow brokers
	detector     bool
	trace        string // topic; empty: none
	errs         []error
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

// WithBuffer bounds what SendAsync holds: messages, and bytes of memory, that is bodies, properties
// and what the client needs to keep track of them (about 1.3 KB for a message, 0.1 KB with linger).
// The default is 10000 and 64 MiB. One message larger than the bytes is let in when the buffer is
// empty.
func WithBuffer(messages, bytes int) ProducerOption {
	return func(c *producerConfig) { c.bufferCount, c.bufferBytes = messages, bytes }
}

// WithLinger gathers the messages of SendAsync, and of Sends that run at once, into batches of up
// to bytes for one topic and queue. A batch leaves when it is full, or d after its first message;
// with d = 0 it leaves at once, and what comes while it is on its way makes the next one. Each
// message has a result of its own. Delayed messages, and bodies that compression is for, go alone.
// The default is no batches; 5 ms and 64 KiB suit most loads.
func WithLinger(d time.Duration, bytes int) ProducerOption {
	return func(c *producerConfig) {
		if d < 0 || d > time.Minute || bytes < 1 {
			c.errs = append(c.errs, fmt.Errorf("linger of %s and %d bytes: 0 to 1 min and at least 1 are "+
				"allowed", d, bytes))
		}
		c.linger, c.lingerBytes = d, bytes
	}
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

// check finds what no producer can do; most is the client's limit of a message.
func (c *producerConfig) check(most int) error {
	errs := c.errs
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.retries < 0, "retries is %d, must not be negative", c.retries)
	bad(c.sendTimeout <= 0, "send timeout is %s, must be positive", c.sendTimeout)
	bad(c.bufferCount < 1 || c.bufferBytes < 1, "buffer of %d messages and %d bytes, at least 1 each",
		c.bufferCount, c.bufferBytes)
	bad(c.lingerBytes > most, "linger of %d bytes, at most %d (WithMaxMessageSize)", c.lingerBytes, most)
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

// Producer sends messages for one group. It is safe for concurrent use. Goroutines exist while
// there is something to do for asynchronous sends: one for each topic whose route is fetched, one
// for each broker that is dialled, and one that runs callbacks. Close ends them.
type Producer struct {
	// Constant after NewProducer.
	client       *Client
	group        string
	wireGroup    []byte
	defaultTopic []byte
	cfg          producerConfig
	compressor   *compressor
	tracer       *tracer     // nil: no trace
	faults       *faultTable // nil: slow brokers are not avoided
	buffer       *buffer
	async        *pipeline
	ctx          context.Context // ends when Close gives up waiting
	cancel       context.CancelCauseFunc

	wg      sync.WaitGroup
	seed    atomic.Uint32 // where the next topic begins its round
	topics  sync.Map      // of *topicSend by name
	ops     sync.Pool     // of *sendOp for one message
	batches sync.Pool     // of *sendOp for batches
	waits   sync.Pool     // of *waiting

	announced sync.Map   // topics whose brokers know this client as a requester
	replyMu   sync.Mutex // guards replies
	replies   map[string]chan *Received

	closing atomic.Bool
	done    chan struct{}
	failure error
}

// NewProducer makes a producer of a group. It makes no connection.
func (c *Client) NewProducer(group string, opts ...ProducerOption) (*Producer, error) {
	p, err := c.newProducer(group, opts)
	if err != nil {
		return nil, err
	}
	if err := c.join(p); err != nil {
		p.cancel(ErrClosed)
		p.wg.Wait()
		return nil, err
	}
	c.wakeHeartbeats()
	return p, nil
}

// newProducer makes a producer that is not yet a member of the client.
func (c *Client) newProducer(group string, opts []ProducerOption) (*Producer, error) {
	cfg := producerConfig{
		retries: 2, sendTimeout: 3 * time.Second, bufferCount: 10_000, bufferBytes: 64 << 20,
		codec: Zlib, level: 5, compressFrom: 4096, template: true,
	}
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	err := cfg.check(c.cfg.maxMessageSize)
	if verr := protocol.ValidGroup([]byte(c.onWire(group))); verr != nil {
		err = errors.Join(fmt.Errorf("group %q: %w", group, verr), err)
	} else if group == protocol.DefaultProducerGroup {
		err = errors.Join(fmt.Errorf("group %s is refused: choose a name of your own", group), err)
	}
	comp, cerr := newCompressor(cfg.codec, cfg.level, cfg.compressFrom)
	if err = errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("client: options of producer: %w", err)
	}
	p := &Producer{
		client: c, group: group, wireGroup: []byte(c.onWire(group)),
		defaultTopic: []byte(protocol.TBW102), cfg: cfg, compressor: comp,
		buffer: newBuffer(cfg.bufferCount, cfg.bufferBytes), done: make(chan struct{}),
	}
	p.seed.Store(rand.Uint32())
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.async = newPipeline(p)
	if cfg.trace != "" {
		if p.tracer, err = c.newTracer(group, "PRODUCE", cfg.trace); err != nil {
			p.cancel(ErrClosed)
			return nil, fmt.Errorf("client: trace of producer %s: %w", group, err)
		}
	}
	if cfg.tolerant {
		p.faults = newFaultTable(cfg.detector)
		if cfg.detector {
			p.wg.Go(p.detect)
		}
	}
	return p, nil
}

func (p *Producer) beatInto(h *protocol.HeartbeatData) {
	h.ProducerDataSet = append(h.ProducerDataSet, protocol.ProducerData{
		GroupName: string(p.wireGroup),
	})
}

// Send delivers one message and waits. Retries on other brokers stay inside ctx and the send
// timeout. It fails with a *SendError, or before any attempt with an error that wraps
// ErrInvalidMessage, ErrMessageTooLarge or ErrClosed. A result whose status is not Stored is no
// error: the master has the message.
func (p *Producer) Send(ctx context.Context, m *Message) (SendResult, error) {
	m, w := p.watch(ctx, m)
	if p.cfg.lingerBytes > 0 {
		return p.sendGathered(ctx, m, w)
	}
	r, err := p.sendAlone(ctx, m, nil, w)
	if w != nil {
		p.unwatch(w, r, err)
	}
	return r, err
}

// sendAlone sends one message in a request of its own and waits. w, which may be nil, learns of the
// answer; the caller tells it the end.
func (p *Producer) sendAlone(
	ctx context.Context, m *Message, x *extras, w *watched,
) (SendResult, error) {
	op, err := p.prepare(m, x)
	if err != nil {
		return SendResult{}, err
	}
	if err := p.buffer.enter(); err != nil {
		p.recycle(op)
		return SendResult{}, err
	}
	r, err := p.send(ctx, op)
	w.answered(op)
	p.recycle(op)
	p.buffer.leave()
	return r, err
}

// SendOneWay returns when the bytes of one message have been written to the connection. No answer
// is waited for: whether it is stored stays unknown.
func (p *Producer) SendOneWay(ctx context.Context, m *Message) error {
	m, w := p.watch(ctx, m)
	err := p.sendOneWay(ctx, m)
	if w != nil {
		p.unwatch(w, SendResult{}, err)
	}
	return err
}

func (p *Producer) sendOneWay(ctx context.Context, m *Message) error {
	op, err := p.prepare(m, nil)
	if err != nil {
		return err
	}
	defer p.recycle(op)
	if err := p.buffer.enter(); err != nil {
		return err
	}
	defer p.buffer.leave()
	ctx, cancel := p.bound(ctx, op.deadline)
	defer cancel()
	if err := p.pick(ctx, op); err != nil {
		return op.fail(err)
	}
	op.tryFrom = time.Now()
	conn, err := p.client.pool.Conn(ctx, op.addr)
	if err == nil {
		err = conn.OnewayWritten(ctx, op.request(time.Until(op.deadline)))
	}
	if op.settled(err); err != nil {
		return op.fail(nil)
	}
	return nil
}

// Flush sends what lingers and waits until all that was queued before is settled, or ctx ends.
func (p *Producer) Flush(ctx context.Context) error {
	all := p.buffer.mark()
	for {
		p.topics.Range(func(_, t any) bool {
			t.(*topicSend).linger.flush()
			return true
		})
		// A message that was let into the buffer and not yet into a batch is found by the next look.
		look := time.NewTimer(lookAgain)
		select {
		case <-all.ready:
			look.Stop()
			return nil
		case <-ctx.Done():
			look.Stop()
			p.buffer.forget(all)
			return fmt.Errorf("client: flushing producer %s: %w", p.group, context.Cause(ctx))
		case <-look.C:
		}
	}
}

// callbackGrace is how long Close waits for callbacks after everything has been told its end.
const callbackGrace = 2 * time.Second

// settle tells what is left that it failed, and waits for the goroutines; false: a callback of the
// user keeps one.
func (p *Producer) settle() bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.topics.Range(func(_, t any) bool {
			t.(*topicSend).linger.stop()
			return true
		})
		p.async.abandonAll()
		p.wg.Wait()
	}()
	grace := time.NewTimer(callbackGrace)
	defer grace.Stop()
	select {
	case <-ended:
		return true
	case <-grace.C:
		return false
	}
}

// Close refuses new messages, flushes, unregisters the group and waits for the goroutines. What is
// not settled when ctx ends fails with ErrClosed, and Close returns the error of ctx. It may be
// called again and concurrently: such a call waits for the first one, as long as its own ctx allows.
func (p *Producer) Close(ctx context.Context) error {
	if !p.closing.CompareAndSwap(false, true) {
		if err := awaitClose(ctx, "producer "+p.group, p.done); err != nil {
			return err
		}
		return p.failure
	}
	p.buffer.close()
	p.failure = p.Flush(ctx)
	p.cancel(ErrClosed)
	if !p.settle() {
		p.failure = errors.Join(p.failure, fmt.Errorf("client: producer %s: a send callback "+
			"does not return: %w", p.group, context.DeadlineExceeded))
	}
	p.failure = errors.Join(p.failure, p.tracer.close(ctx))
	p.client.leave(p)
	p.client.unregister(context.WithoutCancel(ctx), string(p.wireGroup), "")
	close(p.done)
	return p.failure
}
