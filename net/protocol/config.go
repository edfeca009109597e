// SPDX-License-Identifier: Apache-2.0

package protocol

// DataVersion is the version of a table of configuration. The order is that of StateVersion, then
// Counter, then Timestamp; equality needs all three.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
}

// Equal reports whether both are the same version.
func (v DataVersion) Equal(o DataVersion) bool { return v == o }

// Compare returns -1, 0 or 1.
func (v DataVersion) Compare(o DataVersion) int {
	for _, pair := range [][2]int64{
		{v.StateVersion, o.StateVersion}, {v.Counter, o.Counter}, {v.Timestamp, o.Timestamp},
	} {
		switch {
		case pair[0] < pair[1]:
			return -1
		case pair[0] > pair[1]:
			return 1
		}
	}
	return 0
}

// Next makes v the version of a change at nowMS.
func (v *DataVersion) Next(nowMS int64) {
	v.Counter++
	v.Timestamp = nowMS
}

// MessageQueue is one queue of a topic on one broker.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

func compareQueues(a, b MessageQueue) int {
	switch {
	case a == b:
		return 0
	case a.Topic != b.Topic && a.Topic < b.Topic,
		a.Topic == b.Topic && a.BrokerName < b.BrokerName,
		a.Topic == b.Topic && a.BrokerName == b.BrokerName && a.QueueID < b.QueueID:
		return -1
	}
	return 1
}

// TopicFilterType says whether messages of a topic may have several tags.
type TopicFilterType string

// The filter types.
const (
	SingleTag TopicFilterType = "SINGLE_TAG"
	MultiTag  TopicFilterType = "MULTI_TAG"
)

func (TopicFilterType) ordinals() []string { return []string{"SINGLE_TAG", "MULTI_TAG"} }

// TopicConfig is a topic's configuration.
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes"` // in changes the keys begin with + or -
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType TopicFilterType   `json:"topicFilterType,omitempty"`
	TopicName       string            `json:"topicName,omitempty"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// setDefaults sets what RocketMQ's TopicConfig begins with.
func (c *TopicConfig) setDefaults() {
	*c = TopicConfig{
		Perm: PermRead | PermWrite, ReadQueueNums: 16, WriteQueueNums: 16,
		TopicFilterType: SingleTag,
		Attributes:      map[string]string{},
	}
}

// TopicConfigWrapper is the body of GetAllTopicConfig and the core of RegisterBrokerBody
// (TopicConfigAndMappingSerializeWrapper). Members before 5.0 are the first and the third.
type TopicConfigWrapper struct {
	DataVersion        DataVersion                         `json:"dataVersion"`
	MappingDataVersion *DataVersion                        `json:"mappingDataVersion"`
	TopicConfigTable   map[string]*TopicConfig             `json:"topicConfigTable"`
	MappingDetails     map[string]*TopicQueueMappingDetail `json:"topicQueueMappingDetailMap"`
	MappingInfos       map[string]*TopicQueueMappingInfo   `json:"topicQueueMappingInfoMap"`
}

// TopicConfigList is the body of UpdateAndCreateTopicList.
type TopicConfigList struct {
	TopicConfigList []*TopicConfig `json:"topicConfigList"`
}

// TopicConfigAndMapping is the body of GetTopicConfig: the configuration with, for static topics
// and on demand, the mapping.
type TopicConfigAndMapping struct {
	Attributes      map[string]string        `json:"attributes"`
	MappingDetail   *TopicQueueMappingDetail `json:"mappingDetail"`
	Order           bool                     `json:"order"`
	Perm            int32                    `json:"perm"`
	ReadQueueNums   int32                    `json:"readQueueNums"`
	TopicFilterType TopicFilterType          `json:"topicFilterType,omitempty"`
	TopicName       string                   `json:"topicName,omitempty"`
	TopicSysFlag    int32                    `json:"topicSysFlag"`
	WriteQueueNums  int32                    `json:"writeQueueNums"`
}

// TopicQueueMappingInfo says which queues of a static topic a broker leads.
type TopicQueueMappingInfo struct {
	BName       string          `json:"bname,omitempty"`
	CurrIDMap   map[int32]int32 `json:"currIdMap"`
	Dirty       bool            `json:"dirty"`
	Epoch       int64           `json:"epoch"`
	Scope       string          `json:"scope,omitempty"`
	Topic       string          `json:"topic,omitempty"`
	TotalQueues int32           `json:"totalQueues"`
}

// TopicQueueMappingDetail is TopicQueueMappingInfo with the history of each queue.
type TopicQueueMappingDetail struct {
	BName        string                            `json:"bname,omitempty"`
	CurrIDMap    map[int32]int32                   `json:"currIdMap"`
	Dirty        bool                              `json:"dirty"`
	Epoch        int64                             `json:"epoch"`
	HostedQueues map[int32][]LogicQueueMappingItem `json:"hostedQueues"`
	Scope        string                            `json:"scope,omitempty"`
	Topic        string                            `json:"topic,omitempty"`
	TotalQueues  int32                             `json:"totalQueues"`
}

// LogicQueueMappingItem is one stretch of a static topic's queue on one broker.
type LogicQueueMappingItem struct {
	BName       string `json:"bname,omitempty"`
	EndOffset   int64  `json:"endOffset"`
	Gen         int32  `json:"gen"`
	LogicOffset int64  `json:"logicOffset"`
	QueueID     int32  `json:"queueId"`
	StartOffset int64  `json:"startOffset"`
	TimeOfEnd   int64  `json:"timeOfEnd"`
	TimeOfStart int64  `json:"timeOfStart"`
}

func (i *LogicQueueMappingItem) setDefaults() {
	*i = LogicQueueMappingItem{EndOffset: -1, TimeOfEnd: -1, TimeOfStart: -1}
}

// SubscriptionGroupConfig is a consumer group's configuration.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string        `json:"attributes"`
	BrokerID                       int64                    `json:"brokerId"`
	ConsumeBroadcastEnable         bool                     `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool                     `json:"consumeEnable"`
	ConsumeFromMinEnable           bool                     `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool                     `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32                    `json:"consumeTimeoutMinute"`
	GroupName                      string                   `json:"groupName,omitempty"`
	GroupRetryPolicy               *GroupRetryPolicy        `json:"groupRetryPolicy"`
	GroupSysFlag                   int32                    `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool                     `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32                    `json:"retryMaxTimes"`
	RetryQueueNums                 int32                    `json:"retryQueueNums"`
	SubscriptionDataSet            []SimpleSubscriptionData `json:"subscriptionDataSet"`
	WhichBrokerWhenConsumeSlowly   int64                    `json:"whichBrokerWhenConsumeSlowly"`
}

