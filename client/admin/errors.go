// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Sentinels for errors.Is, besides those of package client (ErrNoRoute for a topic that does not
// exist, ErrPermission, ErrUnsupported, ErrNoNameServer, ErrClosed).
var (
	// ErrNoBroker: no broker is what the target of the call asks for.
	ErrNoBroker = errors.New("no such broker")
	// ErrNoGroup: the consumer group is not configured at the broker.
	ErrNoGroup = errors.New("no such group")
	// ErrNotOnline: no client of the group is connected, or not the one that was named.
	ErrNotOnline = errors.New("not online")
	// ErrNotFound: there is no such message, offset or key.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: an argument breaks a rule; nothing was asked.
	ErrInvalid = errors.New("invalid argument")
	// ErrTimeout: the broker asked a consumer that did not answer in time.
	ErrTimeout = errors.New("no answer in time")
)

// Error is what every call of this package fails with.
type Error struct {
	Op   string // what was tried, as "describe topic created"
	Err  error  // why it failed
	Next string // what to do about it; may be empty
}

func (e *Error) Error() string {
	text := fmt.Sprintf("admin: %s: %v", e.Op, e.Err)
	if e.Next != "" {
		text += " (" + e.Next + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is maps the broker's answer to a sentinel of this package.
func (e *Error) Is(target error) bool {
	var be *client.BrokerError
	if !errors.As(e.Err, &be) {
		return false
	}
	switch remoting.ResponseCode(be.Code) {
	case remoting.SubscriptionGroupNotExist:
		return target == ErrNoGroup
	case remoting.ConsumerNotOnline:
		return target == ErrNotOnline
	case remoting.QueryNotFound, remoting.NoMessage, remoting.PullNotFound:
		return target == ErrNotFound
	case remoting.InvalidParameter:
		return target == ErrInvalid
	case remoting.ConsumeMsgTimeout:
		return target == ErrTimeout
	case remoting.SystemError:
		return target == ErrNotOnline && saysNotOnline(be.Remark)
	default:
		return false
	}
}

// saysNotOnline knows the remarks that brokers give code 1 for missing clients.
func saysNotOnline(remark string) bool {
	return strings.Contains(remark, "not online") ||
		strings.HasPrefix(remark, "the producer group[") && strings.HasSuffix(remark, "] not exist")
}

// explain wraps an error with what was tried and what to do next.
func explain(op string, err error) error {
	switch err.(type) { //nolint:errorlint // only what is not explained yet, not what wraps it
	case nil:
		return nil
	case *Error, *PartialError:
		return err
	}
	return &Error{Op: op, Err: err, Next: next(err)}
}

func invalid(op, format string, args ...any) error {
	return &Error{Op: op, Err: fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)}
}

const nextNoMessage = "check topic, key and time range; expired messages are gone"

// next is the one step that most often helps.
func next(err error) string {
	var be *client.BrokerError
	switch {
	case errors.As(err, &be):
		return nextOfCode(be)
	case errors.Is(err, client.ErrNoNameServer):
		return "check the name server addresses and that one of them runs"
	case errors.Is(err, client.ErrClosed):
		return "make a new client; this one was closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "check that the server runs and is reachable, or give the call more time"
	case errors.Is(err, context.Canceled):
		return ""
	default:
		return "check that the server runs and can be reached from here"
	}
}

func nextOfCode(be *client.BrokerError) string {
	switch remoting.ResponseCode(be.Code) {
	case remoting.SystemBusy, remoting.FlowControl:
		return "the server is busy: try again in a moment"
	case remoting.RequestCodeNotSupported:
		return "this server does not have the request; see the compatibility list of its release"
	case remoting.NoPermission:
		return "check credentials, and the permission of topic, group and broker"
	case remoting.TopicNotExist:
		return "check the topic's name in Topics, or create it with PutTopic"
	case remoting.SubscriptionGroupNotExist:
		return "check the group's name in Groups, or create it with PutGroup"
	case remoting.ConsumerNotOnline:
		return "start a member of the group, or use the form of the call that needs none"
	case remoting.ConsumeMsgTimeout:
		return "look at what the consumer is doing; it did not answer the broker in 10 s"
	case remoting.QueryNotFound, remoting.NoMessage, remoting.PullNotFound:
		return nextNoMessage
	case remoting.InvalidParameter:
		return "correct the value that the remark names"
	default:
		if saysNotOnline(be.Remark) {
			return "check the group and the client id in Members or Producers"
		}
		return "the server's log says more"
	}
}
