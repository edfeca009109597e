// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// ErrNoReply is the cause when a request was sent and no reply came in time.
var ErrNoReply = errors.New("no reply in time")

// Properties of requests and replies (RocketMQ's MessageConst).
const (
	propCorrelation = "CORRELATION_ID"
	propReplyTo     = "REPLY_TO_CLIENT"
	propTTL         = "TTL" // milliseconds
	propCluster     = "CLUSTER"
	propMessageType = "MSG_TYPE"
	replyType       = "reply"
)

// question is what a received request says of the reply it wants.
type question struct{ id, client, ttl, cluster string }

// questionOf reads the properties of a request; nil when a message is none.
func questionOf(props []byte) *question {
	get := func(name string) string {
		v, _ := record.Property(props, name)
		return string(v)
	}
	q := &question{
		id: get(propCorrelation), client: get(propReplyTo), ttl: get(propTTL), cluster: get(propCluster),
	}
	if q.id == "" || q.client == "" {
		return nil
	}
	return q
}

// Request sends a message and waits for a consumer's reply, until ctx ends, or for the send timeout
// when ctx has no deadline. ErrNoReply when none came; a failed send gives a *SendError. Replies
// come over the broker that the replier chose, so this client is announced to all brokers of the
// cluster first.
func (p *Producer) Request(ctx context.Context, m *Message) (*Received, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.cfg.sendTimeout)
		defer cancel()
	}
	if m == nil {
		return nil, fmt.Errorf("client: message is nil: %w", ErrInvalidMessage)
	}
	if err := p.announce(ctx, m.Topic); err != nil {
		return nil, err
	}
	id := newCorrelation()
	reply := make(chan *Received, 1)
	p.await(id, reply)
	defer p.unawait(id)
	left := max(time.Until(deadlineOf(ctx)).Milliseconds(), 1)
	m, w := p.watch(ctx, m)
	r, err := p.sendAlone(ctx, m, &extras{fields: []field{
		{propCorrelation, id}, {propReplyTo, p.client.id}, {propTTL, strconv.FormatInt(left, 10)},
	}}, w)
	if w != nil {
		p.unwatch(w, r, err)
	}
	if err != nil {
		return nil, err
	}
	select {
	case got := <-reply:
		return got, nil
	case <-p.ctx.Done():
		return nil, errProducerClosed()
	case <-ctx.Done():
		return nil, fmt.Errorf("client: request %s to topic %s was stored at %s; check that its "+
			"consumers reply: %w: %w", r.ID, m.Topic, r.Queue, ErrNoReply, context.Cause(ctx))
	}
}

// announce makes this client known to the brokers that may carry replies, once for each topic.
func (p *Producer) announce(ctx context.Context, topic string) error {
	if _, err := p.topicOf(topic); err != nil {
		return err
	}
	c := p.client
	if _, done := p.announced.Load(topic); done {
		return nil
	}
	rt, err := c.routes.forSend(ctx, topic, p.cfg.template)
	if err != nil {
		return err
	}
	for _, cluster := range rt.clusters {
		// Brokers make this topic; an old one that has not is asked no more.
		_, err := c.routes.fetch(ctx, cluster+protocol.ReplyTopicSuffix)
		if err != nil && !errors.Is(err, ErrNoRoute) {
			return err
		}
	}
	told := make(chan struct{})
	if !c.start(func() { defer close(told); c.heartbeat() }) {
		return errProducerClosed()
	}
	select {
	case <-told:
	case <-ctx.Done():
		return fmt.Errorf("client: announcing this client to the brokers of %s: %w", topic,
			context.Cause(ctx))
	}
	p.announced.Store(topic, struct{}{})
	return nil
}

// newCorrelation makes a random id in the form of a UUID.
func newCorrelation() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (p *Producer) await(id string, reply chan *Received) {
	p.replyMu.Lock()
	defer p.replyMu.Unlock()
	if p.replies == nil {
		p.replies = map[string]chan *Received{}
	}
	p.replies[id] = reply
}

func (p *Producer) unawait(id string) {
	p.replyMu.Lock()
	defer p.replyMu.Unlock()
	delete(p.replies, id)
}

// brokerAsks takes replies to requests of this producer.
func (p *Producer) brokerAsks(_ string, cmd *remoting.Command) (*invoke.Response, bool) {
	if cmd.Request() != remoting.PushReplyMessageToClient {
		return nil, false
	}
	props, _ := cmd.Fields.Get("properties")
	id, _ := record.Property(props, propCorrelation)
	p.replyMu.Lock()
	reply := p.replies[string(id)]
	p.replyMu.Unlock()
	if reply == nil {
		return nil, false // another producer's, or too late
	}
	m, err := replyFrom(cmd)
	if err != nil {
		return &invoke.Response{Code: remoting.SystemError, Remark: err.Error()}, true
	}
	m.Topic = p.client.offWire(m.Topic)
	select {
	case reply <- m:
	default: // a second reply: the first one counts
	}
	return &invoke.Response{}, true
}

