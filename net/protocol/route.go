// SPDX-License-Identifier: Apache-2.0

package protocol

// TopicRouteData says which brokers serve a topic; the body of GetRouteInfoByTopic and, with
// QueueDatas only, of RegisterTopicInNamesrv.
type TopicRouteData struct {
	BrokerDatas       []BrokerData                      `json:"brokerDatas"`
	FilterServerTable map[string][]string               `json:"filterServerTable"` // obsolete
	OrderTopicConf    string                            `json:"orderTopicConf,omitempty"`
	QueueDatas        []QueueData                       `json:"queueDatas"`
	MappingByBroker   map[string]*TopicQueueMappingInfo `json:"topicQueueMappingByBroker"`
}

// QueueData is a topic's share on one broker.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag" also:"topicSynFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// BrokerData gives the addresses of a broker name by id; id 0 is the master.
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"`
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster,omitempty"`
	EnableActingMaster bool             `json:"enableActingMaster"`
	ZoneName           string           `json:"zoneName,omitempty"`
}

// ClusterInfo is the body of GetBrokerClusterInfo.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"`
}

// BrokerMemberGroup gives the addresses of one broker name by id.
type BrokerMemberGroup struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster,omitempty"`
}

// BrokerMemberGroupBody is the body of GetBrokerMemberGroup.
type BrokerMemberGroupBody struct {
	BrokerMemberGroup BrokerMemberGroup `json:"brokerMemberGroup"`
}

// RegisterBrokerBody is the body of RegisterBroker; see DecodeRegisterBroker for its packed form.
type RegisterBrokerBody struct {
	FilterServerList []string           `json:"filterServerList"` // nil: leave as it is
	TopicConfigs     TopicConfigWrapper `json:"topicConfigSerializeWrapper"`
}

// KVTable is a table of texts: runtime info, key-value lists.
type KVTable struct {
	Table map[string]string `json:"table"`
}

// TopicList is the body of the topic list codes.
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	TopicList  []string `json:"topicList"`
}

// GroupList is the body of QueryTopicConsumeByWho.
type GroupList struct {
	GroupList []string `json:"groupList"`
}
