// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// SendRequest is the header of SendMessage, SendMessageV2, SendBatchMessage, SendReplyMessage and
// SendReplyMessageV2 (RocketMQ's SendMessageRequestHeader and its V2). The slices are borrowed from
// the command that was decoded.
type SendRequest struct {
	Group, Topic       []byte
	DefaultTopic       []byte // template for a topic that does not exist yet
	DefaultTopicQueues int32  // queues wanted for such a topic
	QueueID            int32  // negative: the broker chooses
	SysFlag            int32
	Flag               int32 // the application's
	ReconsumeTimes     int32
	MaxReconsumeTimes  int32 // -1: absent
	BornMS             int64
	Properties         []byte // nil: absent
	UnitMode           bool
	Batch              bool   // the body is a batch; the request code does not tell
	BrokerName         []byte // nil: absent
}

// The required fields as bits of a set, so that one pass over the fields finds what is missing.
const (
	sendTopic = 1 << iota
	sendQueueID
	sendSysFlag
	sendBornMS
	sendFlag

	// The template of a topic counts only when the topic must be created, the group for nothing but
	// its name; RocketMQ takes requests without them.
	sendRequired = 1<<iota - 1
)

// sendNames are the names of the required fields in the order of the bits: long, then short.
var sendNames = [...][2]string{
	{"topic", "b"},
	{"queueId", "e"},
	{"sysFlag", "f"},
	{"bornTimestamp", "g"},
	{"flag", "h"},
}

// Decode reads the header: short names under codes 310, 320 and 325, long names otherwise. Names of
// the other kind count as unknown, as they do for RocketMQ. Cost: one pass, no allocation.
func (r *SendRequest) Decode(c *remoting.Command) error {
	*r = SendRequest{MaxReconsumeTimes: -1}
	short := 0
	switch remoting.RequestCode(c.Code) {
	case remoting.SendMessageV2, remoting.SendBatchMessage, remoting.SendReplyMessageV2:
		short = 1
	}
	found := 0
	for _, f := range c.Fields {
		letter := sendLetter(f.Name, short == 1)
		if letter == 0 {
			continue
		}
		bit, err := r.set(letter, f.Value, f.Name)
		if err != nil {
			return err
		}
		found |= bit
	}
	if found != sendRequired {
		for i, names := range sendNames {
			if found&(1<<i) == 0 {
				return missing(names[short])
			}
		}
	}
	return nil
}

// sendLetter returns the short form of a field's name, 0 for an unknown one.
func sendLetter(name []byte, short bool) byte {
	if short {
		if len(name) != 1 {
			return 0
		}
		return name[0]
	}
	switch string(name) {
	case "producerGroup":
		return 'a'
	case "topic":
		return 'b'
	case "defaultTopic":
		return 'c'
	case "defaultTopicQueueNums":
		return 'd'
	case "queueId":
		return 'e'
	case "sysFlag":
		return 'f'
	case "bornTimestamp":
		return 'g'
	case "flag":
		return 'h'
	case "properties":
		return 'i'
	case "reconsumeTimes":
		return 'j'
	case "unitMode":
		return 'k'
	case "maxReconsumeTimes":
		return 'l'
	case "batch":
		return 'm'
	case "bname":
		return 'n'
	}
	return 0
}

// set stores one field and returns its bit, 0 for an optional one.
func (r *SendRequest) set(letter byte, value, name []byte) (bit int, refused error) {
	var err *remoting.Error
	switch letter {
	case 'a':
		r.Group = value
	case 'b':
		r.Topic, bit = value, sendTopic
	case 'c':
		r.DefaultTopic = value
	case 'd':
		err = parseInt32(name, value, &r.DefaultTopicQueues)
	case 'e':
		bit, err = sendQueueID, parseInt32(name, value, &r.QueueID)
	case 'f':
		bit, err = sendSysFlag, parseInt32(name, value, &r.SysFlag)
	case 'g':
		bit, err = sendBornMS, parseInt64(name, value, &r.BornMS)
	case 'h':
		bit, err = sendFlag, parseInt32(name, value, &r.Flag)
	case 'i':
		r.Properties = value
	case 'j':
		err = parseInt32(name, value, &r.ReconsumeTimes)
	case 'k':
		r.UnitMode = parseBool(value)
	case 'l':
		err = parseInt32(name, value, &r.MaxReconsumeTimes)
	case 'm':
		r.Batch = parseBool(value)
	case 'n':
		r.BrokerName = value
	}
	if err != nil {
		return 0, err
	}
	return bit, nil
}

