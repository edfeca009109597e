// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// GroupRequest is the header of the codes that name one group in the field group:
// QueryTopicsByConsumer, GetSubscriptionGroupConfig.
type GroupRequest struct{ Group string }

// Decode reads the field.
func (h *GroupRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Group = r.text("group")
	return r.result()
}

// AppendFields writes the field.
func (h *GroupRequest) AppendFields(e *remoting.Encoder) { e.String("group", h.Group) }

// DeleteGroupRequest is the header of DeleteSubscriptionGroup.
type DeleteGroupRequest struct {
	GroupName   string
	CleanOffset bool
}

// Decode reads the fields.
func (h *DeleteGroupRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = DeleteGroupRequest{GroupName: r.text("groupName"), CleanOffset: r.bool("cleanOffset")}
	return r.result()
}

// AppendFields writes the fields.
func (h *DeleteGroupRequest) AppendFields(e *remoting.Encoder) {
	e.String("groupName", h.GroupName)
	e.Bool("cleanOffset", h.CleanOffset)
}

// TopicGroupRequest is the header of the codes that name a topic and a group: QueryConsumeTimeSpan,
// QuerySubscriptionByConsumer (where the topic may be absent).
type TopicGroupRequest struct{ Topic, Group string }

// Decode reads the fields.
func (h *TopicGroupRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Topic, h.Group = r.optText("topic"), r.text("group")
	if c.Request() != remoting.QuerySubscriptionByConsumer {
		h.Topic = r.text("topic")
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *TopicGroupRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "topic", h.Topic)
	e.String("group", h.Group)
}

// ConsumeTimeSpanRequest is the header of QueryConsumeTimeSpan.
type ConsumeTimeSpanRequest = TopicGroupRequest

// GroupForbiddenRequest is the header of UpdateAndGetGroupForbidden.
type GroupForbiddenRequest struct {
	Group, Topic string
	Readable     *bool // nil: only asked
}

