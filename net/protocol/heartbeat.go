// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// ConsumeType says how a group gets its messages.
type ConsumeType string

// The consume types.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"  // pull
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY" // push
	ConsumePop       ConsumeType = "CONSUME_POP"
)

func (ConsumeType) ordinals() []string {
	return []string{"CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"}
}

// MessageModel says whether the members of a group share messages.
type MessageModel string

// The message models.
const (
	Broadcasting MessageModel = "BROADCASTING"
	Clustering   MessageModel = "CLUSTERING"
)

func (MessageModel) ordinals() []string { return []string{"BROADCASTING", "CLUSTERING"} }

// ConsumeFromWhere says where a new group begins.
type ConsumeFromWhere string

// The places to begin; RocketMQ has three more that it treats as ConsumeFromLastOffset.
const (
	ConsumeFromLastOffset  ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
)

func (ConsumeFromWhere) ordinals() []string {
	return []string{
		"CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
		"CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET",
		"CONSUME_FROM_TIMESTAMP",
	}
}

// HeartbeatData is the body of HeartBeat. Any part may be missing or blank; a receiver leaves such
// parts out and keeps the rest.
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint"` // 0: heartbeat of version 1
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub"` // version 2: subscriptions as before
}

// Fingerprint is what a client of version 2 sends as HeartbeatFingerprint: the hash of the body with
// neither client id nor the versions of subscriptions, so that clients with equal groups have an equal
// one (RocketMQ's HeartbeatData.computeHeartbeatFingerprint). Groups and subscriptions count in the
// order they have.
func (h *HeartbeatData) Fingerprint() int32 {
	bare := HeartbeatData{
		ConsumerDataSet: slices.Clone(h.ConsumerDataSet), ProducerDataSet: h.ProducerDataSet,
	}
	for i := range bare.ConsumerDataSet {
		subs := slices.Clone(bare.ConsumerDataSet[i].SubscriptionDataSet)
		for j := range subs {
			subs[j].SubVersion = 0
		}
		bare.ConsumerDataSet[i].SubscriptionDataSet = subs
	}
	return JavaHash(Marshal(&bare))
}

// ProducerData is one producer group of a client.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// ConsumerData is one consumer group of a client.
type ConsumerData struct {
	ConsumeFromWhere    ConsumeFromWhere   `json:"consumeFromWhere,omitempty"`
	ConsumeType         ConsumeType        `json:"consumeType,omitempty"`
	GroupName           string             `json:"groupName"`
	MessageModel        MessageModel       `json:"messageModel,omitempty"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// CheckClientRequest is the body of CheckClientConfig.
type CheckClientRequest struct {
	ClientID         string            `json:"clientId,omitempty"`
	Group            string            `json:"group,omitempty"`
	Namespace        string            `json:"namespace,omitempty"`
	SubscriptionData *SubscriptionData `json:"subscriptionData"`
}

// ConsumerList is the body of GetConsumerListByGroup.
type ConsumerList struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// Connection is one client as connection lists show it.
type Connection struct {
	ClientAddr string `json:"clientAddr,omitempty"`
	ClientID   string `json:"clientId,omitempty"`
	Language   string `json:"language,omitempty"`
	Version    int32  `json:"version"`
}

// ConsumerConnection is the body of GetConsumerConnectionList.
type ConsumerConnection struct {
	ConnectionSet     []Connection                 `json:"connectionSet"`
	ConsumeFromWhere  ConsumeFromWhere             `json:"consumeFromWhere,omitempty"`
	ConsumeType       ConsumeType                  `json:"consumeType,omitempty"`
	MessageModel      MessageModel                 `json:"messageModel,omitempty"`
	SubscriptionTable map[string]*SubscriptionData `json:"subscriptionTable"`
}

// ProducerConnection is the body of GetProducerConnectionList.
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}

// ProducerTableInfo is the body of GetAllProducerInfo.
type ProducerTableInfo struct {
	Data map[string][]ProducerInfo `json:"data"`
}

// ProducerInfo is one producer; RemoteIP begins with a slash, as Java prints addresses.
type ProducerInfo struct {
	ClientID            string `json:"clientId,omitempty"`
	Language            string `json:"language,omitempty"`
	LastUpdateTimestamp int64  `json:"lastUpdateTimestamp"`
	RemoteIP            string `json:"remoteIP,omitempty"`
	Version             int32  `json:"version"`
}

// SubscriptionByConsumer is the body of QuerySubscriptionByConsumer.
type SubscriptionByConsumer struct {
	Group            string            `json:"group,omitempty"`
	SubscriptionData *SubscriptionData `json:"subscriptionData"`
	Topic            string            `json:"topic,omitempty"`
}
