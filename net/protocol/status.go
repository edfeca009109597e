// SPDX-License-Identifier: Apache-2.0

package protocol

// TopicStatsTable is the body of GetTopicStatsInfo.
type TopicStatsTable struct {
	OffsetTable map[MessageQueue]TopicOffset `json:"offsetTable"`
	TopicPutTPS float64                      `json:"topicPutTps"`
}

// TopicOffset gives the bounds of a queue.
type TopicOffset struct {
	LastUpdateTimestamp int64 `json:"lastUpdateTimestamp"`
	MaxOffset           int64 `json:"maxOffset"`
	MinOffset           int64 `json:"minOffset"`
}

// ConsumeStats is the body of GetConsumeStats.
type ConsumeStats struct {
	ConsumeTPS  float64                        `json:"consumeTps"`
	OffsetTable map[MessageQueue]OffsetWrapper `json:"offsetTable"`
}

// OffsetWrapper gives a group's place in a queue.
type OffsetWrapper struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"`
	PullOffset     int64 `json:"pullOffset"`
}

// ConsumeStatsList is the body of GetBrokerConsumeStats.
type ConsumeStatsList struct {
	BrokerAddr        string                      `json:"brokerAddr,omitempty"`
	ConsumeStatsList  []map[string][]ConsumeStats `json:"consumeStatsList"`
	TotalDiff         int64                       `json:"totalDiff"`
	TotalInflightDiff int64                       `json:"totalInflightDiff"`
}

// ConsumerOffsetWrapper is the body of GetAllConsumerOffset; the key is topic@group.
type ConsumerOffsetWrapper struct {
	DataVersion     *DataVersion               `json:"dataVersion"`
	GroupTopicMap   map[string][]string        `json:"groupTopicMap"`
	OffsetTable     map[string]map[int32]int64 `json:"offsetTable"`
	PullOffsetTable map[string]map[int32]int64 `json:"pullOffsetTable"`
}

// DelayOffsetWrapper is the body of GetAllDelayOffset; the key is the delay level.
type DelayOffsetWrapper struct {
	DataVersion *DataVersion    `json:"dataVersion"`
	OffsetTable map[int32]int64 `json:"offsetTable"`
}

// ResetOffsetBody is the body of ResetConsumerClientOffset and the answer to
// InvokeBrokerToResetOffset.
type ResetOffsetBody struct {
	OffsetTable map[MessageQueue]int64 `json:"offsetTable"`
}

// ResetOffsetBodyForC is ResetOffsetBody for requests whose language is CPP.
type ResetOffsetBodyForC struct {
	OffsetTable []MessageQueueForC `json:"offsetTable"`
}

