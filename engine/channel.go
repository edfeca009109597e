// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// channel is one client connection as the leaves know it: something with an address that frames
// can be pushed to, from any goroutine.
type channel struct {
	ref    eventloop.Ref
	remote string
	known  atomic.Bool // a heartbeat registered it: its end must be told to the membership
	closed atomic.Bool
	unread atomic.Int64 // bytes of answers that the client had not read when last looked at
}

// RemoteAddr is the client's address, ip:port.
func (ch *channel) RemoteAddr() string { return ch.remote }

// Closed tells whether the connection has ended. It may end at any moment after.
func (ch *channel) Closed() bool { return ch.closed.Load() }

// Send queues whole frames for the client. It never blocks; a closed connection drops it.
func (ch *channel) Send(frame []byte) { ch.ref.Post(push(frame)) }

// closeChannels ends connections whose clients went silent.
func closeChannels(chs []group.Channel) {
	for _, ch := range chs {
		if c, ok := ch.(*channel); ok {
			c.ref.Post(hangUp{})
		}
	}
}

// errSilent is why closeChannels closes.
var errSilent = errors.New("no heartbeat for channelExpiredTimeout")

// hangUp closes a connection.
type hangUp struct{}

// Run closes it on its own loop.
func (hangUp) Run(c *eventloop.Conn) {
	if c != nil {
		c.CloseWith(errSilent)
	}
}

// push is frames on their way to a connection.
type push []byte

// Run writes the frames on the connection's own loop.
func (p push) Run(c *eventloop.Conn) {
	if c != nil {
		c.Commit(append(c.Reserve(), p...))
	}
}

// clientCalls are the requests that this broker has sent to clients and waits on.
type clientCalls struct {
	opaque atomic.Int32

	mu      sync.Mutex
	pending map[clientCall]chan *remoting.Command
}

// clientCall identifies an exchange: opaque ids are counted by this broker, and only the connection
// that was asked may answer.
type clientCall struct {
	channel *channel
	opaque  remoting.Opaque
}

func newClientCalls() *clientCalls {
	return &clientCalls{pending: make(map[clientCall]chan *remoting.Command)}
}

// errGone ends calls to a connection that closed.
var errGone = errors.New("the client's connection closed")

// Call sends a request to a client and waits for its answer until timeout, or until the
// connection closes.
func (cs *clientCalls) Call(to group.Channel, code remoting.RequestCode, header remoting.Header,
	body []byte, timeout time.Duration,
) (*remoting.Command, error) {
	ch, ok := to.(*channel)
	if !ok {
		return nil, fmt.Errorf("engine: call client: %T is not a connection of this broker", to)
	}
	id := clientCall{ch, remoting.Opaque(cs.opaque.Add(1))}
	answer := make(chan *remoting.Command, 1)
	cs.mu.Lock()
	cs.pending[id] = answer
	cs.mu.Unlock()
	defer cs.forget(id)
	if ch.closed.Load() {
		return nil, fmt.Errorf("engine: call client %s, code %d: %w", ch.remote, code, errGone)
	}
	ch.Send(requestFrame(code, id.opaque, 0, header, body))
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case cmd := <-answer:
		if cmd == nil {
			return nil, fmt.Errorf("engine: call client %s, code %d: %w", ch.remote, code, errGone)
		}
		return cmd, nil
	case <-timer.C:
		return nil, fmt.Errorf("engine: call client %s, code %d: no answer within %v: %w",
			ch.remote, code, timeout, context.DeadlineExceeded)
	}
}

func (cs *clientCalls) forget(id clientCall) {
	cs.mu.Lock()
	delete(cs.pending, id)
	cs.mu.Unlock()
}

// gone fails the calls that wait for a connection which has closed.
func (cs *clientCalls) gone(ch *channel) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for id, answer := range cs.pending {
		if id.channel == ch {
			select {
			case answer <- nil:
			default:
			}
		}
	}
}

// Oneway sends a request that is not answered.
func (cs *clientCalls) Oneway(to group.Channel, code remoting.RequestCode, header remoting.Header,
	body []byte,
) {
	opaque := remoting.Opaque(cs.opaque.Add(1))
	to.Send(requestFrame(code, opaque, remoting.FlagOneway, header, body))
}

// onewaysTogether is how many bytes of requests are queued for a connection at once.
const onewaysTogether = 256 << 10

// Oneways sends n requests that are not answered, in one go.
func (cs *clientCalls) Oneways(to group.Channel, code remoting.RequestCode, n int,
	each func(i int) (remoting.Header, []byte),
) {
	var frames []byte
	for i := range n {
		header, body := each(i)
		if size := len(body) + requestHead; frames == nil {
			frames = make([]byte, 0, min((n-i)*size, max(onewaysTogether, size)))
		}
		frames = appendRequest(frames, code, remoting.Opaque(cs.opaque.Add(1)), remoting.FlagOneway,
			header, body)
		if len(frames) > onewaysTogether-len(body)-requestHead {
			to.Send(frames)
			frames = nil
		}
	}
	if len(frames) > 0 {
		to.Send(frames)
	}
}

// requestHead is more than most headers of requests need, in bytes.
const requestHead = 512

// resolve hands an answer to whoever waits for it; others are dropped, as RocketMQ does.
func (cs *clientCalls) resolve(ch *channel, cmd *remoting.Command) {
	cs.mu.Lock()
	answer := cs.pending[clientCall{ch, cmd.Opaque}]
	cs.mu.Unlock()
	if answer == nil {
		return
	}
	select {
	case answer <- cmd.Clone():
	default: // answered twice
	}
}

func requestFrame(code remoting.RequestCode, opaque remoting.Opaque, flag int32,
	header remoting.Header, body []byte,
) []byte {
	return appendRequest(nil, code, opaque, flag, header, body)
}

func appendRequest(dst []byte, code remoting.RequestCode, opaque remoting.Opaque, flag int32,
	header remoting.Header, body []byte,
) []byte {
	e := remoting.Begin(dst, remoting.Head{
		Code: int32(code), Flag: flag, Language: remoting.LanguageJava, Version: remoting.ProtocolVersion,
		Opaque: opaque, Serialize: remoting.JSON,
	})
	if header != nil {
		header.AppendFields(&e)
	}
	return e.End(body)
}
