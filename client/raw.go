// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Raw is the calling interface below the API, for tools such as client/admin: requests and answers
// as they are on the wire, over the client's connections, with its credentials, hooks and
// timeouts. Names are not wrapped into the namespace; OnWire and OffWire do that.
type Raw struct{ c *Client }

// Raw returns the calling interface. It stays usable until the client is closed.
func (c *Client) Raw() Raw { return Raw{c} }

// Call asks the server at addr and waits for its answer, for the call timeout when ctx has no
// deadline. op says in errors and hooks what is asked; broker is its name, "" for a name server. An
// answer other than success is returned together with a *BrokerError; without an answer the first
// result is nil.
func (r Raw) Call(
	ctx context.Context, op, broker, addr string, req *invoke.Request,
) (*invoke.Response, error) {
	if err := r.c.usable(); err != nil {
		return nil, err
	}
	return r.c.call(ctx, op, broker, addr, req)
}

// AskNameServer asks one name server, the next one when it cannot be reached. Answers are treated
// as by Call; ErrNoNameServer when none answers.
func (r Raw) AskNameServer(
	ctx context.Context, op string, req *invoke.Request,
) (*invoke.Response, error) {
	if err := r.c.usable(); err != nil {
		return nil, err
	}
	res, err := r.c.askNameServer(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", op, err)
	}
	return res, brokerError(op, "", "name server", res.Code, res.Remark)
}

// NameServers returns the addresses of the name servers known now; some operations go to each.
func (r Raw) NameServers(ctx context.Context) ([]string, error) {
	if err := r.c.usable(); err != nil {
		return nil, err
	}
	if list := r.c.servers.all(); len(list) > 0 || r.c.cfg.resolver == nil {
		return list, nil
	}
	if err := r.c.resolve(ctx); err != nil {
		return nil, fmt.Errorf("client: %w: resolving them: %w", ErrNoNameServer, err)
	}
	return r.c.servers.all(), nil
}

// Route asks a name server for the route of a topic, by its name on the wire. ErrNoRoute when it
// does not exist.
func (r Raw) Route(ctx context.Context, topic string) (*protocol.TopicRouteData, error) {
	res, err := r.AskNameServer(ctx, "route", &invoke.Request{
		Code:   remoting.GetRouteInfoByTopic,
		Header: &protocol.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true},
	})
	if err != nil {
		return nil, err
	}
	data := &protocol.TopicRouteData{}
	if err := protocol.Unmarshal(res.Body, data); err != nil {
		return nil, fmt.Errorf("client: route of topic %s: %w", topic, err)
	}
	return data, nil
}

// Decode turns one stored record, as pulls and queries answer them, into a message of the named
// broker, and returns how many bytes the record takes. The body shares memory with stored unless it
// was compressed.
func (r Raw) Decode(broker string, stored []byte) (m *Received, size int, err error) {
	v, err := record.Parse(stored)
	if err != nil {
		return nil, 0, fmt.Errorf("client: stored record of broker %s: %w", broker, err)
	}
	q := Queue{Topic: r.c.offWire(string(v.Topic())), Broker: broker, ID: int(v.QueueID())}
	body, err := inflate(v.Body(), v.SysFlag())
	if err != nil {
		return nil, int(v.TotalSize()), &DecodeError{Source: q, Offset: int64(v.QueueOffset()), Err: err}
	}
	m = receive(v, q, 0, body)
	m.Topic = r.c.offWire(m.Topic)
	return m, int(v.TotalSize()), nil
}

// OnWire returns the name that a topic or group has at brokers.
func (r Raw) OnWire(name string) string { return r.c.onWire(name) }

// OffWire returns the name users know a topic or group by.
func (r Raw) OffWire(name string) string { return r.c.offWire(name) }

// ID is the client id that brokers know.
func (r Raw) ID() string { return r.c.id }

// Logger is the client's.
func (r Raw) Logger() *slog.Logger { return r.c.cfg.logger }