// Decode reads the fields.
func (h *GroupForbiddenRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = GroupForbiddenRequest{
		Group: r.text("group"), Topic: r.text("topic"), Readable: r.optBool("readable"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *GroupForbiddenRequest) AppendFields(e *remoting.Encoder) {
	e.String("group", h.Group)
	e.String("topic", h.Topic)
	optBool(e, "readable", h.Readable)
}

// ConsumeStatsRequest is the header of GetConsumeStats.
type ConsumeStatsRequest struct {
	Group     string
	Topic     string // "": absent
	TopicList string // topics joined by ";", wins over Topic; "": absent
}

// Decode reads the fields.
func (h *ConsumeStatsRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ConsumeStatsRequest{
		Group: r.text("consumerGroup"), Topic: r.optText("topic"),
		TopicList: r.optText("topicList"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ConsumeStatsRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	optString(e, "topic", h.Topic)
	optString(e, "topicList", h.TopicList)
}

// BrokerConsumeStatsRequest is the header of GetBrokerConsumeStats.
type BrokerConsumeStatsRequest struct{ Order bool }

// Decode reads the field.
func (h *BrokerConsumeStatsRequest) Decode(c *remoting.Command) error {
	h.Order = fieldsOf(c).bool("isOrder")
	return nil
}

// AppendFields writes the field.
func (h *BrokerConsumeStatsRequest) AppendFields(e *remoting.Encoder) { e.Bool("isOrder", h.Order) }

// CloneGroupOffsetRequest is the header of CloneGroupOffset.
type CloneGroupOffsetRequest struct {
	SrcGroup, DestGroup string
	Topic               string // "": absent, which is all
	Offline             bool
}

// Decode reads the fields.
func (h *CloneGroupOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = CloneGroupOffsetRequest{
		SrcGroup: r.text("srcGroup"), DestGroup: r.text("destGroup"), Topic: r.optText("topic"),
		Offline: r.bool("offline"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *CloneGroupOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("srcGroup", h.SrcGroup)
	e.String("destGroup", h.DestGroup)
	optString(e, "topic", h.Topic)
	e.Bool("offline", h.Offline)
}

// QueryCorrectionOffsetRequest is the header of QueryCorrectionOffset.
type QueryCorrectionOffsetRequest struct {
	FilterGroups string // groups to skip, joined by ","; "": absent
	CompareGroup string
	Topic        string
}

// Decode reads the fields.
func (h *QueryCorrectionOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = QueryCorrectionOffsetRequest{
		FilterGroups: r.optText("filterGroups"), CompareGroup: r.optText("compareGroup"),
		Topic: r.text("topic"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *QueryCorrectionOffsetRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "filterGroups", h.FilterGroups)
	optString(e, "compareGroup", h.CompareGroup)
	e.String("topic", h.Topic)
}

// ResetOffsetRequest is the header of InvokeBrokerToResetOffset and ResetConsumerClientOffset.
type ResetOffsetRequest struct {
	Topic, Group string
	Timestamp    int64 // ms; negative: the maximum
	Force        bool
	QueueID      int32 // -1: all
	Offset       int64 // -1: absent
}

// Decode reads the fields.
func (h *ResetOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ResetOffsetRequest{
		Topic: r.text("topic"), Group: r.text("group"), Timestamp: r.int64("timestamp"),
		Force: r.bool("isForce"), QueueID: r.optInt32("queueId", -1),
		Offset: r.optInt64("offset", -1),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ResetOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.String("group", h.Group)
	e.Int("timestamp", h.Timestamp)
	e.Bool("isForce", h.Force)
	e.Int("queueId", int64(h.QueueID))
	e.Int("offset", h.Offset)
}

// ConsumerStatusRequest is the header of InvokeBrokerToGetConsumerStatus and
// GetConsumerStatusFromClient.
type ConsumerStatusRequest struct {
	Topic, Group string
	ClientAddr   string // a client id; "": absent, which is all
}

// Decode reads the fields.
func (h *ConsumerStatusRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ConsumerStatusRequest{
		Topic: r.text("topic"), Group: r.text("group"), ClientAddr: r.optText("clientAddr"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ConsumerStatusRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.String("group", h.Group)
	optString(e, "clientAddr", h.ClientAddr)
}

// ConsumerRunningInfoRequest is the header of GetConsumerRunningInfo.
type ConsumerRunningInfoRequest struct {
	Group, ClientID string
	Jstack          bool
}

// Decode reads the fields.
func (h *ConsumerRunningInfoRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ConsumerRunningInfoRequest{
		Group: r.text("consumerGroup"), ClientID: r.text("clientId"),
		Jstack: r.bool("jstackEnable"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ConsumerRunningInfoRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("clientId", h.ClientID)
	e.Bool("jstackEnable", h.Jstack)
}

// ConsumeDirectlyRequest is the header of ConsumeMessageDirectly. The broker adds the last three
// fields when it passes the request on.
type ConsumeDirectlyRequest struct {
	Group        string
	ClientID     string
	MsgID        string // offset id
	Topic        string
	BrokerName   string
	TopicSysFlag int32 // -1: absent
	GroupSysFlag int32 // -1: absent
}

// Decode reads the fields.
func (h *ConsumeDirectlyRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ConsumeDirectlyRequest{
		Group: r.text("consumerGroup"), ClientID: r.optText("clientId"), MsgID: r.optText("msgId"),
		Topic: r.optText("topic"), BrokerName: r.optText("brokerName"),
		TopicSysFlag: r.optInt32("topicSysFlag", -1), GroupSysFlag: r.optInt32("groupSysFlag", -1),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ConsumeDirectlyRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	optString(e, "clientId", h.ClientID)
	optString(e, "msgId", h.MsgID)
	optString(e, "topic", h.Topic)
	optString(e, "brokerName", h.BrokerName)
	optInt(e, "topicSysFlag", int64(h.TopicSysFlag))
	optInt(e, "groupSysFlag", int64(h.GroupSysFlag))
}

// BrokerStatsRequest is the header of ViewBrokerStatsData.
type BrokerStatsRequest struct{ StatsName, StatsKey string }

// Decode reads the fields.
func (h *BrokerStatsRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = BrokerStatsRequest{StatsName: r.text("statsName"), StatsKey: r.text("statsKey")}
	return r.result()
}

// AppendFields writes the fields.
func (h *BrokerStatsRequest) AppendFields(e *remoting.Encoder) {
	e.String("statsName", h.StatsName)
	e.String("statsKey", h.StatsKey)
}
