// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// PopRequest is the header of PopMessage.
type PopRequest struct {
	Group, Topic   string
	QueueID        int32 // -1: any
	MaxMessages    int32
	InvisibleMS    int64
	PollMS         int64
	BornMS         int64 // 0: absent
	InitMode       int32 // of a new group: 0 from the minimum, 1 from the maximum
	ExpressionType string
	Expression     string
	Order          *bool
	AttemptID      string
	BrokerName     string
}

// Decode reads the fields.
func (h *PopRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = PopRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.int32("queueId"),
		MaxMessages: r.int32("maxMsgNums"), InvisibleMS: r.int64("invisibleTime"),
		PollMS: r.optInt64("pollTime", 0), BornMS: r.optInt64("bornTime", 0),
		InitMode: r.optInt32("initMode", 0), ExpressionType: r.optText("expType"),
		Expression: r.optText("exp"), Order: r.optBool("order"), AttemptID: r.optText("attemptId"),
		BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *PopRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.Int("maxMsgNums", int64(h.MaxMessages))
	e.Int("invisibleTime", h.InvisibleMS)
	e.Int("pollTime", h.PollMS)
	e.Int("bornTime", h.BornMS)
	e.Int("initMode", int64(h.InitMode))
	optString(e, "expType", h.ExpressionType)
	optString(e, "exp", h.Expression)
	optBool(e, "order", h.Order)
	optString(e, "attemptId", h.AttemptID)
	optString(e, "bname", h.BrokerName)
}

// PopResponse is the header of the answer, refusals included. The info strings are present when
// HasInfo.
type PopResponse struct {
	PopMS, InvisibleMS int64
	ReviveQueueID      int32
	RestNum            int64
	StartOffsetInfo    string
	MsgOffsetInfo      string
	OrderCountInfo     string // "": absent
	HasInfo            bool
}

// Decode reads the fields.
func (h *PopResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	_, info := c.Fields.Get("startOffsetInfo")
	*h = PopResponse{
		PopMS: r.int64("popTime"), InvisibleMS: r.int64("invisibleTime"),
		ReviveQueueID: r.int32("reviveQid"), RestNum: r.int64("restNum"),
		StartOffsetInfo: r.optText("startOffsetInfo"), MsgOffsetInfo: r.optText("msgOffsetInfo"),
		OrderCountInfo: r.optText("orderCountInfo"), HasInfo: info,
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *PopResponse) AppendFields(e *remoting.Encoder) {
	e.Int("popTime", h.PopMS)
	e.Int("invisibleTime", h.InvisibleMS)
	e.Int("reviveQid", int64(h.ReviveQueueID))
	e.Int("restNum", h.RestNum)
	if h.HasInfo {
		e.String("startOffsetInfo", h.StartOffsetInfo)
		e.String("msgOffsetInfo", h.MsgOffsetInfo)
	}
	optString(e, "orderCountInfo", h.OrderCountInfo)
}

// AckRequest is the header of AckMessage.
type AckRequest struct {
	Group, Topic string // the topic of the queue: a retry topic if the receipt says so
	QueueID      int32
	ExtraInfo    string // receipt
	Offset       int64
	BrokerName   string
}

// Decode reads the fields.
func (h *AckRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = AckRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.int32("queueId"),
		ExtraInfo: r.text("extraInfo"), Offset: r.int64("offset"), BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *AckRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.String("extraInfo", h.ExtraInfo)
	e.Int("offset", h.Offset)
	optString(e, "bname", h.BrokerName)
}

// ChangeInvisibleRequest is the header of ChangeMessageInvisibleTime.
type ChangeInvisibleRequest struct {
	AckRequest

	InvisibleMS int64
	Suspend     *bool
}

// Decode reads the fields.
func (h *ChangeInvisibleRequest) Decode(c *remoting.Command) error {
	if err := h.AckRequest.Decode(c); err != nil {
		return err
	}
	r := fieldsOf(c)
	h.InvisibleMS, h.Suspend = r.int64("invisibleTime"), r.optBool("suspend")
	return r.result()
}

// AppendFields writes the fields.
func (h *ChangeInvisibleRequest) AppendFields(e *remoting.Encoder) {
	h.AckRequest.AppendFields(e)
	e.Int("invisibleTime", h.InvisibleMS)
	optBool(e, "suspend", h.Suspend)
}

// ChangeInvisibleResponse is the header of the answer, from which a new receipt is made.
type ChangeInvisibleResponse struct {
	PopMS, InvisibleMS int64
	ReviveQueueID      int32
}

// Decode reads the fields.
func (h *ChangeInvisibleResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ChangeInvisibleResponse{
		PopMS: r.int64("popTime"), InvisibleMS: r.int64("invisibleTime"),
		ReviveQueueID: r.int32("reviveQid"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ChangeInvisibleResponse) AppendFields(e *remoting.Encoder) {
	e.Int("popTime", h.PopMS)
	e.Int("invisibleTime", h.InvisibleMS)
	e.Int("reviveQid", int64(h.ReviveQueueID))
}

// PeekRequest is the header of PeekMessage.
type PeekRequest struct {
	Group, Topic string
	QueueID      int32
	MaxMessages  int32
}

// Decode reads the fields.
func (h *PeekRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = PeekRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.int32("queueId"),
		MaxMessages: r.int32("maxMsgNums"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *PeekRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.Int("maxMsgNums", int64(h.MaxMessages))
}

// NotificationRequest is the header of Notification.
type NotificationRequest struct {
	Group, Topic   string
	QueueID        int32
	PollMS, BornMS int64
	Order          *bool
	AttemptID      string
	Expression     string
	ExpressionType string
}

// Decode reads the fields.
func (h *NotificationRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = NotificationRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.int32("queueId"),
		PollMS: r.int64("pollTime"), BornMS: r.int64("bornTime"), Order: r.optBool("order"),
		AttemptID: r.optText("attemptId"), Expression: r.optText("exp"),
		ExpressionType: r.optText("expType"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *NotificationRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.Int("pollTime", h.PollMS)
	e.Int("bornTime", h.BornMS)
	optBool(e, "order", h.Order)
	optString(e, "attemptId", h.AttemptID)
	optString(e, "exp", h.Expression)
	optString(e, "expType", h.ExpressionType)
}

// NotificationResponse is the header of the answer.
type NotificationResponse struct{ HasMsg, PollingFull bool }

// Decode reads the fields.
func (h *NotificationResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.HasMsg, h.PollingFull = r.bool("hasMsg"), r.bool("pollingFull")
	return nil
}

// AppendFields writes the fields.
func (h *NotificationResponse) AppendFields(e *remoting.Encoder) {
	e.Bool("hasMsg", h.HasMsg)
	e.Bool("pollingFull", h.PollingFull)
}

// PollingInfoRequest is the header of PollingInfo.
type PollingInfoRequest struct {
	Group, Topic string
	QueueID      int32
}

// Decode reads the fields.
func (h *PollingInfoRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = PollingInfoRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.int32("queueId"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *PollingInfoRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
}

// PollingInfoResponse is the header of the answer.
type PollingInfoResponse struct{ PollingNum int32 }

// Decode reads the field.
func (h *PollingInfoResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.PollingNum = r.int32("pollingNum")
	return r.result()
}

// AppendFields writes the field.
func (h *PollingInfoResponse) AppendFields(e *remoting.Encoder) {
	e.Int("pollingNum", int64(h.PollingNum))
}
