// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// shape says which types the frames of a request code have. Each function returns a fresh value;
// nil means that there is nothing to decode.
type shape struct {
	request, response         func() header
	requestBody, responseBody func() any
}

// h returns a function that makes a header.
func h[T any, P interface {
	*T
	header
}]() func() header {
	return func() header { return P(new(T)) }
}

func b[T any]() func() any { return func() any { return new(T) } }

// page adapts PageRequest, whose field names depend on the code.
type page struct {
	protocol.PageRequest

	code remoting.RequestCode
}

func (p *page) AppendFields(e *remoting.Encoder) { p.Header(p.code).AppendFields(e) }

// oldSend adapts SendRequest to the long names.
type oldSend struct{ protocol.SendRequest }

func (s *oldSend) AppendFields(e *remoting.Encoder) { s.AppendFieldsV1(e) }

func paged(code remoting.RequestCode) func() header {
	return func() header { return &page{code: code} }
}

// shapes is one table, hence its length.
func shapes() map[remoting.RequestCode]shape {
	send := shape{request: h[protocol.SendRequest](), response: h[protocol.SendResponse]()}
	sendOld := shape{request: h[oldSend](), response: h[protocol.SendResponse]()}
	pull := shape{request: h[protocol.PullRequest](), response: h[protocol.PullResponse]()}
	user := h[protocol.UserRequest]()
	acl := h[protocol.ACLRequest]()
	return map[remoting.RequestCode]shape{
		remoting.SendMessage: sendOld, remoting.SendReplyMessage: sendOld,
		remoting.SendMessageV2: send, remoting.SendBatchMessage: send,
		remoting.SendReplyMessageV2: send,
		remoting.PullMessage:        pull, remoting.LitePullMessage: pull,
		remoting.QueryMessage: {
			request:  h[protocol.QueryMessageRequest](),
			response: h[protocol.QueryMessageResponse](),
		},
		remoting.QueryConsumerOffset: {
			request:  h[protocol.QueryConsumerOffsetRequest](),
			response: h[protocol.OffsetResponse](),
		},
		remoting.UpdateConsumerOffset: {request: h[protocol.UpdateConsumerOffsetRequest]()},
		remoting.UpdateAndCreateTopic: {request: h[protocol.CreateTopicRequest]()},
		remoting.GetAllTopicConfig: {
			request: paged(remoting.GetAllTopicConfig), response: h[protocol.TotalTopicsResponse](),
			responseBody: b[protocol.TopicConfigWrapper](),
		},
		remoting.GetBrokerConfig:      {response: h[protocol.BrokerConfigResponse]()},
		remoting.GetBrokerRuntimeInfo: {responseBody: b[protocol.KVTable]()},
		remoting.SearchOffsetByTimestamp: {
			request: h[protocol.SearchOffsetRequest](), response: h[protocol.OffsetResponse](),
		},
		remoting.GetMaxOffset: {
			request: h[protocol.MaxOffsetRequest](), response: h[protocol.OffsetResponse](),
		},
		remoting.GetMinOffset: {
			request: h[protocol.MinOffsetRequest](), response: h[protocol.OffsetResponse](),
		},
		remoting.GetEarliestMsgStoreTime: {
			request:  h[protocol.EarliestStoreTimeRequest](),
			response: h[protocol.EarliestStoreTimeResponse](),
		},
		remoting.ViewMessageByID: {request: h[protocol.ViewMessageRequest]()},
		remoting.HeartBeat: {
			response: h[protocol.HeartbeatResponse](), requestBody: b[protocol.HeartbeatData](),
		},
		remoting.UnregisterClient:    {request: h[protocol.UnregisterClientRequest]()},
		remoting.ConsumerSendMsgBack: {request: h[protocol.ConsumerSendBackRequest]()},
		remoting.EndTransaction:      {request: h[protocol.EndTransactionRequest]()},
		remoting.GetConsumerListByGroup: {
			request:      h[protocol.ConsumerListRequest](),
			responseBody: b[protocol.ConsumerList](),
		},
		remoting.CheckTransactionState:    {request: h[protocol.CheckTransactionStateRequest]()},
		remoting.NotifyConsumerIDsChanged: {request: h[protocol.NotifyConsumerIDsChangedRequest]()},
		remoting.LockBatchMQ: {
			requestBody:  b[protocol.LockBatchRequest](),
			responseBody: b[protocol.LockBatchResponse](),
		},
		remoting.UnlockBatchMQ:        {requestBody: b[protocol.UnlockBatchRequest]()},
		remoting.GetAllConsumerOffset: {responseBody: b[protocol.ConsumerOffsetWrapper]()},
		remoting.GetAllDelayOffset:    {responseBody: b[protocol.DelayOffsetWrapper]()},
		remoting.CheckClientConfig:    {requestBody: b[protocol.CheckClientRequest]()},
		remoting.GetTimerMetrics:      {responseBody: b[protocol.TimerMetrics]()},
		remoting.PutKVConfig:          {request: h[protocol.PutKVConfigRequest]()},
		remoting.GetKVConfig: {
			request: h[protocol.GetKVConfigRequest](), response: h[protocol.GetKVConfigResponse](),
		},
		remoting.DeleteKVConfig: {request: h[protocol.DeleteKVConfigRequest]()},
		remoting.RegisterBroker: {
			request:     h[protocol.RegisterBrokerRequest](),
			response:    h[protocol.RegisterBrokerResponse](),
			requestBody: b[protocol.RegisterBrokerBody](), responseBody: b[protocol.KVTable](),
		},
		remoting.UnregisterBroker: {request: h[protocol.UnregisterBrokerRequest]()},
		remoting.GetRouteInfoByTopic: {
			request: h[protocol.RouteRequest](), responseBody: b[protocol.TopicRouteData](),
		},
		remoting.GetBrokerClusterInfo: {responseBody: b[protocol.ClusterInfo]()},
		remoting.UpdateAndCreateSubscriptionGroup: {
			requestBody: b[protocol.SubscriptionGroupConfig](),
		},
		remoting.GetAllSubscriptionGroupConfig: {
			request:      paged(remoting.GetAllSubscriptionGroupConfig),
			response:     h[protocol.TotalGroupsResponse](),
			responseBody: b[protocol.SubscriptionGroupWrapper](),
		},
		remoting.GetTopicStatsInfo: {
			request: h[protocol.TopicRequest](), responseBody: b[protocol.TopicStatsTable](),
		},
		remoting.GetConsumerConnectionList: {
			request:      h[protocol.ConsumerConnectionRequest](),
			responseBody: b[protocol.ConsumerConnection](),
		},
		remoting.GetProducerConnectionList: {
			request:      h[protocol.ProducerConnectionRequest](),
			responseBody: b[protocol.ProducerConnection](),
		},
		remoting.WipeWritePermOfBroker: {
			request: h[protocol.BrokerNameRequest](), response: h[protocol.WipeWritePermResponse](),
		},
		remoting.GetAllTopicListFromNameServer: {responseBody: b[protocol.TopicList]()},
		remoting.DeleteSubscriptionGroup:       {request: h[protocol.DeleteGroupRequest]()},
		remoting.GetConsumeStats: {
			request: h[protocol.ConsumeStatsRequest](), responseBody: b[protocol.ConsumeStats](),
		},
		remoting.DeleteTopicInBroker:  {request: h[protocol.DeleteTopicRequest]()},
		remoting.DeleteTopicInNamesrv: {request: h[protocol.DeleteTopicInNamesrvRequest]()},
		remoting.GetConsumerStatusFromClient: {
			request:      h[protocol.ConsumerStatusRequest](),
			responseBody: b[protocol.ConsumerStatusBody](),
		},
		remoting.InvokeBrokerToResetOffset: {
			request: h[protocol.ResetOffsetRequest](), responseBody: b[protocol.ResetOffsetBody](),
		},
		remoting.InvokeBrokerToGetConsumerStatus: {
			request:      h[protocol.ConsumerStatusRequest](),
			responseBody: b[protocol.ConsumerStatusBody](),
		},
		remoting.QueryTopicConsumeByWho: {
			request: h[protocol.TopicRequest](), responseBody: b[protocol.GroupList](),
		},
		remoting.QueryConsumeTimeSpan: {
			request:      h[protocol.ConsumeTimeSpanRequest](),
			responseBody: b[protocol.ConsumeTimeSpanBody](),
		},
		remoting.GetSystemTopicListFromBroker: {responseBody: b[protocol.TopicList]()},
		remoting.GetConsumerRunningInfo: {
			request:      h[protocol.ConsumerRunningInfoRequest](),
			responseBody: b[protocol.ConsumerRunningInfo](),
		},
		remoting.ConsumeMessageDirectly: {
			request:      h[protocol.ConsumeDirectlyRequest](),
			responseBody: b[protocol.ConsumeMessageDirectlyResult](),
		},
		remoting.ViewBrokerStatsData: {
			request: h[protocol.BrokerStatsRequest](), responseBody: b[protocol.BrokerStatsData](),
		},
		remoting.GetBrokerConsumeStats: {
			request:      h[protocol.BrokerConsumeStatsRequest](),
			responseBody: b[protocol.ConsumeStatsList](),
		},
		remoting.QueryConsumeQueue: {
			request:      h[protocol.QueryConsumeQueueRequest](),
			responseBody: b[protocol.QueryConsumeQueueBody](),
		},
		remoting.QueryDataVersion: {
			request: h[protocol.QueryDataVersionRequest](), requestBody: b[protocol.DataVersion](),
		},
		remoting.PushReplyMessageToClient: {request: h[protocol.ReplyPush]()},
		remoting.AddWritePermOfBroker: {
			request: h[protocol.BrokerNameRequest](), response: h[protocol.AddWritePermResponse](),
		},
		remoting.GetAllProducerInfo: {responseBody: b[protocol.ProducerTableInfo]()},
		remoting.QueryTopicsByConsumer: {
			request: h[protocol.GroupRequest](), responseBody: b[protocol.TopicList](),
		},
		remoting.GetTopicConfig: {
			request:      h[protocol.TopicConfigRequest](),
			responseBody: b[protocol.TopicConfigAndMapping](),
		},
		remoting.CheckRocksDBCQWriteProgress: {
			request:      h[protocol.CheckRocksDBProgressRequest](),
			responseBody: b[protocol.CheckRocksDBProgressBody](),
		},
		remoting.RecallMessage: {
			request:  h[protocol.RecallMessageRequest](),
			response: h[protocol.RecallMessageResponse](),
		},
		remoting.QueryAssignment: {
			requestBody:  b[protocol.QueryAssignmentRequest](),
			responseBody: b[protocol.QueryAssignmentResponse](),
		},
		remoting.SetMessageRequestMode: {requestBody: b[protocol.MessageRequestModeBody]()},
		remoting.GetAllMessageRequestMode: {
			responseBody: b[protocol.MessageRequestModeWrapper](),
		},
		remoting.GetBrokerMemberGroup: {
			request:      h[protocol.BrokerMemberGroupRequest](),
			responseBody: b[protocol.BrokerMemberGroupBody](),
		},
		remoting.GetBrokerHAStatus:    {responseBody: b[protocol.HARuntimeInfo]()},
		remoting.SetCommitLogReadMode: {request: h[protocol.ReadModeRequest]()},
		remoting.SwitchTimerEngine:    {request: h[protocol.TimerEngineRequest]()},
		remoting.AuthCreateUser:       {request: user, requestBody: b[protocol.UserInfo]()},
		remoting.AuthUpdateUser:       {request: user, requestBody: b[protocol.UserInfo]()},
		remoting.AuthDeleteUser:       {request: user},
		remoting.AuthGetUser:          {request: user, responseBody: b[protocol.UserInfo]()},
		remoting.AuthListUser: {
			request: h[protocol.ListUsersRequest](), responseBody: b[[]protocol.UserInfo](),
		},
		remoting.AuthCreateACL: {request: acl, requestBody: b[protocol.ACLInfo]()},
		remoting.AuthUpdateACL: {request: acl, requestBody: b[protocol.ACLInfo]()},
		remoting.AuthDeleteACL: {request: acl},
		remoting.AuthGetACL:    {request: acl, responseBody: b[protocol.ACLInfo]()},
		remoting.AuthListACL: {
			request: h[protocol.ListACLsRequest](), responseBody: b[[]protocol.ACLInfo](),
		},
		remoting.PopMessage: {request: h[protocol.PopRequest](), response: h[protocol.PopResponse]()},
		remoting.AckMessage: {request: h[protocol.AckRequest]()},
		remoting.ChangeMessageInvisibleTime: {
			request:  h[protocol.ChangeInvisibleRequest](),
			response: h[protocol.ChangeInvisibleResponse](),
		},
		remoting.PeekMessage: {request: h[protocol.PeekRequest]()},
		remoting.Notification: {
			request:  h[protocol.NotificationRequest](),
			response: h[protocol.NotificationResponse](),
		},
		remoting.PollingInfo: {
			request: h[protocol.PollingInfoRequest](), response: h[protocol.PollingInfoResponse](),
		},
		remoting.GetKVListByNamespace: {
			request: h[protocol.KVListRequest](), responseBody: b[protocol.KVTable](),
		},
		remoting.GetTopicsByCluster: {
			request: h[protocol.ClusterTopicsRequest](), responseBody: b[protocol.TopicList](),
		},
		remoting.BrokerHeartbeat: {request: h[protocol.BrokerHeartbeatRequest]()},
		remoting.BatchAckMessage: {requestBody: b[protocol.BatchAckBody]()},
	}
}
