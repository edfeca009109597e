// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// CreateTopicRequest is the header of UpdateAndCreateTopic and UpdateAndCreateStaticTopic.
type CreateTopicRequest struct {
	Topic           string
	DefaultTopic    string // ignored by brokers
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32
	TopicFilterType TopicFilterType // anything but the two types is refused
	TopicSysFlag    int32
	Order           bool
	Attributes      string // changes, "+key=value,-key"; "": absent
	Force           *bool  // static topics; nil: absent
}

// Decode reads the fields. DefaultTopic may be absent.
func (h *CreateTopicRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = CreateTopicRequest{
		Topic: r.text("topic"), DefaultTopic: r.optText("defaultTopic"),
		ReadQueueNums: r.int32("readQueueNums"), WriteQueueNums: r.int32("writeQueueNums"),
		Perm: r.int32("perm"), TopicFilterType: TopicFilterType(r.text("topicFilterType")),
		TopicSysFlag: r.optInt32("topicSysFlag", 0), Order: r.bool("order"),
		Attributes: r.optText("attributes"), Force: r.optBool("force"),
	}
	if r.err == nil && h.TopicFilterType != SingleTag && h.TopicFilterType != MultiTag {
		return illTyped("topicFilterType", []byte(h.TopicFilterType), "SINGLE_TAG or MULTI_TAG")
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *CreateTopicRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	optString(e, "defaultTopic", h.DefaultTopic)
	e.Int("readQueueNums", int64(h.ReadQueueNums))
	e.Int("writeQueueNums", int64(h.WriteQueueNums))
	e.Int("perm", int64(h.Perm))
	e.String("topicFilterType", string(h.TopicFilterType))
	e.Int("topicSysFlag", int64(h.TopicSysFlag))
	e.Bool("order", h.Order)
	optString(e, "attributes", h.Attributes)
	optBool(e, "force", h.Force)
}

// TopicRequest is the header of the codes that name one topic: GetTopicStatsInfo,
// DeleteTopicInBroker, RegisterTopicInNamesrv, QueryTopicConsumeByWho.
type TopicRequest struct{ Topic string }

// Decode reads the field.
func (h *TopicRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Topic = r.text("topic")
	return r.result()
}

// AppendFields writes the field.
func (h *TopicRequest) AppendFields(e *remoting.Encoder) { e.String("topic", h.Topic) }

// DeleteTopicRequest is the header of DeleteTopicInBroker.
type DeleteTopicRequest = TopicRequest

// TopicConfigRequest is the header of GetTopicConfig.
type TopicConfigRequest struct {
	Topic   string
	Logical *bool // true: with the mapping of a static topic; nil: absent
}

// Decode reads the fields.
func (h *TopicConfigRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = TopicConfigRequest{Topic: r.text("topic"), Logical: r.optBool("lo")}
	return r.result()
}

// AppendFields writes the fields.
func (h *TopicConfigRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	optBool(e, "lo", h.Logical)
}

// PageRequest is the header of GetAllTopicConfig and GetAllSubscriptionGroupConfig. Without any
// field everything is wanted in one body.
type PageRequest struct {
	Seq         int32  // index of the first entry; -1: absent
	MaxNum      int32  // -1: absent
	DataVersion string // JSON of the DataVersion that the caller pages through; may be ""
	Paged       bool   // there was any of the fields
}

// names returns the fields' names, which differ for topics and groups.
func (*PageRequest) names(code remoting.RequestCode) (seq, limit string) {
	if code == remoting.GetAllSubscriptionGroupConfig {
		return "groupSeq", "maxGroupNum"
	}
	return "topicSeq", "maxTopicNum"
}

// Decode reads the fields by the code of c.
func (h *PageRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	seq, limit := h.names(c.Request())
	_, versioned := c.Fields.Get("dataVersion")
	*h = PageRequest{
		Seq: r.optInt32(seq, -1), MaxNum: r.optInt32(limit, -1),
		DataVersion: r.optText("dataVersion"),
		Paged:       versioned || r.has(seq) || r.has(limit),
	}
	return r.result()
}

// Header returns the header for one of the two codes.
func (h *PageRequest) Header(code remoting.RequestCode) remoting.Header {
	return pageHeader{page: h, code: code}
}

type pageHeader struct {
	page *PageRequest
	code remoting.RequestCode
}

func (p pageHeader) AppendFields(e *remoting.Encoder) {
	if !p.page.Paged {
		return
	}
	seq, limit := p.page.names(p.code)
	optInt(e, seq, int64(p.page.Seq))
	optInt(e, limit, int64(p.page.MaxNum))
	e.String("dataVersion", p.page.DataVersion)
}

// TotalTopicsResponse is the header of the answer to GetAllTopicConfig.
type TotalTopicsResponse struct{ TotalTopicNum int32 }

// Decode reads the field, -1 when it is absent.
func (h *TotalTopicsResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.TotalTopicNum = r.optInt32("totalTopicNum", -1)
	return r.result()
}

// AppendFields writes the field.
func (h *TotalTopicsResponse) AppendFields(e *remoting.Encoder) {
	optInt(e, "totalTopicNum", int64(h.TotalTopicNum))
}

// TotalGroupsResponse is the header of the answer to GetAllSubscriptionGroupConfig.
type TotalGroupsResponse struct{ TotalGroupNum int32 }

// Decode reads the field, -1 when it is absent.
func (h *TotalGroupsResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.TotalGroupNum = r.optInt32("totalGroupNum", -1)
	return r.result()
}

// AppendFields writes the field.
func (h *TotalGroupsResponse) AppendFields(e *remoting.Encoder) {
	optInt(e, "totalGroupNum", int64(h.TotalGroupNum))
}
