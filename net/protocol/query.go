// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// QueryMessageRequest is the header of QueryMessage.
type QueryMessageRequest struct {
	Topic, Key     string
	MaxNum         int32
	BeginTimestamp int64 // ms, store time
	EndTimestamp   int64
	UniqueKeyQuery bool   // Key is a unique id; the broker's own limit replaces MaxNum
	IndexType      string // K keys, U unique key, T tags; "": absent
	LastKey        string // continue after this index entry; "": absent
}

// Decode reads the fields.
func (h *QueryMessageRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = QueryMessageRequest{
		Topic: r.text("topic"), Key: r.text("key"), MaxNum: r.int32("maxNum"),
		BeginTimestamp: r.int64("beginTimestamp"), EndTimestamp: r.int64("endTimestamp"),
		UniqueKeyQuery: r.bool("_UNIQUE_KEY_QUERY"),
		IndexType:      r.optText("indexType"), LastKey: r.optText("lastKey"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *QueryMessageRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.String("key", h.Key)
	e.Int("maxNum", int64(h.MaxNum))
	e.Int("beginTimestamp", h.BeginTimestamp)
	e.Int("endTimestamp", h.EndTimestamp)
	e.Bool("_UNIQUE_KEY_QUERY", h.UniqueKeyQuery)
	optString(e, "indexType", h.IndexType)
	optString(e, "lastKey", h.LastKey)
}

// QueryMessageResponse is the header of the answer, also of an empty one.
type QueryMessageResponse struct {
	IndexLastUpdateTimestamp int64 // ms
	IndexLastUpdatePhyOffset int64
}

// Decode reads the fields.
func (h *QueryMessageResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = QueryMessageResponse{
		IndexLastUpdateTimestamp: r.optInt64("indexLastUpdateTimestamp", 0),
		IndexLastUpdatePhyOffset: r.optInt64("indexLastUpdatePhyoffset", 0),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *QueryMessageResponse) AppendFields(e *remoting.Encoder) {
	e.Int("indexLastUpdateTimestamp", h.IndexLastUpdateTimestamp)
	e.Int("indexLastUpdatePhyoffset", h.IndexLastUpdatePhyOffset)
}

// ViewMessageRequest is the header of ViewMessageByID.
type ViewMessageRequest struct {
	Topic  string // "": absent
	Offset int64  // in the CommitLog, taken from an offset id
}

// Decode reads the fields.
func (h *ViewMessageRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ViewMessageRequest{Topic: r.optText("topic"), Offset: r.int64("offset")}
	return r.result()
}

// AppendFields writes the fields.
func (h *ViewMessageRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "topic", h.Topic)
	e.Int("offset", h.Offset)
}

// QueryConsumeQueueRequest is the header of QueryConsumeQueue.
type QueryConsumeQueueRequest struct {
	Topic   string
	QueueID int32
	Index   int64 // queue offset of the first unit
	Count   int32
	Group   string // "": absent; otherwise its filter is evaluated
}

// Decode reads the fields.
func (h *QueryConsumeQueueRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = QueryConsumeQueueRequest{
		Topic: r.text("topic"), QueueID: r.int32("queueId"), Index: r.int64("index"),
		Count: r.int32("count"), Group: r.optText("consumerGroup"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *QueryConsumeQueueRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.Int("queueId", int64(h.QueueID))
	e.Int("index", h.Index)
	e.Int("count", int64(h.Count))
	optString(e, "consumerGroup", h.Group)
}
