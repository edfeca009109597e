// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// advised is err with what to do about it in its text.
func advised(err error) error {
	if next := adviceFor(err); next != "" {
		return fmt.Errorf("%w (%s)", err, next)
	}
	return err
}

// adviceFor is the one next step that the text of an error names; empty when there is none.
func adviceFor(err error) string {
	var ie *invoke.Error
	var be *BrokerError
	dial := errors.As(err, &ie) && ie.Op == "dial"
	switch {
	case errors.Is(err, ErrClosed):
		return "it was closed; make a new one"
	case errors.Is(err, ErrNoNameServer):
		return "check the name server addresses and that one of them runs"
	case errors.Is(err, ErrNoQueue):
		return "look at the topic's permission and numbers of queues (mqadmin topicRoute), and that its " +
			"brokers run"
	case errors.Is(err, ErrNoRoute):
		return "create the topic, or let brokers create topics (autoCreateTopicEnable)"
	case errors.Is(err, ErrPermission):
		return "check the credentials, and what topic and broker permit"
	case errors.Is(err, ErrFlowControl):
		return "send slower; the broker sets the limit"
	case errors.Is(err, remoting.ErrFrameTooLarge):
		return "give the client the size of messages that brokers have (WithMaxMessageSize)"
	case errors.Is(err, ErrMessageTooLarge), errors.Is(err, invoke.ErrTooLarge):
		return "send less in one message; client and broker have limits (WithMaxMessageSize, " +
			"maxMessageSize)"
	case errors.Is(err, ErrInvalidMessage):
		return "correct the message; it would be refused again"
	case errors.Is(err, ErrUnsupported):
		return "use a broker that knows this request"
	case dial:
		return "check that the broker runs and that " + ie.Addr + ", which it tells its name servers, " +
			"can be reached from here (brokerIP1)"
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "look at the broker's load, or allow more time (WithSendTimeout)"
	case errors.As(err, &be):
		if remoting.ResponseCode(be.Code) == remoting.SystemBusy {
			return "the broker is overloaded; send slower or add brokers"
		}
		return "look into the broker's log"
	case ie != nil:
		return "see whether the broker restarted; the connection is made anew by the next send"
	default:
		return ""
	}
}
