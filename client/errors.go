// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

// Sentinels for errors.Is. Each is wrapped with what was tried.
var (
	// ErrClosed: the client, producer or reader was closed.
	ErrClosed = errors.New("closed")
	// ErrNoRoute: the topic does not exist, or none of its brokers is reachable through a route.
	ErrNoRoute = errors.New("no route for the topic")
	// ErrNoQueue: the topic exists, and none of its queues may be written to, or read. It is an
	// ErrNoRoute too.
	ErrNoQueue = errors.New("no usable queue")
	// ErrNoNameServer: no name server could be asked.
	ErrNoNameServer = errors.New("no name server answers")
	// ErrBufferFull: TrySendAsync found no room.
	ErrBufferFull = errors.New("send buffer is full")
	// ErrInvalidMessage: the message breaks a rule that no broker would accept.
	ErrInvalidMessage = errors.New("invalid message")
	// ErrMessageTooLarge: the body or the properties exceed their limit.
	ErrMessageTooLarge = errors.New("message too large")
	// ErrFlowControl: the broker asks to slow down.
	ErrFlowControl = errors.New("flow control")
	// ErrPermission: topic, group or broker may not be used so.
	ErrPermission = errors.New("no permission")
	// ErrUnsupported: the broker does not know the request, or it makes no sense for the object.
	ErrUnsupported = errors.New("not supported")
	// ErrNotAssigned: the reader does not read the queue.
	ErrNotAssigned = errors.New("queue is not assigned")
	// ErrOffsetOutOfRange: the queue does not hold the offset.
	ErrOffsetOutOfRange = errors.New("offset out of range")
)

// BrokerError is an answer other than success. errors.Is maps its code to the sentinels: 13 to
// ErrInvalidMessage, 16 to ErrPermission, 17 to ErrNoRoute, 3 to ErrUnsupported, 21 to
// ErrOffsetOutOfRange, 215 to ErrFlowControl.
type BrokerError struct {
	Op     string // what was asked, as "send"
	Broker string // name; empty for a name server
	Addr   string
	Remark string // the broker's words
	Code   int    // RocketMQ's response code
}

func (e *BrokerError) Error() string {
	who := e.Addr
	if e.Broker != "" {
		who = e.Broker + " (" + e.Addr + ")"
	}
	return fmt.Sprintf("client: %s: %s answered %d %s: %s",
		e.Op, who, e.Code, remoting.ResponseCode(e.Code), e.Remark)
}

// Is maps the code to a sentinel.
func (e *BrokerError) Is(target error) bool {
	switch remoting.ResponseCode(e.Code) {
	case remoting.NoPermission:
		return target == ErrPermission
	case remoting.TopicNotExist:
		return target == ErrNoRoute
	case remoting.MessageIllegal:
		return target == ErrInvalidMessage
	case remoting.RequestCodeNotSupported:
		return target == ErrUnsupported
	case remoting.PullOffsetMoved:
		return target == ErrOffsetOutOfRange
	case remoting.FlowControl:
		return target == ErrFlowControl
	default:
		return false
	}
}

// noQueueError is a topic none of whose queues may be used in a way.
type noQueueError struct{ topic, use string }

func (e *noQueueError) Error() string {
	return fmt.Sprintf("client: topic %s has no queue that can be %s", e.topic, e.use)
}

// Is reports the two sentinels that it stands for.
func (e *noQueueError) Is(target error) bool { return target == ErrNoQueue || target == ErrNoRoute }

// Attempt is one try of a send.
type Attempt struct {
	Queue Queue
	Took  time.Duration
	Err   error
}

// SendError lists every attempt of a send that did not succeed. When the context ended, its error
// is among the causes. Its text ends with what to do about it.
type SendError struct {
	Topic    string
	Attempts []Attempt
	// MaybeStored: a request went out whose answer was lost, so a broker may hold the message.
	MaybeStored bool

	stop error // why no further attempt was made; may be nil
}

func (e *SendError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client: sending to topic %s", e.Topic)
	if len(e.Attempts) > 0 {
		var brokers []string
		var took time.Duration
		for _, a := range e.Attempts {
			took += a.Took
			if !slices.Contains(brokers, a.Queue.Broker) {
				brokers = append(brokers, a.Queue.Broker)
			}
		}
		fmt.Fprintf(&b, ": %d attempts in %s at brokers %v", len(e.Attempts),
			took.Round(time.Millisecond), brokers)
	}
	if e.MaybeStored {
		b.WriteString(", maybe stored")
	}
	if n := len(e.Attempts); n > 0 {
		fmt.Fprintf(&b, ": %v", e.Attempts[n-1].Err)
	}
	if e.stop != nil {
		fmt.Fprintf(&b, ": %v", e.stop)
	}
	if next := adviceFor(e); next != "" {
		b.WriteString(" (" + next + ")")
	}
	return b.String()
}

// Unwrap returns the causes, the last one first.
func (e *SendError) Unwrap() []error {
	var errs []error
	for _, a := range slices.Backward(e.Attempts) {
		errs = append(errs, a.Err)
	}
	if e.stop != nil {
		errs = append(errs, e.stop)
	}
	return errs
}

// DecodeError is a stored record that cannot be handed out: it is damaged, or its body does not
// decompress. The reader goes on behind it.
type DecodeError struct {
	Source Queue
	Offset int64
	Err    error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("client: record at offset %d of %s: %v", e.Offset, e.Source, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }
