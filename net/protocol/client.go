// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// HeartbeatResponse is the header of the answer to HeartBeat.
type HeartbeatResponse struct {
	SupportV2  bool
	SubChanged bool // the client sends its subscriptions in full again
}

// Decode reads the fields.
func (h *HeartbeatResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = HeartbeatResponse{
		SupportV2: r.bool("IS_SUPPORT_HEART_BEAT_V2"), SubChanged: r.bool("IS_SUB_CHANGE"),
	}
	return nil
}

// AppendFields writes the fields.
func (h *HeartbeatResponse) AppendFields(e *remoting.Encoder) {
	e.Bool("IS_SUPPORT_HEART_BEAT_V2", h.SupportV2)
	e.Bool("IS_SUB_CHANGE", h.SubChanged)
}

// UnregisterClientRequest is the header of UnregisterClient; either group may be absent.
type UnregisterClientRequest struct{ ClientID, ProducerGroup, ConsumerGroup string }

// Decode reads the fields.
func (h *UnregisterClientRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = UnregisterClientRequest{
		ClientID: r.text("clientID"), ProducerGroup: r.optText("producerGroup"),
		ConsumerGroup: r.optText("consumerGroup"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *UnregisterClientRequest) AppendFields(e *remoting.Encoder) {
	e.String("clientID", h.ClientID)
	optString(e, "producerGroup", h.ProducerGroup)
	optString(e, "consumerGroup", h.ConsumerGroup)
}

// ConsumerListRequest is the header of GetConsumerListByGroup and GetConsumerConnectionList.
type ConsumerListRequest struct{ Group string }

// Decode reads the field.
func (h *ConsumerListRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Group = r.text("consumerGroup")
	return r.result()
}

// AppendFields writes the field.
func (h *ConsumerListRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
}

// NotifyConsumerIDsChangedRequest is the header of NotifyConsumerIDsChanged.
type NotifyConsumerIDsChangedRequest = ConsumerListRequest

// ConsumerConnectionRequest is the header of GetConsumerConnectionList.
type ConsumerConnectionRequest = ConsumerListRequest

// ProducerConnectionRequest is the header of GetProducerConnectionList.
type ProducerConnectionRequest struct{ Group string }

// Decode reads the field.
func (h *ProducerConnectionRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Group = r.text("producerGroup")
	return r.result()
}

// AppendFields writes the field.
func (h *ProducerConnectionRequest) AppendFields(e *remoting.Encoder) {
	e.String("producerGroup", h.Group)
}

// ConsumerSendBackRequest is the header of ConsumerSendMsgBack.
type ConsumerSendBackRequest struct {
	Offset            int64 // in the CommitLog
	Group             string
	DelayLevel        int32 // negative: dead letter at once, 0: the broker chooses
	OriginMsgID       string
	OriginTopic       string
	UnitMode          bool
	MaxReconsumeTimes int32 // -1: absent
	BrokerName        string
}

// Decode reads the fields.
func (h *ConsumerSendBackRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ConsumerSendBackRequest{
		Offset: r.int64("offset"), Group: r.text("group"), DelayLevel: r.int32("delayLevel"),
		OriginMsgID: r.optText("originMsgId"), OriginTopic: r.optText("originTopic"),
		UnitMode: r.bool("unitMode"), MaxReconsumeTimes: r.optInt32("maxReconsumeTimes", -1),
		BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ConsumerSendBackRequest) AppendFields(e *remoting.Encoder) {
	e.Int("offset", h.Offset)
	e.String("group", h.Group)
	e.Int("delayLevel", int64(h.DelayLevel))
	optString(e, "originMsgId", h.OriginMsgID)
	optString(e, "originTopic", h.OriginTopic)
	e.Bool("unitMode", h.UnitMode)
	optInt(e, "maxReconsumeTimes", int64(h.MaxReconsumeTimes))
	optString(e, "bname", h.BrokerName)
}

// ReplyPush is the header of PushReplyMessageToClient.
type ReplyPush struct {
	Group, Topic       string
	DefaultTopic       string
	DefaultTopicQueues int32
	QueueID            int32
	SysFlag            int32
	Flag               int32
	BornMS, StoreMS    int64
	BornHost           string // address and port
	StoreHost          string
	Properties         string
	ReconsumeTimes     int32
	UnitMode           bool
}

// Decode reads the fields.
func (h *ReplyPush) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ReplyPush{
		Group: r.text("producerGroup"), Topic: r.text("topic"),
		DefaultTopic:       r.optText("defaultTopic"),
		DefaultTopicQueues: r.optInt32("defaultTopicQueueNums", 0), QueueID: r.int32("queueId"),
		SysFlag: r.int32("sysFlag"), Flag: r.optInt32("flag", 0),
		BornMS:  r.optInt64("bornTimestamp", 0),
		StoreMS: r.optInt64("storeTimestamp", 0), BornHost: r.optText("bornHost"),
		StoreHost: r.optText("storeHost"), Properties: r.optText("properties"),
		ReconsumeTimes: r.optInt32("reconsumeTimes", 0), UnitMode: r.bool("unitMode"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ReplyPush) AppendFields(e *remoting.Encoder) {
	e.String("producerGroup", h.Group)
	e.String("topic", h.Topic)
	optString(e, "defaultTopic", h.DefaultTopic)
	e.Int("defaultTopicQueueNums", int64(h.DefaultTopicQueues))
	e.Int("queueId", int64(h.QueueID))
	e.Int("sysFlag", int64(h.SysFlag))
	e.Int("flag", int64(h.Flag))
	e.Int("bornTimestamp", h.BornMS)
	e.Int("storeTimestamp", h.StoreMS)
	optString(e, "bornHost", h.BornHost)
	optString(e, "storeHost", h.StoreHost)
	optString(e, "properties", h.Properties)
	e.Int("reconsumeTimes", int64(h.ReconsumeTimes))
	e.Bool("unitMode", h.UnitMode)
}
