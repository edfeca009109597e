// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/net/remoting"
)

// RegisterBrokerRequest is the header of RegisterBroker.
type RegisterBrokerRequest struct {
	BrokerName, BrokerAddr    string
	ClusterName, HAServerAddr string
	BrokerID                  int64
	Compressed                bool
	BodyCRC32                 int32  // BodyCRC of the body as sent; 0: not checked
	HeartbeatTimeoutMS        int64  // -1: absent, which is 120 s
	EnableActingMaster        *bool  // nil: absent, which marks a broker before 5.0
	ZoneName                  string // "": absent
}

// Decode reads the fields. HAServerAddr may be absent.
func (h *RegisterBrokerRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = RegisterBrokerRequest{
		BrokerName: r.text("brokerName"), BrokerAddr: r.text("brokerAddr"),
		ClusterName: r.text("clusterName"), HAServerAddr: r.optText("haServerAddr"),
		BrokerID: r.int64("brokerId"), Compressed: r.bool("compressed"),
		BodyCRC32:          r.optInt32("bodyCrc32", 0),
		HeartbeatTimeoutMS: r.optInt64("heartbeatTimeoutMillis", -1),
		EnableActingMaster: r.optBool("enableActingMaster"), ZoneName: r.optText("__ZONE_NAME"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *RegisterBrokerRequest) AppendFields(e *remoting.Encoder) {
	e.String("brokerName", h.BrokerName)
	e.String("brokerAddr", h.BrokerAddr)
	e.String("clusterName", h.ClusterName)
	optString(e, "haServerAddr", h.HAServerAddr)
	e.Int("brokerId", h.BrokerID)
	e.Bool("compressed", h.Compressed)
	e.Int("bodyCrc32", int64(h.BodyCRC32))
	optInt(e, "heartbeatTimeoutMillis", h.HeartbeatTimeoutMS)
	optBool(e, "enableActingMaster", h.EnableActingMaster)
	optString(e, "__ZONE_NAME", h.ZoneName)
}

// RegisterBrokerResponse is the header of the answer; a slave learns its master.
type RegisterBrokerResponse struct{ HAServerAddr, MasterAddr string }

// Decode reads the fields.
func (h *RegisterBrokerResponse) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = RegisterBrokerResponse{
		HAServerAddr: r.optText("haServerAddr"), MasterAddr: r.optText("masterAddr"),
	}
	return nil
}

// AppendFields writes the fields.
func (h *RegisterBrokerResponse) AppendFields(e *remoting.Encoder) {
	optString(e, "haServerAddr", h.HAServerAddr)
	optString(e, "masterAddr", h.MasterAddr)
}

// UnregisterBrokerRequest is the header of UnregisterBroker.
type UnregisterBrokerRequest struct {
	BrokerName, BrokerAddr, ClusterName string
	BrokerID                            int64
}

// Decode reads the fields.
func (h *UnregisterBrokerRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = UnregisterBrokerRequest{
		BrokerName: r.text("brokerName"), BrokerAddr: r.text("brokerAddr"),
		ClusterName: r.text("clusterName"), BrokerID: r.int64("brokerId"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *UnregisterBrokerRequest) AppendFields(e *remoting.Encoder) {
	e.String("brokerName", h.BrokerName)
	e.String("brokerAddr", h.BrokerAddr)
	e.String("clusterName", h.ClusterName)
	e.Int("brokerId", h.BrokerID)
}

// QueryDataVersionRequest is the header of QueryDataVersion; the body is a DataVersion.
type QueryDataVersionRequest = UnregisterBrokerRequest

// QueryDataVersionResponse is the header of the answer; the body is the known version, if any.
type QueryDataVersionResponse struct{ Changed bool }

// Decode reads the field.
func (h *QueryDataVersionResponse) Decode(c *remoting.Command) error {
	h.Changed = fieldsOf(c).bool("changed")
	return nil
}

// AppendFields writes the field.
func (h *QueryDataVersionResponse) AppendFields(e *remoting.Encoder) {
	e.Bool("changed", h.Changed)
}

// BrokerHeartbeatRequest is the header of BrokerHeartbeat; a controller needs the rest, for which
// -1 means absent.
type BrokerHeartbeatRequest struct {
	ClusterName, BrokerAddr, BrokerName string
	BrokerID                            int64
	Epoch                               int32
	MaxOffset, ConfirmOffset            int64
	HeartbeatTimeoutMS                  int64 // the wire says heartbeatTimeoutMills here
	ElectionPriority                    int32
}

// Decode reads the fields.
func (h *BrokerHeartbeatRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = BrokerHeartbeatRequest{
		ClusterName: r.text("clusterName"), BrokerAddr: r.text("brokerAddr"),
		BrokerName: r.text("brokerName"), BrokerID: r.optInt64("brokerId", -1),
		Epoch: r.optInt32("epoch", -1), MaxOffset: r.optInt64("maxOffset", -1),
		ConfirmOffset:      r.optInt64("confirmOffset", -1),
		HeartbeatTimeoutMS: r.optInt64("heartbeatTimeoutMills", -1),
		ElectionPriority:   r.optInt32("electionPriority", -1),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *BrokerHeartbeatRequest) AppendFields(e *remoting.Encoder) {
	e.String("clusterName", h.ClusterName)
	e.String("brokerAddr", h.BrokerAddr)
	e.String("brokerName", h.BrokerName)
	optInt(e, "brokerId", h.BrokerID)
	optInt(e, "epoch", int64(h.Epoch))
	optInt(e, "maxOffset", h.MaxOffset)
	optInt(e, "confirmOffset", h.ConfirmOffset)
	optInt(e, "heartbeatTimeoutMills", h.HeartbeatTimeoutMS)
	optInt(e, "electionPriority", int64(h.ElectionPriority))
}

// NotifyMinBrokerIDChangeRequest is the header of NotifyMinBrokerIDChange; all may be absent.
type NotifyMinBrokerIDChangeRequest struct {
	MinBrokerID                     int64 // -1: absent
	BrokerName, MinBrokerAddr       string
	OfflineBrokerAddr, HABrokerAddr string
}

// Decode reads the fields.
func (h *NotifyMinBrokerIDChangeRequest) Decode(c *remoting.Command) error {
	r := fieldsOf(c)
	*h = NotifyMinBrokerIDChangeRequest{
		MinBrokerID: r.optInt64("minBrokerId", -1), BrokerName: r.optText("brokerName"),
		MinBrokerAddr:     r.optText("minBrokerAddr"),
		OfflineBrokerAddr: r.optText("offlineBrokerAddr"),
		HABrokerAddr:      r.optText("haBrokerAddr"),
	}
	return r.result()
}

// AppendFields writes the fields.
func (h *NotifyMinBrokerIDChangeRequest) AppendFields(e *remoting.Encoder) {
	optInt(e, "minBrokerId", h.MinBrokerID)
	optString(e, "brokerName", h.BrokerName)
	optString(e, "minBrokerAddr", h.MinBrokerAddr)
	optString(e, "offlineBrokerAddr", h.OfflineBrokerAddr)
	optString(e, "haBrokerAddr", h.HABrokerAddr)
}

// BodyCRC returns the check sum of a body as RegisterBroker and records carry it: CRC-32 (IEEE)
// without the top bit.
func BodyCRC(body []byte) int32 { return int32(crc32.ChecksumIEEE(body) & 0x7fffffff) }

// Versions at which the body of RegisterBroker changed.
const (
	versionRegisterBody  = 37  // V3_0_11: RegisterBrokerBody instead of the wrapper alone
	versionMappingInBody = 413 // V5_0_0: the packed form ends with the mapping infos
)

// packedMax bounds the unpacked size of a packed body, in bytes.
const packedMax = 256 << 20

// DecodeRegisterBroker reads the body of a RegisterBroker request from a broker of the given
// version. No body stands for no topics. A deflated body is recognised by its first byte, whatever
// the header says: brokers with compressedRegister deflate it and still say compressed=false, which
// RocketMQ's name server refuses.
func DecodeRegisterBroker(body []byte, version int32) (*RegisterBrokerBody, error) {
	b := new(RegisterBrokerBody)
	switch {
	case len(body) == 0:
		return b, nil
	case body[0] == 0x78:
		err := b.unpack(body, version)
		return b, err
	case version < versionRegisterBody:
		err := Unmarshal(body, &b.TopicConfigs)
		return b, err
	}
	err := Unmarshal(body, b)
	return b, err
}

// unpack reads the packed form: one zlib stream of length-prefixed texts. Topics lose their system
// flag and order in it.
func (b *RegisterBrokerBody) unpack(body []byte, version int32) error {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("protocol: inflate the registration: %w: %w", ErrBody, err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, packedMax+1))
	if err != nil {
		return fmt.Errorf("protocol: inflate the registration: %w: %w", ErrBody, err)
	}
	if len(raw) > packedMax {
		return fmt.Errorf("protocol: registration over %d bytes: %w", packedMax, ErrBody)
	}
	p := packed{rest: raw}
	if err := Unmarshal(p.text(), &b.TopicConfigs.DataVersion); err != nil {
		return err
	}
	b.TopicConfigs.TopicConfigTable = map[string]*TopicConfig{}
	for n := p.count(); n > 0 && !p.short; n-- {
		topic, err := parsePackedTopic(string(p.text()))
		if err != nil {
			return err
		}
		b.TopicConfigs.TopicConfigTable[topic.TopicName] = topic
	}
	b.FilterServerList = []string{}
	if text := p.text(); len(text) > 0 {
		if err := Unmarshal(text, &b.FilterServerList); err != nil {
			return err
		}
	}
	if version >= versionMappingInBody && !p.short {
		b.TopicConfigs.MappingInfos = map[string]*TopicQueueMappingInfo{}
		for n := p.count(); n > 0 && !p.short; n-- {
			info := new(TopicQueueMappingInfo)
			if err := Unmarshal(p.text(), info); err != nil {
				return err
			}
			b.TopicConfigs.MappingInfos[info.Topic] = info
		}
	}
	if p.short {
		return fmt.Errorf("protocol: registration is cut short: %w", ErrBody)
	}
	return nil
}

// packed reads numbers and texts; short is set once something was not there.
type packed struct {
	rest  []byte
	short bool
}

func (p *packed) count() int32 {
	if len(p.rest) < 4 {
		p.short = true
		return 0
	}
	n := int32(binary.BigEndian.Uint32(p.rest))
	p.rest = p.rest[4:]
	return n
}

func (p *packed) text() []byte {
	n := p.count()
	if n < 0 || int(n) > len(p.rest) {
		p.short = true
		return nil
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}

// parsePackedTopic reads "name readQueues writeQueues perm filterType attributes", the last of
// which brokers before 5.0 leave out.
func parsePackedTopic(text string) (*TopicConfig, error) {
	words := strings.SplitN(text, " ", 6)
	if len(words) < 5 {
		return nil, fmt.Errorf("protocol: topic %.64q in the registration: %w", text, ErrBody)
	}
	c := new(TopicConfig)
	c.setDefaults()
	c.TopicName, c.TopicFilterType = words[0], TopicFilterType(words[4])
	for i, into := range []*int32{&c.ReadQueueNums, &c.WriteQueueNums, &c.Perm} {
		n, err := strconv.ParseInt(words[1+i], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("protocol: topic %.64q in the registration: %w", text, ErrBody)
		}
		*into = int32(n)
	}
	if len(words) == 6 && strings.HasPrefix(words[5], "{") {
		if err := Unmarshal([]byte(words[5]), &c.Attributes); err != nil {
			return nil, err
		}
	}
	return c, nil
}