// replyFrom builds the message that a broker pushes.
func replyFrom(cmd *remoting.Command) (*Received, error) {
	var h protocol.ReplyPush
	if err := h.Decode(cmd); err != nil {
		return nil, err
	}
	body, err := inflate(append([]byte(nil), cmd.Body...), h.SysFlag)
	if err != nil {
		return nil, err
	}
	m := &Received{
		Message: Message{Topic: h.Topic, Body: body}, BornHost: h.BornHost, StoreHost: h.StoreHost,
		Source: Queue{Topic: h.Topic, ID: int(h.QueueID)}, Attempt: int(h.ReconsumeTimes) + 1,
		BornAt: time.UnixMilli(h.BornMS), StoredAt: time.UnixMilli(h.StoreMS),
	}
	// A record with these properties gives the rest, so that there is one reader of properties.
	d := record.Draft{
		Topic: []byte(h.Topic), Properties: []byte(h.Properties),
		BornHost:  netip.AddrPortFrom(netip.IPv4Unspecified(), 0),
		StoreHost: netip.AddrPortFrom(netip.IPv4Unspecified(), 0),
	}
	stored := make([]byte, d.Size())
	d.Encode(stored, record.Place{})
	v, err := record.Parse(stored)
	if err != nil {
		return nil, err
	}
	rest := receive(v, m.Source, 0, body)
	m.ID, m.Tag, m.Keys, m.Properties = rest.ID, rest.Tag, rest.Keys, rest.Properties
	m.OrderingKey = rest.OrderingKey
	return m, nil
}

// Reply answers a request that a consumer received. ErrUnsupported when req is none.
func (p *Producer) Reply(ctx context.Context, req *Received, body []byte) error {
	if req == nil || req.asked == nil {
		return fmt.Errorf("client: the message asks for no reply: %w", ErrUnsupported)
	}
	q := req.asked
	if q.cluster == "" {
		return fmt.Errorf("client: request %s does not say from which cluster it came, so there is no "+
			"topic for the reply: %w", req.ID, ErrUnsupported)
	}
	fields := []field{{propMessageType, replyType}, {propCorrelation, q.id}, {propReplyTo, q.client}}
	if q.ttl != "" {
		fields = append(fields, field{propTTL, q.ttl})
	}
	topic := q.cluster + protocol.ReplyTopicSuffix
	_, err := p.sendAlone(ctx, &Message{Topic: topic, Body: body}, &extras{
		fields: fields, code: remoting.SendReplyMessageV2,
	}, nil)
	if err != nil {
		return fmt.Errorf("client: reply to request %s: %w", req.ID, err)
	}
	return nil
}

// Recall withdraws a timer message that is not delivered yet, by the handle of its SendResult. It
// returns the message's unique id. ErrInvalidMessage for a handle that is none or of another topic;
// brokers refuse messages that are delivered or do not exist.
func (p *Producer) Recall(ctx context.Context, topic, handle string) (id string, err error) {
	if _, err := p.topicOf(topic); err != nil {
		return "", err
	}
	if protocol.IsRetryTopic(topic) || protocol.IsDLQTopic(topic) {
		return "", fmt.Errorf("client: recall from topic %s: %w", topic, ErrInvalidMessage)
	}
	h, err := parseRecallHandle(handle)
	c := p.client
	if err != nil || h.topic != c.onWire(topic) {
		return "", fmt.Errorf("client: recall handle %q is none of topic %s: %w", handle, topic,
			ErrInvalidMessage)
	}
	ctx, cancel := p.bound(ctx, time.Now().Add(p.cfg.sendTimeout))
	defer cancel()
	rt, err := c.routes.forSend(ctx, topic, p.cfg.template)
	if err != nil {
		return "", err
	}
	addr := rt.master(h.broker)
	if addr == "" {
		addr = rt.anyMaster() // a proxy stands for all brokers
	}
	if addr == "" {
		return "", fmt.Errorf("client: broker %s of topic %s has no address: %w", h.broker, topic,
			ErrNoRoute)
	}
	res, err := c.call(ctx, "recall", h.broker, addr, &invoke.Request{
		Code: remoting.RecallMessage, Header: &protocol.RecallMessageRequest{
			Topic: c.onWire(topic), RecallHandle: handle, ProducerGroup: string(p.wireGroup),
			BrokerName: h.broker,
		},
	})
	if err != nil {
		p.tracer.recalled(topic, h.id, false)
		return "", err
	}
	p.tracer.recalled(topic, h.id, true)
	var answer protocol.RecallMessageResponse
	if err := answer.Decode(res.Command); err != nil {
		return "", fmt.Errorf("client: recall: answer of %s: %w", addr, err)
	}
	return answer.MsgID, nil
}

type recallHandle struct{ topic, broker, due, id string }

// parseRecallHandle reads RocketMQ's RecallMessageHandle: URL-safe base64 of five words.
func parseRecallHandle(handle string) (recallHandle, error) {
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(handle, "="))
	if err != nil {
		return recallHandle{}, err
	}
	words := strings.Split(string(text), " ")
	if len(words) != 5 || words[0] != "v1" {
		return recallHandle{}, errors.New("not a recall handle of version 1")
	}
	return recallHandle{topic: words[1], broker: words[2], due: words[3], id: words[4]}, nil
}
