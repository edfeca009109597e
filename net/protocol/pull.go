// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// Bits of a pull's SysFlag (RocketMQ's PullSysFlag).
const (
	PullCommitOffset int32 = 1 << iota // CommitOffset is meant
	PullSuspend                        // hold the request while there is nothing, up to SuspendMS
	PullSubscription                   // Subscription is meant; otherwise the group's registered one
	PullClassFilter                    // obsolete
	PullLite                           // sent by the lite pull consumer
)

// PullRequest is the header of PullMessage and LitePullMessage (PullMessageRequestHeader). The
// slices are borrowed from the command that was decoded.
type PullRequest struct {
	Group, Topic   []byte
	QueueID        int32
	QueueOffset    int64
	MaxMessages    int32 // as sent: may be 0, negative or huge
	SysFlag        int32
	CommitOffset   int64
	SuspendMS      int64 // as sent: may be negative or huge
	Subscription   []byte
	SubVersion     int64 // milliseconds or nanoseconds, by client; 0 when not sent
	ExpressionType []byte
	MaxBytes       int32  // -1: absent
	RequestSource  int32  // -1: absent, which is an SDK
	BrokerName     []byte // nil: absent
	ProxyClientID  []byte // of the real client behind a proxy; nil: absent
}

const (
	pullGroup = 1 << iota
	pullTopic
	pullQueueID
	pullQueueOffset
	pullMaxMessages
	pullSysFlag

	pullRequired = 1<<iota - 1
)

// pullNames are the names of the required fields in the order of the bits.
var pullNames = [...]string{
	"consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
}

// Decode reads the header. Cost: one pass, no allocation.
func (r *PullRequest) Decode(c *remoting.Command) error {
	*r = PullRequest{MaxBytes: -1, RequestSource: -1}
	found := 0
	for _, f := range c.Fields {
		bit, err := r.set(f)
		if err != nil {
			return err
		}
		found |= bit
	}
	if found != pullRequired {
		for i, name := range pullNames {
			if found&(1<<i) == 0 {
				return missing(name)
			}
		}
	}
	return nil
}

// set stores one field and returns its bit, 0 for one that is optional or unknown.
func (r *PullRequest) set(f remoting.Field) (bit int, refused error) {
	var err *remoting.Error
	switch string(f.Name) {
	case "consumerGroup":
		r.Group, bit = f.Value, pullGroup
	case "topic":
		r.Topic, bit = f.Value, pullTopic
	case "queueId":
		bit, err = pullQueueID, parseInt32("queueId", f.Value, &r.QueueID)
	case "queueOffset":
		bit, err = pullQueueOffset, parseInt64("queueOffset", f.Value, &r.QueueOffset)
	case "maxMsgNums":
		bit, err = pullMaxMessages, parseInt32("maxMsgNums", f.Value, &r.MaxMessages)
	case "sysFlag":
		bit, err = pullSysFlag, parseInt32("sysFlag", f.Value, &r.SysFlag)
	case "commitOffset":
		err = parseInt64("commitOffset", f.Value, &r.CommitOffset)
	case "suspendTimeoutMillis":
		err = parseInt64("suspendTimeoutMillis", f.Value, &r.SuspendMS)
	case "subscription":
		r.Subscription = f.Value
	case "subVersion":
		err = parseInt64("subVersion", f.Value, &r.SubVersion)
	case "expressionType":
		r.ExpressionType = f.Value
	case "maxMsgBytes":
		err = parseInt32("maxMsgBytes", f.Value, &r.MaxBytes)
	case "requestSource":
		err = parseInt32("requestSource", f.Value, &r.RequestSource)
	case "bname":
		r.BrokerName = f.Value
	case "proxyFrowardClientId":
		r.ProxyClientID = f.Value
	}
	if err != nil {
		return 0, err
	}
	return bit, nil
}

