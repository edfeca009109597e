// SPDX-License-Identifier: Apache-2.0

// RECALL_MESSAGE (370), GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61) and SWITCH_TIMER_ENGINE
// (5001), after RocketMQ's RecallMessageProcessor and AdminBrokerProcessor.

package processor

import (
	"encoding/base64"
	"net/netip"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// recallTag marks the message that recalls another one.
const recallTag = "_RECALL_TAG_"

// TimerWheel is the wheel as the processors see it.
type TimerWheel interface {
	Checkpoint() []byte // the 56 bytes of the checkpoint
	Metrics() []byte    // JSON
}

// Timers answers what concerns timer messages.
type Timers struct {
	Store    BackStore
	Topics   *topic.Table
	Delays   *delay.Rules
	Counters BackCounters
	Wheel    TimerWheel // nil: timerWheelEnable is false

	Broker, Region string
	StoreHost      netip.AddrPort
	Enabled        bool // recallMessageEnable
	Unwritable     bool // recall on a broker that takes no messages (allowRecallWhenBrokerNotWriteable)
	SyncFlush      bool // the answer waits for the disk
	AcceptFromMS   int64
	Writable       func() bool
	NowMS          func() int64
}

// Register adds the request codes.
func (p *Timers) Register(t Cold) {
	t[remoting.RecallMessage] = func(c *Caller, cmd *remoting.Command) Reply {
		var r protocol.RecallMessageRequest
		if err := r.Decode(cmd); err != nil {
			return Fail(err)
		}
		id, err := p.Recall(c, &r)
		reply := Reply{Header: &protocol.RecallMessageResponse{MsgID: id, Region: p.Region}}
		if err != nil {
			reply.Code, reply.Remark = Outcome(err)
		} else {
			reply.Remark = notSet
		}
		return reply
	}
	t[remoting.GetTimerCheckPoint] = func(*Caller, *remoting.Command) Reply {
		if p.Wheel == nil {
			return Fail(remoting.Errorf(remoting.SystemError, "The checkpoint is null"))
		}
		return Reply{Body: p.Wheel.Checkpoint()}
	}
	t[remoting.GetTimerMetrics] = func(*Caller, *remoting.Command) Reply {
		if p.Wheel == nil {
			return Fail(remoting.Errorf(remoting.SystemError, "The timerMessageStore is null"))
		}
		return Reply{Body: p.Wheel.Metrics()}
	}
	t[remoting.SwitchTimerEngine] = func(_ *Caller, cmd *remoting.Command) Reply {
		if engine, _ := cmd.Fields.Get("E_T"); string(engine) != "F" {
			return Fail(remoting.Errorf(remoting.InvalidParameter, "timers are kept in the file "+
				"engine (E_T=F), there is no other one on this broker"))
		}
		return Reply{}
	}
}

// Recall stores the message that takes a timer message back, and returns that one's unique key. It
// blocks for the disk under SYNC_FLUSH.
func (p *Timers) Recall(c *Caller, r *protocol.RecallMessageRequest) (id string, err error) {
	switch {
	case !p.Enabled:
		return "", remoting.Errorf(remoting.NoPermission, "recall failed, operation is forbidden")
	case p.NowMS() < p.AcceptFromMS:
		return "", remoting.Errorf(remoting.ServiceNotAvailable,
			"recall failed, broker service not available")
	case !p.Writable() && !p.Unwritable:
		return "", remoting.Errorf(remoting.ServiceNotAvailable,
			"recall failed, broker service not available")
	}
	if _, ok := p.Topics.Find(r.Topic); !ok {
		return "", remoting.Errorf(remoting.TopicNotExist, "recall failed, the topic[%s] not exist",
			r.Topic)
	}
	handle, ok := parseRecallHandle(r.RecallHandle)
	switch {
	case !ok:
		return "", illegalOperation("recall handle is invalid")
	case handle.topic != r.Topic:
		return "", illegalOperation("recall failed, topic not match")
	case handle.broker != p.Broker:
		return "", illegalOperation("recall failed, broker service not available")
	}
	now := p.NowMS()
	if left := handle.ms - now; left <= 0 || left >= p.Delays.TimerMaxMS {
		return "", illegalOperation("recall failed, timestamp invalid")
	}
	e := storage.Entry{Draft: record.Draft{
		Topic: []byte(r.Topic), BornMS: now, BornHost: c.Peer, StoreHost: p.StoreHost,
		Body: []byte("0"), TagsCode: record.TagsCode([]byte(recallTag)),
		Properties: recallProperties(r, &handle, now),
	}}
	entries := []storage.Entry{e}
	if _, _, err := p.Delays.Park(&entries[0], nil, now); err == nil {
		p.Store.Append(entries)
		err = entries[0].Err
		if err == nil && p.SyncFlush {
			err = p.Store.Flush()
		}
		if err == nil {
			p.Counters.Put(entries[0].Draft.Topic, 1, 1, 1)
			return handle.uniq, nil
		}
	}
	p.Counters.PutFailed()
	return "", remoting.Errorf(remoting.SystemError, "recall failed, execute error")
}

func illegalOperation(remark string) error {
	return remoting.Errorf(remoting.IllegalOperation, "%s", remark)
}

func recallProperties(r *protocol.RecallMessageRequest, h *recallHandle, now int64) []byte {
	var props []byte
	for _, pair := range [...][2]string{
		{"TAGS", recallTag},
		{"UNIQ_KEY", h.uniq},
		{delay.PropTimerDel, h.uniq},
		{delay.PropTimerDeliver, strconv.FormatInt(h.ms, 10)},
		{"BORN_TIMESTAMP", strconv.FormatInt(now, 10)},
		{"PGROUP", r.ProducerGroup},
	} {
		props = record.AppendProperty(props, pair[0], pair[1])
	}
	return props
}

// recallHandle is what AppendRecallHandle puts into a handle.
type recallHandle struct {
	topic, broker, uniq string
	ms                  int64
}

func parseRecallHandle(text string) (h recallHandle, ok bool) {
	plain, err := base64.URLEncoding.DecodeString(text)
	if err != nil {
		return h, false
	}
	parts := strings.Split(string(plain), " ")
	if len(parts) != 5 || parts[0] != "v1" || !record.ValidProperty(parts[4]) {
		return h, false
	}
	ms, err := strconv.ParseInt(parts[3], 10, 64)
	return recallHandle{topic: parts[1], broker: parts[2], uniq: parts[4], ms: ms}, err == nil
}
