// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

var bothForms = []remoting.SerializeType{remoting.JSON, remoting.Binary}

// frame encodes a request with h as header.
func frame(
	form remoting.SerializeType, code remoting.RequestCode, fields func(*remoting.Encoder),
) []byte {
	h := remoting.NewRequest(code, 1)
	h.Serialize = form
	e := remoting.Begin(nil, h)
	fields(&e)
	return e.End(nil)[4:]
}

func decode(t *testing.T, frame []byte) *remoting.Command {
	t.Helper()
	c := new(remoting.Command)
	if err := c.Decode(frame); err != nil {
		t.Fatal(err)
	}
	return c
}

func sampleSend() protocol.SendRequest {
	return protocol.SendRequest{
		Group: []byte("pg"), Topic: []byte("Topic"), DefaultTopic: []byte("TBW102"),
		DefaultTopicQueues: 4, QueueID: -1, SysFlag: 0x301, Flag: -7, ReconsumeTimes: 2,
		MaxReconsumeTimes: 16, BornMS: 1700000000000, Properties: []byte("K\x01v\x02"),
		UnitMode: true, Batch: true, BrokerName: []byte("broker-a"),
	}
}

func samplePull() protocol.PullRequest {
	return protocol.PullRequest{
		Group: []byte("cg"), Topic: []byte("Topic"), QueueID: 3, QueueOffset: 1 << 40,
		MaxMessages: 32, SysFlag: protocol.PullSuspend | protocol.PullSubscription,
		CommitOffset: -1, SuspendMS: 15000, Subscription: []byte("a || b"),
		SubVersion: 1700000000000000000, ExpressionType: []byte("TAG"), MaxBytes: 262144,
		RequestSource: -1, BrokerName: []byte("broker-a"),
	}
}

func TestSendRequestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, form := range bothForms {
		for _, code := range []remoting.RequestCode{10, 324, 310, 320, 325} {
			want := sampleSend()
			fields := want.AppendFields
			if code == 10 || code == 324 {
				fields = want.AppendFieldsV1
			}
			var got protocol.SendRequest
			if err := got.Decode(decode(t, frame(form, code, fields))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v %v: -want +got:\n%s", form, code, diff)
			}
		}
	}
}

func TestPullRoundTrip(t *testing.T) {
	t.Parallel()
	for _, form := range bothForms {
		want := samplePull()
		var got protocol.PullRequest
		c := decode(t, frame(form, remoting.PullMessage, want.AppendFields))
		if err := got.Decode(c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: -want +got:\n%s", form, diff)
		}
		answer := protocol.PullResponse{
			SuggestBrokerID: 1, NextOffset: 2, MinOffset: 3, MaxOffset: 4, OffsetDelta: -5,
			TopicSysFlag: 0, GroupSysFlag: -1, ForbiddenType: 2,
		}
		var back protocol.PullResponse
		if err := back.Decode(decode(t, frame(form, 0, answer.AppendFields))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(answer, back); diff != "" {
			t.Errorf("%v: -want +got:\n%s", form, diff)
		}
	}
}

func TestSendResponseRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []protocol.SendResponse{
		{MsgID: []byte("id"), QueueID: 1, QueueOffset: 2, Region: "DefaultRegion", TraceOn: true},
		{
			MsgID: []byte("id,id"), TransactionID: []byte("u"), QueueID: 1, QueueOffset: 2,
			Region: "eu", BatchUniqID: []byte("b"), RecallHandle: []byte("r"),
		},
		{Region: "eu", TraceOn: true, NoMessage: true},
	} {
		var got protocol.SendResponse
		if err := got.Decode(decode(t, frame(0, 0, want.AppendFields))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// header is what every typed header of requests offers.
type header interface {
	Decode(c *remoting.Command) error
	AppendFields(e *remoting.Encoder)
}

// TestFieldErrors proves that a missing or ill-typed field is named, W7.
func TestFieldErrors(t *testing.T) {
	t.Parallel()
	send, pull := sampleSend(), samplePull()
	for _, tc := range []struct {
		code     remoting.RequestCode
		fields   func(*remoting.Encoder)
		into     header
		optional string
	}{
		{remoting.SendMessageV2, send.AppendFields, new(protocol.SendRequest), "a c d i j k l m n"},
		{
			remoting.SendMessage, send.AppendFieldsV1, new(protocol.SendRequest),
			"producerGroup defaultTopic defaultTopicQueueNums properties reconsumeTimes unitMode " +
				"maxReconsumeTimes batch bname",
		},
		{
			remoting.PullMessage, pull.AppendFields, new(protocol.PullRequest),
			"commitOffset suspendTimeoutMillis subscription subVersion expressionType maxMsgBytes bname",
		},
	} {
		c := decode(t, frame(0, tc.code, tc.fields))
		whole := append(remoting.Fields(nil), c.Fields...)
		numeric := 0
		for i, f := range whole {
			name := string(f.Name)
			optional := strings.Contains(" "+tc.optional+" ", " "+name+" ")
			c.Fields = append(append(remoting.Fields(nil), whole[:i]...), whole[i+1:]...)
			checkNamed(t, tc.into.Decode(c), name, optional)
			for _, bad := range []string{"", "x", " 1", "1.5", "99999999999999999999"} {
				c.Fields = append(remoting.Fields(nil), whole...)
				c.Fields[i].Value = []byte(bad)
				if err := tc.into.Decode(c); err != nil {
					checkNamed(t, err, name, false)
					numeric++
				}
			}
		}
		if numeric < 30 {
			t.Errorf("%v: only %d refusals of ill-typed fields", tc.code, numeric)
		}
	}
}

func checkNamed(t *testing.T, err error, name string, optional bool) {
	t.Helper()
	if optional && err == nil {
		return
	}
	var refusal *remoting.Error
	if !errors.As(err, &refusal) || refusal.Code != remoting.SystemError ||
		!strings.Contains(refusal.Remark, " "+name+" ") {
		t.Errorf("field %s: got error %v", name, err)
	}
}

func TestAllocsHeaders(t *testing.T) {
	send, pull := sampleSend(), samplePull()
	for _, form := range bothForms {
		sendFrame := frame(form, remoting.SendMessageV2, send.AppendFields)
		oldFrame := frame(form, remoting.SendMessage, send.AppendFieldsV1)
		pullFrame := frame(form, remoting.PullMessage, pull.AppendFields)
		buf := make([]byte, 0, 4096)
		var (
			c remoting.Command
			s protocol.SendRequest
			p protocol.PullRequest
		)
		got := testing.AllocsPerRun(100, func() {
			for _, f := range [][]byte{sendFrame, oldFrame} {
				if c.Decode(f) != nil || s.Decode(&c) != nil {
					t.Fatal("refused")
				}
				if protocol.RefusedOnSend(s.Topic) || protocol.IsSystemTopic(s.Topic) {
					t.Fatal("system topic")
				}
				answer := protocol.SendResponse{
					MsgID: s.Topic, TransactionID: s.Group, Region: protocol.DefaultRegion,
				}
				e := remoting.Begin(buf, c.Reply(remoting.Success))
				answer.AppendFields(&e)
				e.End(nil)
			}
			if c.Decode(pullFrame) != nil || p.Decode(&c) != nil {
				t.Fatal("refused")
			}
			answer := protocol.PullResponse{NextOffset: p.QueueOffset}
			e := remoting.Begin(buf, c.Reply(remoting.Success))
			e.Remark("FOUND")
			answer.AppendFields(&e)
			e.EndRegions(1)
		})
		if got != 0 {
			t.Errorf("%v: %v allocations, want 0", form, got)
		}
	}
}
