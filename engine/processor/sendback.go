// SPDX-License-Identifier: Apache-2.0

// CONSUMER_SEND_MSG_BACK (36), after RocketMQ's AbstractSendMessageProcessor.consumerSendMsgBack.
//
// Kept: checks, codes and remarks, the retry and the dead-letter topic, the properties that the new
// record gets. Different: the answer waits for the disk under SYNC_FLUSH, since the consumer commits
// its offset behind the message right after it; a retry policy of the group counts, which in RocketMQ
// only its proxy follows.

package processor

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/retry"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Properties of a message that was sent back.
const (
	propRetryTopic = "RETRY_TOPIC"       // the topic it came from first
	propOriginID   = "ORIGIN_MESSAGE_ID" // the offset id it had first
	propWait       = "WAIT"
)

// BackStore is the store as send-back sees it.
type BackStore interface {
	RecordAt(at record.PhysicalOffset) (zerocopy.Region, error)
	Hot(at record.PhysicalOffset) bool
	Append(es []storage.Entry)
	Flush() error
}

// BackCounters counts messages that were sent back. The calls never block.
type BackCounters interface {
	Put(topic []byte, sends, messages, bytes int)
	PutFailed()
	SentBack(group, topic []byte, dead bool)
}

// SendBacks takes messages back that consumers could not handle.
type SendBacks struct {
	Store    BackStore
	Topics   *topic.Table
	Groups   *group.Configs
	Delays   *delay.Rules
	Counters BackCounters

	StoreHost netip.AddrPort
	SyncFlush bool        // the answer waits for the disk
	Writable  func() bool // the broker's own permission
	NowMS     func() int64
}

// Register adds the request code.
func (p *SendBacks) Register(t Cold) {
	t[remoting.ConsumerSendMsgBack] = func(_ *Caller, cmd *remoting.Command) Reply {
		r, err := sentBack(cmd)
		if err != nil {
			return Fail(err)
		}
		return done(p.SendBack(&r))
	}
}

// sentBack decodes a request. Clients before the limit of retries was their own do not set it.
func sentBack(cmd *remoting.Command) (r protocol.ConsumerSendBackRequest, err error) {
	err = r.Decode(cmd)
	if cmd.Version < versionRetryLimit {
		r.MaxReconsumeTimes = -1
	}
	return r, err
}

// light takes a message back on an event loop when it is in memory and its group and topics are known.
func (p *SendBacks) light(cmd *remoting.Command) (Reply, bool) {
	r, err := sentBack(cmd)
	if err != nil {
		return Fail(err), true
	}
	cfg, known := p.Groups.Find(r.Group)
	if p.SyncFlush || !known || !p.Store.Hot(record.PhysicalOffset(r.Offset)) {
		return Reply{}, false
	}
	err = p.sendBack(&r, cfg, true)
	return done(err), !errors.Is(err, errNotLight)
}

// errNotLight says that a message cannot be taken back on an event loop. Nothing was done.
var errNotLight = errors.New("needs a worker")

// lightBody is the largest body in bytes that an event loop checks and copies.
const lightBody = 64 << 10

// SendBack stores the message again: in the retry topic of the group, after a delay, or in its
// dead-letter topic. It blocks for the disk.
func (p *SendBacks) SendBack(r *protocol.ConsumerSendBackRequest) error {
	cfg, ok, err := p.Groups.LookupOrCreate(r.Group)
	switch {
	case err != nil:
		return err
	case !ok:
		return remoting.Errorf(remoting.SubscriptionGroupNotExist,
			"subscription group not exist, %s %s", r.Group, FAQ)
	}
	return p.sendBack(r, cfg, false)
}

// sendBack is SendBack for a group that is known. light: it fails with errNotLight where it would have to
// write a file or to work for long.
func (p *SendBacks) sendBack(
	r *protocol.ConsumerSendBackRequest, cfg *protocol.SubscriptionGroupConfig, light bool,
) error {
	switch {
	case !p.Writable():
		return remoting.Errorf(remoting.NoPermission, "the broker[%s] sending message is forbidden",
			p.StoreHost.Addr())
	case cfg.RetryQueueNums <= 0:
		return nil // the group wants nothing again, and the message is dropped
	}
	target, err := p.target(protocol.RetryPrefix+r.Group, cfg.RetryQueueNums, r.UnitMode, light)
	if err != nil {
		return err
	}
	if target.Perm&protocol.PermWrite == 0 {
		return remoting.Errorf(remoting.NoPermission, "the topic[%s] sending message is forbidden",
			target.TopicName)
	}
	region, err := p.Store.RecordAt(record.PhysicalOffset(r.Offset))
	if err != nil {
		return remoting.Errorf(remoting.SystemError, "look message by offset failed, %d", r.Offset)
	}
	defer region.Release()
	if light && region.Size > lightBody {
		return errNotLight
	}
	v, err := record.Parse(region.Mem)
	if err == nil && !v.CheckCRC() {
		err = errors.New("the body does not match its check sum")
	}
	if err != nil {
		return remoting.Errorf(remoting.SystemError, "look message by offset failed, %d: %v", r.Offset,
			err)
	}
	decision := retry.Decide(cfg, v.ReconsumeTimes(), retry.Asked{
		DelayLevel: r.DelayLevel, MaxReconsumeTimes: r.MaxReconsumeTimes,
	})
	queues := min(cfg.RetryQueueNums, max(target.ReadQueueNums, 1))
	if decision.Dead {
		if target, err = p.target(protocol.DLQPrefix+r.Group, 1, false, light); err != nil {
			return err
		}
		queues = 1
	}
	return p.store(v, cfg, target.TopicName, rand.Int32N(queues), decision)
}

