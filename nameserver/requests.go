// SPDX-License-Identifier: Apache-2.0

package nameserver

// Requests that are answered from memory: GET_ROUTEINFO_BY_TOPIC, heartbeats, lists, permissions
// and topics. As in RocketMQ's DefaultRequestProcessor and ClientRequestProcessor, but missing
// fields are named in the answer (a missing topic of a route request excepted, where clients
// expect TOPIC_NOT_EXIST).

import (
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/nameserver/route"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	// standardJSONVersion is V4_9_4, from which on clients read maps with quoted number keys.
	standardJSONVersion = 401

	unitFlag    = 1 // of topicSysFlag: a unit topic
	unitSubFlag = 2 // of topicSysFlag: subscribed across units

	faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

// answer is a flat switch over the request codes.
func (s *Server) answer(cmd *remoting.Command) answer {
	switch cmd.Request() {
	case remoting.GetRouteInfoByTopic:
		return s.routeOf(cmd)
	case remoting.QueryDataVersion:
		return s.queryDataVersion(cmd)
	case remoting.BrokerHeartbeat:
		return s.brokerHeartbeat(cmd)
	case remoting.UnregisterBroker:
		return s.unregister(cmd)
	case remoting.GetBrokerClusterInfo:
		return fastJSON(s.table.Clusters())
	case remoting.GetBrokerMemberGroup:
		return s.memberGroup(cmd)
	case remoting.GetKVConfig:
		return s.getKV(cmd)
	case remoting.GetKVListByNamespace:
		return s.listKV(cmd)
	case remoting.GetAllTopicListFromNameServer:
		if !s.settings.Load().EnableAllTopicList {
			return failed(remoting.SystemError, "disable")
		}
		return topicList(s.table.Topics(), "")
	case remoting.GetTopicsByCluster:
		return s.topicsByCluster(cmd)
	case remoting.GetUnitTopicList:
		return s.unitTopics(unitFlag, 0)
	case remoting.GetHasUnitSubTopicList:
		return s.unitTopics(unitSubFlag, 0)
	case remoting.GetHasUnitSubUnunitTopicList:
		return s.unitTopics(unitSubFlag, unitFlag)
	case remoting.GetSystemTopicListFromNS:
		return topicList(s.table.SystemTopics())
	case remoting.WipeWritePermOfBroker:
		return writePerm(cmd, "wipeTopicCount", s.table.WipeWritePerm)
	case remoting.AddWritePermOfBroker:
		return writePerm(cmd, "addTopicCount", s.table.AddWritePerm)
	case remoting.DeleteTopicInNamesrv:
		return s.deleteTopic(cmd)
	case remoting.RegisterTopicInNamesrv:
		return s.registerTopic(cmd)
	case remoting.GetNamesrvConfig:
		return answer{body: settings.Format(settings.Values(s.settings.Load()))}
	default:
		return failed(remoting.RequestCodeNotSupported, " request type %d not supported", cmd.Code)
	}
}

func (s *Server) routeOf(cmd *remoting.Command) answer {
	set := s.settings.Load()
	wait := time.Duration(set.WaitSeconds) * time.Second
	if set.NeedWait && time.Since(s.started) < wait {
		return failed(remoting.SystemError, "name server not ready")
	}
	topic, given := cmd.Fields.Get("topic")
	data, ok := s.table.Lookup(string(topic))
	if !ok {
		if !given {
			topic = []byte("null")
		}
		return failed(remoting.TopicNotExist,
			"No topic route info in name server for the topic: %s%s", topic, faq)
	}
	if set.OrderMessageEnable {
		data.OrderTopicConf, _ = s.kv.get(protocol.OrderTopicNamespace, string(topic))
	}
	zone := optional(cmd, "__ZONE_NAME")
	if strings.EqualFold(optional(cmd, "__ZONE_MODE"), "true") && strings.TrimSpace(zone) != "" {
		route.FilterZone(data, zone)
	}
	if cmd.Version >= standardJSONVersion ||
		strings.EqualFold(optional(cmd, "acceptStandardJsonOnly"), "true") {
		return answer{body: protocol.MarshalStandard(data)}
	}
	return fastJSON(data)
}

func (s *Server) queryDataVersion(cmd *remoting.Command) answer {
	v, err := required(cmd, "clusterName", "brokerAddr")
	if err != nil {
		return refused(err)
	}
	if len(cmd.Body) == 0 {
		return failed(remoting.SystemError, "the body is missing: a DataVersion")
	}
	var version protocol.DataVersion
	if err := protocol.Unmarshal(cmd.Body, &version); err != nil {
		return failed(remoting.SystemError, "the body is no DataVersion: %v", err)
	}
	stored, known, changed := s.table.QueryVersion(v[0], v[1], version, nowMS())
	a := answer{fields: []field{{"changed", strconv.FormatBool(changed)}}}
	if known {
		a.body = protocol.Marshal(&stored)
	}
	return a
}

func (s *Server) brokerHeartbeat(cmd *remoting.Command) answer {
	v, err := required(cmd, "clusterName", "brokerAddr")
	if err != nil {
		return refused(err)
	}
	s.table.Heartbeat(v[0], v[1], nowMS())
	return answer{}
}

func (s *Server) unregister(cmd *remoting.Command) answer {
	var h protocol.UnregisterBrokerRequest
	if err := h.Decode(cmd); err != nil {
		return refused(err)
	}
	s.handle(s.table.Unregister(route.Broker{
		Cluster: h.ClusterName, Name: h.BrokerName, Addr: h.BrokerAddr, ID: h.BrokerID,
	}))
	return answer{}
}

func (s *Server) memberGroup(cmd *remoting.Command) answer {
	v, err := required(cmd, "clusterName", "brokerName")
	if err != nil {
		return refused(err)
	}
	body := protocol.BrokerMemberGroupBody{BrokerMemberGroup: *s.table.Members(v[0], v[1])}
	return answer{remark: leftOver, body: protocol.MarshalFastJSON(&body)}
}

func topicList(topics []string, addr string) answer {
	return answer{body: protocol.Marshal(&protocol.TopicList{TopicList: topics, BrokerAddr: addr})}
}

func (s *Server) topicsByCluster(cmd *remoting.Command) answer {
	if !s.settings.Load().EnableTopicList {
		return failed(remoting.SystemError, "disable")
	}
	v, err := required(cmd, "cluster")
	if err != nil {
		return refused(err)
	}
	return topicList(s.table.TopicsOfCluster(v[0]), "")
}

func (s *Server) unitTopics(with, without int32) answer {
	if !s.settings.Load().EnableTopicList {
		return failed(remoting.SystemError, "disable")
	}
	return topicList(s.table.UnitTopics(with, without), "")
}

func writePerm(cmd *remoting.Command, count string, change func(string) int) answer {
	v, err := required(cmd, "brokerName")
	if err != nil {
		return refused(err)
	}
	return answer{fields: []field{{count, strconv.Itoa(change(v[0]))}}}
}

func (s *Server) deleteTopic(cmd *remoting.Command) answer {
	v, err := required(cmd, "topic")
	if err != nil {
		return refused(err)
	}
	s.table.DeleteTopic(v[0], optional(cmd, "clusterName"))
	return answer{}
}

func (s *Server) registerTopic(cmd *remoting.Command) answer {
	v, err := required(cmd, "topic")
	if err != nil {
		return refused(err)
	}
	if len(cmd.Body) == 0 {
		return failed(remoting.SystemError, "the body is missing: TopicRouteData")
	}
	var data protocol.TopicRouteData
	if err := protocol.Unmarshal(cmd.Body, &data); err != nil {
		return failed(remoting.SystemError, "the body is no TopicRouteData: %v", err)
	}
	s.table.RegisterTopic(v[0], data.QueueDatas)
	return answer{}
}