// AppendFields writes the fields without allocating.
func (r *PullRequest) AppendFields(e *remoting.Encoder) {
	e.Bytes("consumerGroup", r.Group)
	e.Bytes("topic", r.Topic)
	e.Int("queueId", int64(r.QueueID))
	e.Int("queueOffset", r.QueueOffset)
	e.Int("maxMsgNums", int64(r.MaxMessages))
	e.Int("sysFlag", int64(r.SysFlag))
	e.Int("commitOffset", r.CommitOffset)
	e.Int("suspendTimeoutMillis", r.SuspendMS)
	optBytes(e, "subscription", r.Subscription)
	e.Int("subVersion", r.SubVersion)
	optBytes(e, "expressionType", r.ExpressionType)
	optInt(e, "maxMsgBytes", int64(r.MaxBytes))
	optInt(e, "requestSource", int64(r.RequestSource))
	optBytes(e, "bname", r.BrokerName)
	optBytes(e, "proxyFrowardClientId", r.ProxyClientID)
}

// PullResponse is the header of the answer to a pull (PullMessageResponseHeader). Codes 0, 19, 20
// and 21 need the first four fields: Java dereferences them, and the Go client takes a missing
// NextOffset for 0 and starts over.
type PullResponse struct {
	SuggestBrokerID int64 // whom to ask next
	NextOffset      int64
	MinOffset       int64
	MaxOffset       int64
	OffsetDelta     int64 // static topics; 0: absent
	TopicSysFlag    int32 // -1: absent
	GroupSysFlag    int32 // -1: absent
	ForbiddenType   int32 // -1: absent
}

// AppendFields writes the fields without allocating.
func (r *PullResponse) AppendFields(e *remoting.Encoder) {
	e.Int("suggestWhichBrokerId", r.SuggestBrokerID)
	e.Int("nextBeginOffset", r.NextOffset)
	e.Int("minOffset", r.MinOffset)
	e.Int("maxOffset", r.MaxOffset)
	if r.OffsetDelta != 0 {
		e.Int("offsetDelta", r.OffsetDelta)
	}
	optInt(e, "topicSysFlag", int64(r.TopicSysFlag))
	optInt(e, "groupSysFlag", int64(r.GroupSysFlag))
	optInt(e, "forbiddenType", int64(r.ForbiddenType))
}

// Decode reads the fields. NextOffset, MinOffset and MaxOffset are required, so that a consumer
// never rewinds to 0 by mistake. Cost: one pass, no allocation.
func (r *PullResponse) Decode(c *remoting.Command) error {
	*r = PullResponse{TopicSysFlag: -1, GroupSysFlag: -1, ForbiddenType: -1}
	found := 0
	for _, f := range c.Fields {
		var err *remoting.Error
		switch string(f.Name) {
		case "suggestWhichBrokerId":
			err = parseInt64("suggestWhichBrokerId", f.Value, &r.SuggestBrokerID)
		case "nextBeginOffset":
			found |= 1
			err = parseInt64("nextBeginOffset", f.Value, &r.NextOffset)
		case "minOffset":
			found |= 2
			err = parseInt64("minOffset", f.Value, &r.MinOffset)
		case "maxOffset":
			found |= 4
			err = parseInt64("maxOffset", f.Value, &r.MaxOffset)
		case "offsetDelta":
			err = parseInt64("offsetDelta", f.Value, &r.OffsetDelta)
		case "topicSysFlag":
			err = parseInt32("topicSysFlag", f.Value, &r.TopicSysFlag)
		case "groupSysFlag":
			err = parseInt32("groupSysFlag", f.Value, &r.GroupSysFlag)
		case "forbiddenType":
			err = parseInt32("forbiddenType", f.Value, &r.ForbiddenType)
		}
		if err != nil {
			return err
		}
	}
	for i, name := range [...]string{"nextBeginOffset", "minOffset", "maxOffset"} {
		if found&(1<<i) == 0 {
			return missing(name)
		}
	}
	return nil
}
