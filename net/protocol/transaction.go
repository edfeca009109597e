// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// EndTransactionRequest is the header of EndTransaction. The remark of the command may hold the
// text of the exception that a local transaction ended with.
type EndTransactionRequest struct {
	Topic                string // "": absent, as from the Go client
	ProducerGroup        string
	TranStateTableOffset int64 // in the queue of half messages
	CommitLogOffset      int64
	CommitOrRollback     int32 // TransactionCommit, TransactionRollback or TransactionUnknown
	FromCheck            bool
	MsgID                string
	TransactionID        string
	BrokerName           string
	HasBrokerName        bool // the Go client sends an empty one
}

// Decode reads the fields.
func (h *EndTransactionRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	_, named := c.Fields.Get("bname")
	*h = EndTransactionRequest{
		Topic: r.optText("topic"), ProducerGroup: r.text("producerGroup"),
		TranStateTableOffset: r.int64("tranStateTableOffset"),
		CommitLogOffset:      r.int64("commitLogOffset"),
		CommitOrRollback:     r.int32("commitOrRollback"),
		FromCheck:            r.bool("fromTransactionCheck"), MsgID: r.text("msgId"),
		TransactionID: r.optText("transactionId"), BrokerName: r.optText("bname"),
		HasBrokerName: named,
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *EndTransactionRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "topic", h.Topic)
	e.String("producerGroup", h.ProducerGroup)
	e.Int("tranStateTableOffset", h.TranStateTableOffset)
	e.Int("commitLogOffset", h.CommitLogOffset)
	e.Int("commitOrRollback", int64(h.CommitOrRollback))
	e.Bool("fromTransactionCheck", h.FromCheck)
	e.String("msgId", h.MsgID)
	optString(e, "transactionId", h.TransactionID)
	if h.HasBrokerName || h.BrokerName != "" {
		e.String("bname", h.BrokerName)
	}
}

// CheckTransactionStateRequest is the header of CheckTransactionState. The offsets are new with
// each check, and only the newest pair can be ended.
type CheckTransactionStateRequest struct {
	Topic                string // of half messages
	TranStateTableOffset int64
	CommitLogOffset      int64
	MsgID                string
	TransactionID        string
	OffsetMsgID          string
	BrokerName           string
}

// Decode reads the fields.
func (h *CheckTransactionStateRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = CheckTransactionStateRequest{
		Topic: r.optText("topic"), TranStateTableOffset: r.int64("tranStateTableOffset"),
		CommitLogOffset: r.int64("commitLogOffset"), MsgID: r.optText("msgId"),
		TransactionID: r.optText("transactionId"), OffsetMsgID: r.optText("offsetMsgId"),
		BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *CheckTransactionStateRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "topic", h.Topic)
	e.Int("tranStateTableOffset", h.TranStateTableOffset)
	e.Int("commitLogOffset", h.CommitLogOffset)
	optString(e, "msgId", h.MsgID)
	optString(e, "transactionId", h.TransactionID)
	optString(e, "offsetMsgId", h.OffsetMsgID)
	optString(e, "bname", h.BrokerName)
}

// ResumeCheckHalfRequest is the header of ResumeCheckHalfMessage.
type ResumeCheckHalfRequest struct {
	Topic string // "": absent
	MsgID string // offset id
}

// Decode reads the fields.
func (h *ResumeCheckHalfRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ResumeCheckHalfRequest{Topic: r.optText("topic"), MsgID: r.text("msgId")}
	return r.result()
}

// AppendFields writes the fields.
func (h *ResumeCheckHalfRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "topic", h.Topic)
	e.String("msgId", h.MsgID)
}

// RecallMessageRequest is the header of RecallMessage.
type RecallMessageRequest struct{ Topic, RecallHandle, ProducerGroup, BrokerName string }

// Decode reads the fields.
func (h *RecallMessageRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = RecallMessageRequest{
		Topic: r.text("topic"), RecallHandle: r.text("recallHandle"),
		ProducerGroup: r.optText("producerGroup"), BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *RecallMessageRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.String("recallHandle", h.RecallHandle)
	optString(e, "producerGroup", h.ProducerGroup)
	optString(e, "bname", h.BrokerName)
}

// RecallMessageResponse is the header of the answer; refusals carry only the region.
type RecallMessageResponse struct {
	MsgID  string // UNIQ_KEY
	Region string
}

// Decode reads the fields.
func (h *RecallMessageResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = RecallMessageResponse{MsgID: r.optText("msgId"), Region: r.optText("MSG_REGION")}
	return nil
}

// AppendFields writes the fields.
func (h *RecallMessageResponse) AppendFields(e *remoting.Encoder) {
	optString(e, "msgId", h.MsgID)
	optString(e, "MSG_REGION", h.Region)
}
