// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// RouteRequest is the header of GetRouteInfoByTopic.
type RouteRequest struct {
	Topic                  string
	AcceptStandardJSONOnly bool
}

// Decode reads the fields.
func (h *RouteRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = RouteRequest{
		Topic: r.text("topic"), AcceptStandardJSONOnly: r.bool("acceptStandardJsonOnly"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *RouteRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	if h.AcceptStandardJSONOnly {
		e.Bool("acceptStandardJsonOnly", true)
	}
}

// VersionV494 is the first version whose route answers are standard JSON.
const VersionV494 = 401

// StandardRoute reports whether the sender of a route request gets standard JSON.
func (h *RouteRequest) StandardRoute(version int32) bool {
	return h.AcceptStandardJSONOnly || version >= VersionV494
}

// PutKVConfigRequest is the header of PutKVConfig.
type PutKVConfigRequest struct{ Namespace, Key, Value string }

// Decode reads the fields.
func (h *PutKVConfigRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = PutKVConfigRequest{
		Namespace: r.text("namespace"), Key: r.text("key"), Value: r.text("value"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *PutKVConfigRequest) AppendFields(e *remoting.Encoder) {
	e.String("namespace", h.Namespace)
	e.String("key", h.Key)
	e.String("value", h.Value)
}

// GetKVConfigRequest is the header of GetKVConfig.
type GetKVConfigRequest struct{ Namespace, Key string }

// Decode reads the fields.
func (h *GetKVConfigRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = GetKVConfigRequest{Namespace: r.text("namespace"), Key: r.text("key")}
	return r.result()
}

// AppendFields writes the fields.
func (h *GetKVConfigRequest) AppendFields(e *remoting.Encoder) {
	e.String("namespace", h.Namespace)
	e.String("key", h.Key)
}

// DeleteKVConfigRequest is the header of DeleteKVConfig.
type DeleteKVConfigRequest = GetKVConfigRequest

// GetKVConfigResponse is the header of the answer to GetKVConfig.
type GetKVConfigResponse struct{ Value string }

// Decode reads the field.
func (h *GetKVConfigResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Value = r.text("value")
	return r.result()
}

// AppendFields writes the field.
func (h *GetKVConfigResponse) AppendFields(e *remoting.Encoder) { e.String("value", h.Value) }

// KVListRequest is the header of GetKVListByNamespace.
type KVListRequest struct{ Namespace string }

// Decode reads the field.
func (h *KVListRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Namespace = r.text("namespace")
	return r.result()
}

// AppendFields writes the field.
func (h *KVListRequest) AppendFields(e *remoting.Encoder) { e.String("namespace", h.Namespace) }

// BrokerNameRequest is the header of WipeWritePermOfBroker and AddWritePermOfBroker.
type BrokerNameRequest struct{ BrokerName string }

// Decode reads the field.
func (h *BrokerNameRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.BrokerName = r.text("brokerName")
	return r.result()
}

// AppendFields writes the field.
func (h *BrokerNameRequest) AppendFields(e *remoting.Encoder) {
	e.String("brokerName", h.BrokerName)
}

// WipeWritePermResponse is the header of the answer to WipeWritePermOfBroker.
type WipeWritePermResponse struct{ WipeTopicCount int32 }

// Decode reads the field.
func (h *WipeWritePermResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.WipeTopicCount = r.int32("wipeTopicCount")
	return r.result()
}

// AppendFields writes the field.
func (h *WipeWritePermResponse) AppendFields(e *remoting.Encoder) {
	e.Int("wipeTopicCount", int64(h.WipeTopicCount))
}

// AddWritePermResponse is the header of the answer to AddWritePermOfBroker.
type AddWritePermResponse struct{ AddTopicCount int32 }

// Decode reads the field.
func (h *AddWritePermResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.AddTopicCount = r.int32("addTopicCount")
	return r.result()
}

// AppendFields writes the field.
func (h *AddWritePermResponse) AppendFields(e *remoting.Encoder) {
	e.Int("addTopicCount", int64(h.AddTopicCount))
}

// ClusterTopicsRequest is the header of GetTopicsByCluster.
type ClusterTopicsRequest struct{ Cluster string }

// Decode reads the field.
func (h *ClusterTopicsRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Cluster = r.text("cluster")
	return r.result()
}

// AppendFields writes the field.
func (h *ClusterTopicsRequest) AppendFields(e *remoting.Encoder) { e.String("cluster", h.Cluster) }

// BrokerMemberGroupRequest is the header of GetBrokerMemberGroup.
type BrokerMemberGroupRequest struct{ ClusterName, BrokerName string }

// Decode reads the fields.
func (h *BrokerMemberGroupRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = BrokerMemberGroupRequest{
		ClusterName: r.text("clusterName"), BrokerName: r.text("brokerName"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *BrokerMemberGroupRequest) AppendFields(e *remoting.Encoder) {
	e.String("clusterName", h.ClusterName)
	e.String("brokerName", h.BrokerName)
}

// DeleteTopicInNamesrvRequest is the header of DeleteTopicInNamesrv.
type DeleteTopicInNamesrvRequest struct {
	Topic       string
	ClusterName string // "": everywhere
}

// Decode reads the fields.
func (h *DeleteTopicInNamesrvRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = DeleteTopicInNamesrvRequest{Topic: r.text("topic"), ClusterName: r.optText("clusterName")}
	return r.result()
}

// AppendFields writes the fields.
func (h *DeleteTopicInNamesrvRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	optString(e, "clusterName", h.ClusterName)
}
