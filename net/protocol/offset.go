// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// QueryConsumerOffsetRequest is the header of QueryConsumerOffset.
type QueryConsumerOffsetRequest struct {
	Group, Topic      string
	QueueID           int32
	SetZeroIfNotFound *bool // nil: absent, which counts as true
	BrokerName        string
}

// Decode reads the fields.
func (h *QueryConsumerOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = QueryConsumerOffsetRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.int32("queueId"),
		SetZeroIfNotFound: r.optBool("setZeroIfNotFound"), BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *QueryConsumerOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	optBool(e, "setZeroIfNotFound", h.SetZeroIfNotFound)
	optString(e, "bname", h.BrokerName)
}

// UpdateConsumerOffsetRequest is the header of UpdateConsumerOffset. RocketMQ answers a missing
// queue or offset with InvalidParameter and a text of its own, after other checks, so their absence
// is kept instead of refused.
type UpdateConsumerOffsetRequest struct {
	Group, Topic string
	QueueID      int32
	CommitOffset int64
	BrokerName   string
	HasQueueID   bool
	HasOffset    bool
}

// Decode reads the fields.
func (h *UpdateConsumerOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = UpdateConsumerOffsetRequest{
		Group: r.text("consumerGroup"), Topic: r.text("topic"), QueueID: r.optInt32("queueId", 0),
		CommitOffset: r.optInt64("commitOffset", 0), BrokerName: r.optText("bname"),
		HasQueueID: r.has("queueId"), HasOffset: r.has("commitOffset"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *UpdateConsumerOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("consumerGroup", h.Group)
	e.String("topic", h.Topic)
	if h.HasQueueID {
		e.Int("queueId", int64(h.QueueID))
	}
	if h.HasOffset {
		e.Int("commitOffset", h.CommitOffset)
	}
	optString(e, "bname", h.BrokerName)
}

// OffsetResponse is the header of the answers that carry one offset.
type OffsetResponse struct{ Offset int64 }

// Decode reads the field.
func (h *OffsetResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Offset = r.int64("offset")
	return r.result()
}

// AppendFields writes the field.
func (h *OffsetResponse) AppendFields(e *remoting.Encoder) { e.Int("offset", h.Offset) }

// Boundaries of SearchOffsetRequest.
const (
	BoundaryLower = "LOWER" // first offset at or after the time
	BoundaryUpper = "UPPER" // last offset at or before it
)

// SearchOffsetRequest is the header of SearchOffsetByTimestamp.
type SearchOffsetRequest struct {
	Topic      string
	QueueID    int32
	Timestamp  int64  // ms
	Boundary   string // any other text than BoundaryUpper counts as BoundaryLower
	BrokerName string
}

// Decode reads the fields.
func (h *SearchOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = SearchOffsetRequest{
		Topic: r.text("topic"), QueueID: r.int32("queueId"), Timestamp: r.int64("timestamp"),
		Boundary: r.optText("boundaryType"), BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *SearchOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.Int("timestamp", h.Timestamp)
	optString(e, "boundaryType", h.Boundary)
	optString(e, "bname", h.BrokerName)
}

// MaxOffsetRequest is the header of GetMaxOffset.
type MaxOffsetRequest struct {
	Topic       string
	QueueID     int32
	Uncommitted bool // the offset that consumers cannot see yet; the wire says committed=false
	BrokerName  string
}

// Decode reads the fields.
func (h *MaxOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	committed := r.optBool("committed")
	*h = MaxOffsetRequest{
		Topic: r.text("topic"), QueueID: r.int32("queueId"), BrokerName: r.optText("bname"),
		Uncommitted: committed != nil && !*committed,
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *MaxOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.Bool("committed", !h.Uncommitted)
	optString(e, "bname", h.BrokerName)
}

// MinOffsetRequest is the header of GetMinOffset.
type MinOffsetRequest struct {
	Topic      string
	QueueID    int32
	BrokerName string
}

// Decode reads the fields.
func (h *MinOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = MinOffsetRequest{
		Topic: r.text("topic"), QueueID: r.int32("queueId"), BrokerName: r.optText("bname"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *MinOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	optString(e, "bname", h.BrokerName)
}

// EarliestStoreTimeRequest is the header of GetEarliestMsgStoreTime.
type EarliestStoreTimeRequest struct {
	Topic      string
	QueueID    int32
	BrokerName string
}

// Decode reads the fields.
func (h *EarliestStoreTimeRequest) Decode(c *remoting.Command) error {
	return (*MinOffsetRequest)(h).Decode(c)
}

// AppendFields writes the fields.
func (h *EarliestStoreTimeRequest) AppendFields(e *remoting.Encoder) {
	(*MinOffsetRequest)(h).AppendFields(e)
}

// EarliestStoreTimeResponse is the answer to it: ms, or -1 for an empty queue.
type EarliestStoreTimeResponse struct{ Timestamp int64 }

// Decode reads the field.
func (h *EarliestStoreTimeResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Timestamp = r.int64("timestamp")
	return r.result()
}

// AppendFields writes the field.
func (h *EarliestStoreTimeResponse) AppendFields(e *remoting.Encoder) {
	e.Int("timestamp", h.Timestamp)
}