// target returns a retry or dead-letter topic, made if it is missing.
func (p *SendBacks) target(
	name string, queues int32, unit, light bool,
) (*protocol.TopicConfig, error) {
	if c, ok := p.Topics.Find(name); ok {
		return c, nil
	}
	if light {
		return nil, errNotLight
	}
	return p.Topics.CreateRetry(name, queues, protocol.PermRead|protocol.PermWrite, false, unit)
}

// store appends the message once more.
func (p *SendBacks) store(
	v record.View, cfg *protocol.SubscriptionGroupConfig, name string, queue int32,
	decision retry.Decision,
) error {
	d := v.Draft()
	origin := d.Topic
	if first, ok := record.Property(d.Properties, propRetryTopic); ok {
		origin = first
	}
	e := storage.Entry{Draft: d, Again: true}
	e.Draft.Topic, e.Draft.QueueID = []byte(name), queue
	e.Draft.ReconsumeTimes++
	e.Draft.StoreHost, e.Draft.PreparedOffset = p.StoreHost, 0
	e.Draft.Properties = p.properties(v, decision)
	if _, crc := record.Property(d.Properties, record.PropertyCRC32); crc {
		e.Draft.PropertyCRC = true
	}
	tags, _ := record.Property(d.Properties, "TAGS")
	e.Draft.TagsCode = record.TagsCode(tags)
	if !decision.Dead {
		if _, _, err := p.Delays.Park(&e, nil, p.NowMS()); err != nil {
			return err
		}
	}
	entries := []storage.Entry{e}
	p.Store.Append(entries)
	if err := entries[0].Err; err != nil {
		p.Counters.PutFailed()
		return backError(err)
	}
	p.Counters.Put(entries[0].Draft.Topic, 1, 1, len(d.Body))
	p.Counters.SentBack([]byte(cfg.GroupName), origin, decision.Dead)
	if p.SyncFlush {
		return p.Store.Flush()
	}
	return nil
}

// properties are those of the message, and what says where it came from and when it is due.
func (p *SendBacks) properties(v record.View, decision retry.Decision) []byte {
	old := v.Properties()
	props := make([]byte, 0, len(old)+256)
	_, hasOrigin := record.Property(old, propOriginID)
	_, hasTopic := record.Property(old, propRetryTopic)
	level, waitMS := decision.Level, decision.DelayMS
	if level == 0 && !decision.Dead {
		nearest, exact := retry.LevelOf(p.Delays.Levels, waitMS)
		if exact || p.Delays.TimerOff || waitMS > p.Delays.TimerMaxMS {
			level = nearest
		}
	}
	timed := level == 0 && !decision.Dead
	record.EachProperty(old, func(name, value []byte) bool {
		switch string(name) {
		case delay.PropDelay, propWait, record.PropertyCRC32:
			return true
		case delay.PropTimerOut, delay.PropTimerSec, delay.PropTimerMS, delay.PropTimerDeliver:
			if timed { // of an earlier wait, which would keep this one from being one
				return true
			}
		}
		props = record.AppendProperty(props, string(name), value)
		return true
	})
	if !hasTopic {
		props = record.AppendProperty(props, propRetryTopic, v.Topic())
	}
	if !hasOrigin {
		props = record.AppendProperty(props, propOriginID,
			record.AppendOffsetID(nil, v.StoreHost(), v.PhysicalOffset()))
	}
	props = record.AppendProperty(props, propWait, "false")
	if timed {
		return record.AppendProperty(props, delay.PropTimerMS, strconv.FormatInt(waitMS, 10))
	}
	return record.AppendProperty(props, delay.PropDelay, strconv.Itoa(int(level)))
}

// backError gives every failure the code that makes clients try again themselves.
func backError(err error) error {
	var wire *remoting.Error
	if errors.As(err, &wire) {
		return err
	}
	_, remark := Outcome(err)
	return remoting.Errorf(remoting.SystemError, "%s", remark)
}