// AppendFields writes the short names, for codes 310, 320 and 325.
func (r *SendRequest) AppendFields(e *remoting.Encoder) {
	e.Bytes("a", r.Group)
	e.Bytes("b", r.Topic)
	e.Bytes("c", r.DefaultTopic)
	e.Int("d", int64(r.DefaultTopicQueues))
	e.Int("e", int64(r.QueueID))
	e.Int("f", int64(r.SysFlag))
	e.Int("g", r.BornMS)
	e.Int("h", int64(r.Flag))
	optBytes(e, "i", r.Properties)
	e.Int("j", int64(r.ReconsumeTimes))
	e.Bool("k", r.UnitMode)
	optInt(e, "l", int64(r.MaxReconsumeTimes))
	e.Bool("m", r.Batch)
	optBytes(e, "n", r.BrokerName)
}

// AppendFieldsV1 writes the long names, for codes 10 and 324.
func (r *SendRequest) AppendFieldsV1(e *remoting.Encoder) {
	e.Bytes("producerGroup", r.Group)
	e.Bytes("topic", r.Topic)
	e.Bytes("defaultTopic", r.DefaultTopic)
	e.Int("defaultTopicQueueNums", int64(r.DefaultTopicQueues))
	e.Int("queueId", int64(r.QueueID))
	e.Int("sysFlag", int64(r.SysFlag))
	e.Int("bornTimestamp", r.BornMS)
	e.Int("flag", int64(r.Flag))
	optBytes(e, "properties", r.Properties)
	e.Int("reconsumeTimes", int64(r.ReconsumeTimes))
	e.Bool("unitMode", r.UnitMode)
	optInt(e, "maxReconsumeTimes", int64(r.MaxReconsumeTimes))
	e.Bool("batch", r.Batch)
	optBytes(e, "bname", r.BrokerName)
}

// SendResponse is the header of the answer to all sends (SendMessageResponseHeader and two fields
// that RocketMQ adds beside it). Codes 0, 10, 11 and 12 need MsgID, QueueID and QueueOffset.
// Refusals after the first checks carry only Region and TraceOn: set NoMessage.
type SendResponse struct {
	MsgID         []byte // offset ids, joined by commas for a batch
	TransactionID []byte // UNIQ_KEY; nil: absent
	QueueID       int32
	QueueOffset   int64  // of the first message of a batch
	Region        string // "": neither Region nor TraceOn is written
	TraceOn       bool
	BatchUniqID   []byte // nil: absent
	RecallHandle  []byte // nil: absent
	NoMessage     bool   // nothing was stored: no id, queue and offset
}

// AppendFields writes the fields without allocating.
func (r *SendResponse) AppendFields(e *remoting.Encoder) {
	if r.Region != "" {
		e.String("MSG_REGION", r.Region)
		e.Bool("TRACE_ON", r.TraceOn)
	}
	if r.NoMessage {
		return
	}
	e.Bytes("msgId", r.MsgID)
	e.Int("queueId", int64(r.QueueID))
	e.Int("queueOffset", r.QueueOffset)
	optBytes(e, "transactionId", r.TransactionID)
	optBytes(e, "batchUniqId", r.BatchUniqID)
	optBytes(e, "recallHandle", r.RecallHandle)
}

// Decode reads the fields; the slices are borrowed from c. An answer without msgId sets NoMessage.
func (r *SendResponse) Decode(c *remoting.Command) error {
	*r = SendResponse{TraceOn: true, NoMessage: true}
	for _, f := range c.Fields {
		var err *remoting.Error
		switch string(f.Name) {
		case "msgId":
			r.MsgID, r.NoMessage = f.Value, false
		case "queueId":
			err = parseInt32("queueId", f.Value, &r.QueueID)
		case "queueOffset":
			err = parseInt64("queueOffset", f.Value, &r.QueueOffset)
		case "transactionId":
			r.TransactionID = f.Value
		case "batchUniqId":
			r.BatchUniqID = f.Value
		case "recallHandle":
			r.RecallHandle = f.Value
		case "MSG_REGION":
			r.Region = regionText(f.Value)
		case "TRACE_ON":
			r.TraceOn = parseBool(f.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// regionText avoids a copy for the region that nearly every broker has.
func regionText(value []byte) string {
	if string(value) == DefaultRegion {
		return DefaultRegion
	}
	return string(value)
}

// DefaultRegion is the region of a broker that has none configured.
const DefaultRegion = "DefaultRegion"
