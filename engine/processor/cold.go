// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"time"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/stats"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// ColdStore is the store as the cold processors see it.
type ColdStore interface {
	QueueBounds(topic []byte, queue int32) (lowest, end record.QueueOffset, ok bool)
	OffsetByTime(topic []byte, queue int32, ms int64, upper bool) record.QueueOffset
	StoreTimeAt(topic []byte, queue int32, at record.QueueOffset) int64
	EarliestStoreTime(topic []byte, queue int32) int64
	Unit(topic []byte, queue int32, at record.QueueOffset) (consumequeue.Unit, bool)
	EarliestTime() int64
	InMemory(topic []byte, queue int32, at record.QueueOffset) bool
	RecordAt(at record.PhysicalOffset) (zerocopy.Region, error)
	DeleteTopic(topic string) error
	DeleteExpired()
	CleanQueues() error
	Topics() []string
	Info() storage.Info
}

// ClientCaller sends requests to connected clients.
type ClientCaller interface {
	// Call sends a request and waits for its answer, which is owned by the caller. It fails when
	// the time is over or the connection closes. Neither header nor body is changed or kept.
	Call(
		ch group.Channel, code remoting.RequestCode, header remoting.Header, body []byte,
		timeout time.Duration,
	) (*remoting.Command, error)

	// Oneway sends a request that gets no answer. It does not block.
	Oneway(ch group.Channel, code remoting.RequestCode, header remoting.Header, body []byte)

	// Oneways is Oneway for n requests in order, which cost one wake-up. each gives the i-th; what it
	// returns is not kept.
	Oneways(ch group.Channel, code remoting.RequestCode, n int,
		each func(i int) (remoting.Header, []byte))
}

// Settings is the broker's configuration as an administrator sees it.
type Settings interface {
	// Text returns every value in force as sorted key=value lines, and the version they have.
	Text() (string, protocol.DataVersion)

	// Update changes values at run time from key=value lines. Keys that do not exist have no
	// effect. It returns a *remoting.Error for what must not or cannot be changed.
	Update(text string) error
}

// Routes tells the queues of a topic on all brokers, as name servers know them.
type Routes interface {
	ReadQueues(topic string) (queues []protocol.MessageQueue, ok bool)
}

// Leaves is what the cold processors work with. It is filled before the broker starts and constant
// afterwards.
type Leaves struct {
	BrokerName  string
	ClusterName string
	BrokerAddr  string // "host:port" as told to clients
	BootTime    time.Time

	Topics  *topic.Table
	Groups  *group.Configs
	Members *group.Members
	Locks   *group.Locks
	Modes   *group.Modes
	Offsets *offset.Table
	Stats   *stats.Manager
	Store   ColdStore

	Transactions *transaction.Service

	Clients  ClientCaller
	Settings Settings
	Routes   Routes // nil: only this broker's queues are known

	Now func() time.Time

	// PropertyFilter compiles an SQL92 expression; nil: enablePropertyFilter is off.
	PropertyFilter func(expression string) error
	// FromLastStrict keeps a new group that consumes from the last offset from getting the
	// messages of a young topic, which RocketMQ gives it.
	FromLastStrict bool
	// ClientReset is useServerSideResetOffset=false: online clients are told to reset their
	// offsets, and nothing is kept for those that are not.
	ClientReset bool
	// MixedMessageType allows topics with message.type=MIXED (enableMixedMessageType).
	MixedMessageType bool
	// DefaultMode and DefaultPopShare are how groups read where nothing is set
	// (defaultMessageRequestMode, defaultPopShareQueueNum).
	DefaultMode     protocol.MessageRequestMode
	DefaultPopShare int32
	// RuntimeInfo adds to or replaces what GET_BROKER_RUNTIME_INFO shows; nil: nothing to add.
	RuntimeInfo func(table map[string]string)
	// DelayOffsets gives the positions of the delay levels; nil: there are none.
	DelayOffsets func() protocol.DelayOffsetWrapper
	// TopicDeleted is told of a deletion when topic, offsets and queues are gone; nil: nobody.
	TopicDeleted func(topic string)
	// OffsetsReset is told when offsets of a topic were reset, so that pulls that wait in its queues
	// look again; nil: nobody, and they notice at their deadline.
	OffsetsReset func(topic string)
}