// MessageQueueForC is a queue with its offset.
type MessageQueueForC struct {
	BrokerName string `json:"brokerName"`
	Offset     int64  `json:"offset"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// ConsumerStatusBody is the answer to GetConsumerStatusFromClient, with MessageQueueTable, and to
// InvokeBrokerToGetConsumerStatus, with ConsumerTable by client id.
type ConsumerStatusBody struct {
	ConsumerTable     map[string]map[MessageQueue]int64 `json:"consumerTable"`
	MessageQueueTable map[MessageQueue]int64            `json:"messageQueueTable"`
}

// QueryCorrectionOffsetBody is the answer to QueryCorrectionOffset, by queue id.
type QueryCorrectionOffsetBody struct {
	CorrectionOffsets map[int32]int64 `json:"correctionOffsets"`
}

// ConsumeTimeSpanBody is the answer to QueryConsumeTimeSpan.
type ConsumeTimeSpanBody struct {
	ConsumeTimeSpanSet []QueueTimeSpan `json:"consumeTimeSpanSet"`
}

// QueueTimeSpan says how far behind, in time, a group is in a queue. The texts are for display, in
// the form yyyy-MM-dd#HH:mm:ss:SSS of the local zone.
type QueueTimeSpan struct {
	ConsumeTimeStamp    int64         `json:"consumeTimeStamp"`
	ConsumeTimeStampStr string        `json:"consumeTimeStampStr,omitempty"`
	DelayTime           int64         `json:"delayTime"`
	MaxTimeStamp        int64         `json:"maxTimeStamp"`
	MaxTimeStampStr     string        `json:"maxTimeStampStr,omitempty"`
	MessageQueue        *MessageQueue `json:"messageQueue"`
	MinTimeStamp        int64         `json:"minTimeStamp"`
	MinTimeStampStr     string        `json:"minTimeStampStr,omitempty"`
}

// BrokerStatsData is the answer to ViewBrokerStatsData.
type BrokerStatsData struct {
	StatsDay    BrokerStatsItem `json:"statsDay"`
	StatsHour   BrokerStatsItem `json:"statsHour"`
	StatsMinute BrokerStatsItem `json:"statsMinute"`
}

// BrokerStatsItem is one window of a statistic.
type BrokerStatsItem struct {
	AvgPT float64 `json:"avgpt"`
	Sum   int64   `json:"sum"`
	TPS   float64 `json:"tps"`
}

// QueryConsumeQueueBody is the answer to QueryConsumeQueue.
type QueryConsumeQueueBody struct {
	FilterData       string             `json:"filterData,omitempty"`
	MaxQueueIndex    int64              `json:"maxQueueIndex"`
	MinQueueIndex    int64              `json:"minQueueIndex"`
	QueueData        []ConsumeQueueData `json:"queueData"`
	SubscriptionData *SubscriptionData  `json:"subscriptionData"`
}

// ConsumeQueueData is one unit of a queue.
type ConsumeQueueData struct {
	BitMap         string `json:"bitMap,omitempty"`
	Eval           bool   `json:"eval"`
	ExtendDataJSON string `json:"extendDataJson,omitempty"`
	Msg            string `json:"msg,omitempty"`
	PhysicOffset   int64  `json:"physicOffset"`
	PhysicSize     int32  `json:"physicSize"`
	TagsCode       int64  `json:"tagsCode"`
}

// ConsumerRunningInfo is a consumer's answer to GetConsumerRunningInfo.
type ConsumerRunningInfo struct {
	Jstack           string                            `json:"jstack,omitempty"`
	MQPopTable       map[MessageQueue]PopProcessQueue  `json:"mqPopTable"`
	MQTable          map[MessageQueue]ProcessQueueInfo `json:"mqTable"`
	Properties       map[string]string                 `json:"properties"`
	StatusTable      map[string]ConsumeStatus          `json:"statusTable"`
	SubscriptionSet  []SubscriptionData                `json:"subscriptionSet"`
	UserConsumerInfo map[string]string                 `json:"userConsumerInfo"`
}

// Names in ConsumerRunningInfo.Properties that tools require.
const (
	PropNameServerAddr         = "PROP_NAMESERVER_ADDR"
	PropConsumeType            = "PROP_CONSUME_TYPE"
	PropClientVersion          = "PROP_CLIENT_VERSION"
	PropConsumerStartTimestamp = "PROP_CONSUMER_START_TIMESTAMP"
	PropThreadPoolCoreSize     = "PROP_THREADPOOL_CORE_SIZE"
	PropConsumeOrderly         = "PROP_CONSUMEORDERLY"
)

// ProcessQueueInfo is a consumer's state of one queue. "droped" is the protocol's spelling.
type ProcessQueueInfo struct {
	CachedMsgCount          int32 `json:"cachedMsgCount"`
	CachedMsgMaxOffset      int64 `json:"cachedMsgMaxOffset"`
	CachedMsgMinOffset      int64 `json:"cachedMsgMinOffset"`
	CachedMsgSizeInMiB      int32 `json:"cachedMsgSizeInMiB"`
	CommitOffset            int64 `json:"commitOffset"`
	Droped                  bool  `json:"droped" also:"dropped"`
	LastConsumeTimestamp    int64 `json:"lastConsumeTimestamp"`
	LastLockTimestamp       int64 `json:"lastLockTimestamp"`
	LastPullTimestamp       int64 `json:"lastPullTimestamp"`
	Locked                  bool  `json:"locked"`
	TransactionMsgCount     int32 `json:"transactionMsgCount"`
	TransactionMsgMaxOffset int64 `json:"transactionMsgMaxOffset"`
	TransactionMsgMinOffset int64 `json:"transactionMsgMinOffset"`
	TryUnlockTimes          int64 `json:"tryUnlockTimes"`
}

// PopProcessQueue is a pop consumer's state of one queue.
type PopProcessQueue struct {
	Droped           bool  `json:"droped" also:"dropped"`
	LastPopTimestamp int64 `json:"lastPopTimestamp"`
	WaitAckCount     int32 `json:"waitAckCount"`
}

// ConsumeStatus is a consumer's speed on one topic.
type ConsumeStatus struct {
	ConsumeFailedMsgs int64   `json:"consumeFailedMsgs"`
	ConsumeFailedTPS  float64 `json:"consumeFailedTPS"`
	ConsumeOKTPS      float64 `json:"consumeOKTPS"`
	ConsumeRT         float64 `json:"consumeRT"`
	PullRT            float64 `json:"pullRT"`
	PullTPS           float64 `json:"pullTPS"`
}

// ConsumeResult is what a consumer made of a message that it was given directly. The Go client
// sends the ordinal.
type ConsumeResult string

func (ConsumeResult) ordinals() []string {
	return []string{
		"CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION",
		"CR_RETURN_NULL",
	}
}

// ConsumeMessageDirectlyResult is a consumer's answer to ConsumeMessageDirectly.
type ConsumeMessageDirectlyResult struct {
	AutoCommit     bool          `json:"autoCommit"`
	ConsumeResult  ConsumeResult `json:"consumeResult,omitempty"`
	Order          bool          `json:"order"`
	Remark         string        `json:"remark,omitempty"`
	SpentTimeMills int64         `json:"spentTimeMills"`
}

func (r *ConsumeMessageDirectlyResult) setDefaults() { r.AutoCommit = true }

// TimerMetrics is the answer to GetTimerMetrics: waiting timer messages by topic.
type TimerMetrics struct {
	DataVersion *DataVersion           `json:"dataVersion"`
	TimingCount map[string]TimerMetric `json:"timingCount"`
}

// TimerMetric counts timer messages.
type TimerMetric struct {
	Count     int64 `json:"count"`
	TimeStamp int64 `json:"timeStamp"`
}

// HARuntimeInfo is the answer to GetBrokerHAStatus.
type HARuntimeInfo struct {
	HAClientRuntimeInfo      *HAClientRuntimeInfo `json:"haClientRuntimeInfo"`
	HAConnectionInfo         []HAConnectionInfo   `json:"haConnectionInfo"`
	InSyncSlaveNums          int32                `json:"inSyncSlaveNums"`
	Master                   bool                 `json:"master"`
	MasterCommitLogMaxOffset int64                `json:"masterCommitLogMaxOffset"`
}

// HAClientRuntimeInfo is a slave's side of replication.
type HAClientRuntimeInfo struct {
	LastReadTimestamp       int64  `json:"lastReadTimestamp"`
	LastWriteTimestamp      int64  `json:"lastWriteTimestamp"`
	MasterAddr              string `json:"masterAddr,omitempty"`
	MasterFlushOffset       int64  `json:"masterFlushOffset"`
	MaxOffset               int64  `json:"maxOffset"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}

// HAConnectionInfo is a master's side of replication to one slave.
type HAConnectionInfo struct {
	Addr                    string `json:"addr,omitempty"`
	Diff                    int64  `json:"diff"`
	InSync                  bool   `json:"inSync"`
	SlaveAckOffset          int64  `json:"slaveAckOffset"`
	TransferFromWhere       int64  `json:"transferFromWhere"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}
