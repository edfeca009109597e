// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// What follows is the client's low level: package admin is made of it, and it is there for request
// codes that neither package has a method for.

// CallBroker sends one request to the broker at addr and waits for its answer. name is the broker's
// name, for errors; op says what is asked, as "send". Without a deadline in ctx the call timeout
// counts. An answer other than success gives a *BrokerError, beside the answer itself.
func (c *Client) CallBroker(
	ctx context.Context, op, name, addr string, r *invoke.Request,
) (*invoke.Response, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	return c.call(ctx, op, name, addr, r)
}

// CallNameServer sends one request to the name server that answered last, else to another one.
// ErrNoNameServer when none answers, a *BrokerError for an answer other than success.
func (c *Client) CallNameServer(
	ctx context.Context, op string, r *invoke.Request,
) (*invoke.Response, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	res, err := c.askNameServer(ctx, r)
	if err != nil {
		return nil, err
	}
	if res.Code != remoting.Success {
		return res, brokerError(op, "", "name server", res.Code, res.Remark)
	}
	return res, nil
}

// NameServers returns the addresses of the name servers in use, for requests that each of them must
// get; CallBroker sends to them as well. The slice is the caller's. With a resolver that has not
// been asked yet it is empty; Ping asks it.
func (c *Client) NameServers() []string { return c.servers.all() }

// WireName returns the name that a topic or group has at brokers: with WithNamespace it begins with
// the namespace. UserName is the way back. Neither CallBroker nor CallNameServer does this.
func (c *Client) WireName(name string) string { return c.onWire(name) }

// UserName returns the name that users know a topic or group by.
func (c *Client) UserName(name string) string { return c.offWire(name) }

// ID returns the client id that brokers show.
func (c *Client) ID() string { return c.id }

// ParseStored reads one record as a broker of this name stores it, the body inflated. The message
// shares the record's memory. ErrInvalidRecord says that there is no record.
func ParseStored(broker string, b []byte) (*Received, error) {
	v, err := record.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("client: record of %s: %w: %w", broker, ErrInvalidRecord, err)
	}
	q := Queue{Topic: string(v.Topic()), Broker: broker, ID: int(v.QueueID())}
	body, err := inflate(v.Body(), v.SysFlag())
	if err != nil {
		return nil, &DecodeError{Source: q, Offset: int64(v.QueueOffset()), Err: err}
	}
	return receive(v, q, 0, body), nil
}

// ErrInvalidRecord is the cause when bytes are no stored record.
var ErrInvalidRecord = errors.New("not a stored record")