// RegisterCold adds every cold processor of this package that works on the leaves.
func RegisterCold(t Cold, l *Leaves) {
	(&Clients{l}).Register(t)
	(&QueueLocks{l}).Register(t)
	(&Offsets{l}).Register(t)
	(&Resets{l}).Register(t)
	(&Topics{l}).Register(t)
	(&Groups{l}).Register(t)
	(&Assignments{l}).Register(t)
	(&Relays{l}).Register(t)
	(&Statistics{l}).Register(t)
	(&Admin{l}).Register(t)
	(&Transactions{l}).Register(t)
}

// RegisterLight adds the processors that clients call all the time and that mostly need no worker.
func RegisterLight(t Light, l *Leaves, b *SendBacks) {
	t[remoting.UpdateConsumerOffset] = (&Offsets{l}).commitLight
	t[remoting.QueryConsumerOffset] = (&Offsets{l}).queryLight
	t[remoting.GetConsumerListByGroup] = (&Clients{l}).consumersLight
	t[remoting.EndTransaction] = endLight
	t[remoting.ConsumerSendMsgBack] = b.light
}

// decoder is a pointer to a request header.
type decoder[R any] interface {
	*R
	Decode(c *remoting.Command) error
}

// onHeader adapts a function that takes a request's header.
func onHeader[R any, P decoder[R]](f func(c *Caller, r P) Reply) Func {
	return func(c *Caller, cmd *remoting.Command) Reply {
		r := P(new(R))
		if err := r.Decode(cmd); err != nil {
			return Fail(err)
		}
		return f(c, r)
	}
}

// onBody adapts a function that takes a request's JSON body.
func onBody[R any](f func(c *Caller, r *R) Reply) Func {
	return func(c *Caller, cmd *remoting.Command) Reply {
		r := new(R)
		if err := unmarshal(cmd.Body, r); err != nil {
			return Fail(err)
		}
		return f(c, r)
	}
}

func unmarshal(body []byte, v any) error {
	if len(body) == 0 {
		return remoting.Errorf(remoting.SystemError, "the body is missing")
	}
	if err := protocol.Unmarshal(body, v); err != nil {
		return remoting.Errorf(remoting.SystemError, "the body cannot be read: %v", err)
	}
	return nil
}

// needed refuses the first of the named values that is empty: pairs of name and value.
func needed(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return remoting.Errorf(remoting.InvalidParameter, "the field %s is missing", pairs[i])
		}
	}
	return nil
}

// done answers SUCCESS, or what went wrong.
func done(err error) Reply {
	if err != nil {
		return Fail(err)
	}
	return Reply{}
}

// jsonReply answers with a JSON body, or with what went wrong.
func jsonReply(v any, err error) Reply {
	if err != nil {
		return Fail(err)
	}
	return Reply{Body: protocol.Marshal(v)}
}

// notSet is the remark that RocketMQ leaves behind where a processor sets only the code.
const notSet = "not set any response code"

// emptyFields is the header of an answer whose class in RocketMQ has no value: extFields is there
// and empty.
type emptyFields struct{}

// AppendFields implements remoting.Header.
func (emptyFields) AppendFields(e *remoting.Encoder) { e.EmptyFields() }

// withEmptyFields gives a reply the empty field map.
func withEmptyFields(r Reply) Reply {
	if r.Header == nil {
		r.Header = emptyFields{}
	}
	return r
}

// topicConfig returns a topic's configuration or code 17.
func (l *Leaves) topicConfig(name string) (*protocol.TopicConfig, error) {
	c, ok := l.Topics.Find(name)
	if !ok {
		return nil, remoting.Errorf(remoting.TopicNotExist, "topic[%s] not exist", name)
	}
	return c, nil
}

// ordinary refuses a static topic, whose queue ids and offsets mean others than this broker's.
func (l *Leaves) ordinary(name string) error {
	if !l.Topics.Static(name) {
		return nil
	}
	return remoting.Errorf(remoting.SystemError, "%s",
		l.Topics.Unserved(&protocol.TopicConfig{TopicName: name}))
}

// queue names one of this broker's queues.
func (l *Leaves) queue(topic string, id int32) protocol.MessageQueue {
	return protocol.MessageQueue{BrokerName: l.BrokerName, QueueID: id, Topic: topic}
}

// bounds returns the lowest offset and the end of a queue, zero when it has none.
func (l *Leaves) bounds(topic string, id int32) (lowest, end int64) {
	low, high, ok := l.Store.QueueBounds([]byte(topic), id)
	if !ok {
		return 0, 0
	}
	return max(int64(low), 0), max(int64(high), 0)
}
