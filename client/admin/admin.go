// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	// defaultTimeout is that of RocketMQ's DefaultMQAdminExt.
	defaultTimeout = 5 * time.Second
	// relayWait is how long a broker waits for a consumer that it asks on behalf of an operator.
	relayWait = 10 * time.Second
)

// Admin makes operator calls. Its methods may be called from any goroutine; each blocks until it
// has its answers, at most as long as its context allows.
type Admin struct {
	c   *client.Client
	cfg config
}

type config struct {
	timeout time.Duration
	anyAddr bool
}

// Option sets up an Admin.
type Option func(*config)

// WithTimeout bounds each request to one server, besides the context of the call. Default 5 s.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithAnyAddress lets MessageByOffsetID dial the address in an id even if no name server knows a
// broker there. By default it is refused, since ids are what users type.
func WithAnyAddress() Option { return func(c *config) { c.anyAddr = true } }

// New makes an Admin of a client, which stays the caller's to close.
func New(c *client.Client, opts ...Option) *Admin {
	a := &Admin{c: c, cfg: config{timeout: defaultTimeout}}
	for _, o := range opts {
		o(&a.cfg)
	}
	return a
}

func (a *Admin) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.cfg.timeout)
}

// ask sends one request to a broker, or to a name server when b has no name.
func (a *Admin) ask(
	ctx context.Context, op string, b Broker, code remoting.RequestCode, h remoting.Header,
	body []byte,
) (*invoke.Response, error) {
	timeout := a.cfg.timeout
	switch code {
	case remoting.GetConsumerRunningInfo, remoting.ConsumeMessageDirectly,
		remoting.InvokeBrokerToGetConsumerStatus:
		timeout += relayWait
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := a.c.CallBroker(ctx, op, b.Name, b.Addr,
		&invoke.Request{Code: code, Header: h, Body: body})
	if err != nil {
		return res, explain(op, err)
	}
	return res, nil
}

// askFor is ask with a JSON answer, which is read into v.
func (a *Admin) askFor(
	ctx context.Context, op string, b Broker, code remoting.RequestCode, h remoting.Header, v any,
) error {
	res, err := a.ask(ctx, op, b, code, h, nil)
	if err != nil {
		return err
	}
	return decode(op, res, v)
}

// askName asks one name server and reads its JSON answer into v, unless that is nil.
func (a *Admin) askName(
	ctx context.Context, op string, code remoting.RequestCode, h remoting.Header, v any,
) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	res, err := a.c.CallNameServer(ctx, op, &invoke.Request{Code: code, Header: h})
	if err != nil {
		return explain(op, err)
	}
	if v == nil {
		return nil
	}
	return decode(op, res, v)
}

func decode(op string, res *invoke.Response, v any) error {
	if len(res.Body) == 0 {
		return nil // RocketMQ leaves out the body of an empty list
	}
	if err := protocol.Unmarshal(res.Body, v); err != nil {
		return &Error{Op: op, Err: err, Next: "the server is no RocketMQ or speaks a newer dialect; " +
			"report this with the server's release"}
	}
	return nil
}

// timeOf reads milliseconds; zero for none.
func timeOf(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
