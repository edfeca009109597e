// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestFieldMatrix gives every typed header nothing, an object without fields, and the fields of the
// recorded frames one by one left out and ill-typed, W7. Whatever is refused names the field.
func TestFieldMatrix(t *testing.T) {
	t.Parallel()
	inputs, refused := 0, 0
	check := func(hd header, c *remoting.Command, source, name string) {
		t.Helper()
		inputs++
		err := hd.Decode(c)
		if err == nil {
			return
		}
		refused++
		var refusal *remoting.Error
		if !errors.As(err, &refusal) || refusal.Code != remoting.SystemError ||
			!strings.Contains(refusal.Remark, "the field ") ||
			!strings.Contains(refusal.Remark, " "+name) {
			t.Errorf("%s without or with odd %q: got error %v", source, name, err)
		}
	}
	known := shapes()
	for code, s := range known {
		for _, kind := range []func() header{s.request, s.response} {
			if kind == nil {
				continue
			}
			check(kind(), &remoting.Command{Code: int32(code)}, code.String(), "")
			check(kind(), &remoting.Command{Code: int32(code), HasFields: true}, code.String(), "")
		}
	}
	for _, r := range readRecorded(t) {
		kind := known[remoting.RequestCode(r.Request)].request
		if kind == nil || r.Type != "request" || isProbe(r.Source) {
			continue
		}
		c := r.command(t)
		whole := c.Fields
		for i, f := range whole {
			c.Fields = append(append(remoting.Fields(nil), whole[:i]...), whole[i+1:]...)
			check(kind(), c, r.Source, string(f.Name))
			for _, bad := range []string{"", "x", " 1", "true", "99999999999999999999", "\xff"} {
				c.Fields = append(remoting.Fields(nil), whole...)
				c.Fields[i].Value = []byte(bad)
				check(kind(), c, r.Source, string(f.Name))
			}
		}
	}
	if inputs < 500 || refused < 200 {
		t.Errorf("%d inputs, %d refused", inputs, refused)
	}
}

// TestBodyMatrix gives every body nothing and text of other shapes: an error or not, never a panic.
func TestBodyMatrix(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", "null", "{}", "[]", `""`, "0", "true", `{"":null}`, "[[]]", `[{}]`,
		"{", `{"a":`, "\x78\x9c",
		`{"dataVersion":[],"mqSet":{},"topicConfigTable":{"a":null},"offsetTable":{"x":{}}}`,
		`{"offsetTable":{{}:1},"mqTable":{"{}":{}},"mqSet":[null,{"queueId":"x"}]}`,
	}
	for code, s := range shapes() {
		for _, kind := range []func() any{s.requestBody, s.responseBody} {
			if kind == nil {
				continue
			}
			for _, text := range texts {
				err := protocol.Unmarshal([]byte(text), kind())
				if err != nil && !errors.Is(err, protocol.ErrBody) {
					t.Errorf("%v: %s: got error %v", code, text, err)
				}
				if text == "" && err == nil {
					t.Errorf("%v: no error for a missing body", code)
				}
			}
		}
	}
	for _, text := range texts {
		if _, err := protocol.DecodeRegisterBroker([]byte(text), 513); err != nil &&
			!errors.Is(err, protocol.ErrBody) {
			t.Errorf("registration %q: got error %v", text, err)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		`{"clientID":"10.0.0.9@4711","consumerDataSet":[{"groupName":"g","subscriptionDataSet":` +
			`[{"codeSet":["1"],"topic":"T","subVersion":1700000000000000000}]}]}`,
		`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:123}}`,
		`{"brokerAddrs":{0:"a",1:"b"},'brokerName':'n'/*c*/,}`,
		`{"topicConfigTable":{"T":{"perm":"6","attributes":{"message.type":"FIFO"}}}}`,
		"\x78\x9c\x03\x00\x00\x00\x00\x01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, v := range []any{
			new(protocol.HeartbeatData), new(protocol.ResetOffsetBody), new(protocol.BrokerData),
			new(protocol.RegisterBrokerBody), new(protocol.ConsumerRunningInfo),
			new(protocol.SubscriptionGroupWrapper), new(protocol.TopicRouteData),
		} {
			if protocol.Unmarshal(text, v) != nil {
				continue
			}
			for _, marshal := range []func(any) []byte{
				protocol.Marshal, protocol.MarshalStandard, protocol.MarshalFastJSON,
			} {
				if _, err := remoting.StrictJSON(nil, marshal(v)); err != nil {
					t.Errorf("%T: wrote %s, which is refused: %v", v, marshal(v), err)
				}
			}
		}
		if body, err := protocol.DecodeRegisterBroker(text, 513); err == nil {
			protocol.Marshal(body)
		}
	})
}