// SimpleSubscriptionData is a subscription fixed in a group's configuration.
type SimpleSubscriptionData struct {
	Expression     string `json:"expression,omitempty"`
	ExpressionType string `json:"expressionType,omitempty"`
	Topic          string `json:"topic,omitempty"`
	Version        int64  `json:"version"`
}

// Types of GroupRetryPolicy.
const (
	RetryPolicyExponential RetryPolicyType = "EXPONENTIAL"
	RetryPolicyCustomized  RetryPolicyType = "CUSTOMIZED"
)

// RetryPolicyType selects one of the two policies.
type RetryPolicyType string

func (RetryPolicyType) ordinals() []string { return []string{"EXPONENTIAL", "CUSTOMIZED"} }

// GroupRetryPolicy says when a message is tried again.
type GroupRetryPolicy struct {
	CustomizedRetryPolicy  *CustomizedRetryPolicy  `json:"customizedRetryPolicy"`
	ExponentialRetryPolicy *ExponentialRetryPolicy `json:"exponentialRetryPolicy"`
	Type                   RetryPolicyType         `json:"type,omitempty"`
}

// CustomizedRetryPolicy lists the delays in ms.
type CustomizedRetryPolicy struct {
	Next []int64 `json:"next"`
}

// ExponentialRetryPolicy multiplies the delay, in ms, from try to try.
type ExponentialRetryPolicy struct {
	Initial    int64 `json:"initial"`
	Max        int64 `json:"max"`
	Multiplier int64 `json:"multiplier"`
}

// DefaultSubscriptionGroup returns what a group is that nobody configured.
func DefaultSubscriptionGroup(name string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		GroupName: name, Attributes: map[string]string{},
		ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		NotifyConsumerIDsChangedEnable: true, RetryQueueNums: 1, RetryMaxTimes: 16,
		WhichBrokerWhenConsumeSlowly: 1, ConsumeTimeoutMinute: 15,
		GroupRetryPolicy: &GroupRetryPolicy{Type: RetryPolicyCustomized},
	}
}

func (c *SubscriptionGroupConfig) setDefaults() { *c = DefaultSubscriptionGroup("") }

// SubscriptionGroupWrapper is the body of GetAllSubscriptionGroupConfig.
type SubscriptionGroupWrapper struct {
	DataVersion            DataVersion                         `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32         `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]*SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// SubscriptionGroupList is the body of UpdateAndCreateSubscriptionGroupList.
type SubscriptionGroupList struct {
	GroupConfigList []*SubscriptionGroupConfig `json:"groupConfigList"`
}

// GroupForbidden is the body of UpdateAndGetGroupForbidden.
type GroupForbidden struct {
	Group    string `json:"group"`
	Readable *bool  `json:"readable"`
	Topic    string `json:"topic"`
}
