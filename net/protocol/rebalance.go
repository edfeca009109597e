// SPDX-License-Identifier: Apache-2.0

package protocol

// LockBatchRequest is the body of LockBatchMQ.
type LockBatchRequest struct {
	ClientID       string         `json:"clientId,omitempty"`
	ConsumerGroup  string         `json:"consumerGroup,omitempty"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"` // strict locking asks other brokers
}

// UnlockBatchRequest is the body of UnlockBatchMQ, the same as LockBatchRequest.
type UnlockBatchRequest = LockBatchRequest

// LockBatchResponse is the answer to LockBatchMQ.
type LockBatchResponse struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// MessageRequestMode says how a group asks for the messages of a topic.
type MessageRequestMode string

// The request modes.
const (
	RequestModePull MessageRequestMode = "PULL"
	RequestModePop  MessageRequestMode = "POP"
)

func (MessageRequestMode) ordinals() []string { return []string{"PULL", "POP"} }

// QueryAssignmentRequest is the body of QueryAssignment.
type QueryAssignmentRequest struct {
	ClientID      string       `json:"clientId,omitempty"`
	ConsumerGroup string       `json:"consumerGroup,omitempty"`
	MessageModel  MessageModel `json:"messageModel,omitempty"`
	StrategyName  string       `json:"strategyName,omitempty"` // AVG, AVG_BY_CIRCLE
	Topic         string       `json:"topic,omitempty"`
}

// QueryAssignmentResponse is the answer to it. nil means no change, empty means release all.
type QueryAssignmentResponse struct {
	MessageQueueAssignments []MessageQueueAssignment `json:"messageQueueAssignments"`
}

// MessageQueueAssignment is one queue; QueueID -1 stands for all of a broker in pop mode.
type MessageQueueAssignment struct {
	Attachments  map[string]string  `json:"attachments"`
	MessageQueue *MessageQueue      `json:"messageQueue"`
	Mode         MessageRequestMode `json:"mode,omitempty"`
}

// MessageRequestModeBody is the body of SetMessageRequestMode.
type MessageRequestModeBody struct {
	ConsumerGroup    string             `json:"consumerGroup,omitempty"`
	Mode             MessageRequestMode `json:"mode,omitempty"`
	PopShareQueueNum int32              `json:"popShareQueueNum"`
	Topic            string             `json:"topic,omitempty"`
}

func (b *MessageRequestModeBody) setDefaults() { b.Mode = RequestModePull }

// MessageRequestModeWrapper is the body of GetAllMessageRequestMode: topic, group, mode.
type MessageRequestModeWrapper struct {
	MessageRequestModeMap map[string]map[string]*MessageRequestModeBody `json:"messageRequestModeMap"`
}

// BatchAckBody is the body of BatchAckMessage.
type BatchAckBody struct {
	Acks       []BatchAck `json:"acks"`
	BrokerName string     `json:"brokerName,omitempty"`
}

// BatchAck acknowledges messages that were popped together from one queue.
type BatchAck struct {
	// BitSet is little-endian: bit i stands for StartOffset+i.
	BitSet        []byte `json:"b" also:"bitSet"`
	ConsumerGroup string `json:"c" also:"consumerGroup"`
	InvisibleTime int64  `json:"it" also:"invisibleTime"`
	PopTime       int64  `json:"pt" also:"popTime"`
	QueueID       int32  `json:"q" also:"queueId"`
	Retry         string `json:"r" also:"retry"`
	ReviveQueueID int32  `json:"rq" also:"reviveQueueId"`
	StartOffset   int64  `json:"so" also:"startOffset"`
	Topic         string `json:"t" also:"topic"`
}
