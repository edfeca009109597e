// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"crypto/tls"
	"slices"
	"testing"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
)

// olderTLS: the older servers take TLS on their ordinary ports, too.
func olderTLS(t *testing.T, o *older) {
	c := ourClient(t, o.at, client.WithTLS(&tls.Config{InsecureSkipVerify: true}))
	topic := o.topic(t, 2)
	p, err := c.NewProducer(name(t, "PG"))
	if err != nil {
		t.Fatal(err)
	}
	o.send(t, p, topic, "secret", "too")
	readAll(o.ctx, t, c, topic, []string{"secret", "too"})
}

// olderNamespace: names of a namespace are wrapped by the client, and unwrapped in what it hands out.
func olderNamespace(t *testing.T, o *older) {
	const space = "older"
	topic := name(t, "T")
	c := ourClient(t, o.at, client.WithNamespace(space))
	p, err := c.NewProducer(name(t, "PG"))
	if err != nil {
		t.Fatal(err)
	}
	o.send(t, p, topic, "inside")
	waitForRoute(t, o.at.NameServer, space+"%"+topic)
	r, err := c.NewReader(name(t, "G"), client.WithSubscription(topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	if m := o.poll(t, r, 1)[0]; m.Topic != topic || string(m.Body) != "inside" {
		t.Errorf("%s of topic %s", m.Body, m.Topic)
	}
	if _, err := o.c.Queues(o.ctx, topic); err == nil {
		t.Error("the topic is there outside its namespace")
	}
}

// olderTrace: the record of a message lies in the trace topic, under the message's id.
func olderTrace(t *testing.T, o *older) {
	topic := o.topic(t, 1)
	p := o.producer(t, client.WithTrace(""))
	res, err := p.Send(o.ctx, &client.Message{Topic: topic, Body: []byte("traced")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(o.ctx); err != nil { // sends the record
		t.Fatal(err)
	}
	r := o.reader(t, "", protocol.TraceTopic)
	for !slices.Contains(o.poll(t, r, 1)[0].Keys, res.ID) {
		continue // of another test
	}
}
