// SPDX-License-Identifier: Apache-2.0

package protocol

import "github.com/skylarkmq/skylark/net/remoting"

// BrokerConfigResponse is the header of the answer to GetBrokerConfig.
type BrokerConfigResponse struct{ Version string } // JSON of a DataVersion

// Decode reads the field.
func (h *BrokerConfigResponse) Decode(c *remoting.Command) error {
	h.Version = fieldsOf(c).optText("version")
	return nil
}

// AppendFields writes the field.
func (h *BrokerConfigResponse) AppendFields(e *remoting.Encoder) { e.String("version", h.Version) }

// ExchangeHAInfoRequest is the header of ExchangeBrokerHAInfo and of its answer. Without any field
// a master is asked for its own.
type ExchangeHAInfoRequest struct {
	MasterHAAddress   string
	MasterFlushOffset int64 // -1: absent
	MasterAddress     string
}

// Decode reads the fields.
func (h *ExchangeHAInfoRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ExchangeHAInfoRequest{
		MasterHAAddress:   r.optText("masterHaAddress"),
		MasterFlushOffset: r.optInt64("masterFlushOffset", -1),
		MasterAddress:     r.optText("masterAddress"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ExchangeHAInfoRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "masterHaAddress", h.MasterHAAddress)
	optInt(e, "masterFlushOffset", h.MasterFlushOffset)
	optString(e, "masterAddress", h.MasterAddress)
}

// ExchangeHAInfoResponse is the header of the answer to ExchangeBrokerHAInfo.
type ExchangeHAInfoResponse = ExchangeHAInfoRequest

// ResetMasterFlushOffsetRequest is the header of ResetMasterFlushOffset.
type ResetMasterFlushOffsetRequest struct{ MasterFlushOffset int64 }

// Decode reads the field.
func (h *ResetMasterFlushOffsetRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.MasterFlushOffset = r.int64("masterFlushOffset")
	return r.result()
}

// AppendFields writes the field.
func (h *ResetMasterFlushOffsetRequest) AppendFields(e *remoting.Encoder) {
	e.Int("masterFlushOffset", h.MasterFlushOffset)
}

// CheckRocksDBProgressRequest is the header of CheckRocksDBCQWriteProgress.
type CheckRocksDBProgressRequest struct {
	Topic        string
	CheckStoreMS int64
}

// Decode reads the fields.
func (h *CheckRocksDBProgressRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = CheckRocksDBProgressRequest{
		Topic: r.optText("topic"), CheckStoreMS: r.optInt64("checkStoreTime", 0),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *CheckRocksDBProgressRequest) AppendFields(e *remoting.Encoder) {
	e.String("topic", h.Topic)
	e.Int("checkStoreTime", h.CheckStoreMS)
}

// CheckRocksDBProgressBody is the answer: 0 equal, 1 not equal, 2 in progress, 3 error.
type CheckRocksDBProgressBody struct {
	CheckResult string `json:"checkResult,omitempty"`
	CheckStatus int32  `json:"checkStatus"`
}

// ReadModeRequest is the header of SetCommitLogReadMode.
type ReadModeRequest struct {
	Mode    int32 // 0 normal, 1 random
	HasMode bool
}

// Decode reads the field.
func (h *ReadModeRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ReadModeRequest{Mode: r.optInt32("READ_AHEAD_MODE", 0), HasMode: r.has("READ_AHEAD_MODE")}
	return r.result()
}

// AppendFields writes the field.
func (h *ReadModeRequest) AppendFields(e *remoting.Encoder) {
	if h.HasMode {
		e.Int("READ_AHEAD_MODE", int64(h.Mode))
	}
}

// TimerEngineRequest is the header of SwitchTimerEngine: R for RocksDB, F for the file wheel.
type TimerEngineRequest struct{ Engine string }

// Decode reads the field.
func (h *TimerEngineRequest) Decode(c *remoting.Command) error {
	h.Engine = fieldsOf(c).optText("E_T")
	return nil
}

// AppendFields writes the field.
func (h *TimerEngineRequest) AppendFields(e *remoting.Encoder) { optString(e, "E_T", h.Engine) }

// UserRequest is the header of the user codes that name one.
type UserRequest struct{ Username string }

// Decode reads the field.
func (h *UserRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	h.Username = r.text("username")
	return r.result()
}

// AppendFields writes the field.
func (h *UserRequest) AppendFields(e *remoting.Encoder) { e.String("username", h.Username) }

// ListUsersRequest is the header of AuthListUser.
type ListUsersRequest struct{ Filter string }

// Decode reads the field.
func (h *ListUsersRequest) Decode(c *remoting.Command) error {
	h.Filter = fieldsOf(c).optText("filter")
	return nil
}

// AppendFields writes the field.
func (h *ListUsersRequest) AppendFields(e *remoting.Encoder) { optString(e, "filter", h.Filter) }

// ACLRequest is the header of the ACL codes that name a subject.
type ACLRequest struct{ Subject, PolicyType, Resource string }

// Decode reads the fields; the last two may be absent.
func (h *ACLRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ACLRequest{
		Subject: r.text("subject"), PolicyType: r.optText("policyType"),
		Resource: r.optText("resource"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *ACLRequest) AppendFields(e *remoting.Encoder) {
	e.String("subject", h.Subject)
	optString(e, "policyType", h.PolicyType)
	optString(e, "resource", h.Resource)
}

// ListACLsRequest is the header of AuthListACL; both may be absent.
type ListACLsRequest struct{ SubjectFilter, ResourceFilter string }

// Decode reads the fields.
func (h *ListACLsRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = ListACLsRequest{
		SubjectFilter: r.optText("subjectFilter"), ResourceFilter: r.optText("resourceFilter"),
	}
	return nil
}

// AppendFields writes the fields.
func (h *ListACLsRequest) AppendFields(e *remoting.Encoder) {
	optString(e, "subjectFilter", h.SubjectFilter)
	optString(e, "resourceFilter", h.ResourceFilter)
}
