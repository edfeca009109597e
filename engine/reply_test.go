// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const replyTopic = "DefaultCluster_REPLY_TOPIC"

func replyRequest(to string) *protocol.SendRequest {
	props := []string{"CORRELATION_ID", "c1", "MSG_TYPE", "reply", "TTL", "5000", "UNIQ_KEY", "U1"}
	if to != "" {
		props = append(props, "REPLY_TO_CLIENT", to)
	}
	return sendRequest(replyTopic, 0, props...)
}

// longNames writes a send's header as code 324 has it.
type longNames struct{ *protocol.SendRequest }

func (h longNames) AppendFields(e *remoting.Encoder) { h.AppendFieldsV1(e) }

// requester is a client that can be sent replies: its heartbeat has been answered.
func requester(t *testing.T, addr, id string) *rawPeer {
	t.Helper()
	p := dialRaw(t, addr)
	p.request(remoting.HeartBeat, nil, heartbeat(id, "PG_REQUEST"))
	if cmd, err := p.answer(callWithin); err != nil || cmd.Code != 0 {
		t.Fatalf("heartbeat: %+v, %v", cmd, err)
	}
	return p
}

// confirm answers the push of a reply with a code and returns its header and body.
func (p *rawPeer) confirm(code remoting.ResponseCode) (protocol.ReplyPush, string) {
	p.t.Helper()
	cmd, err := p.answer(callWithin)
	if err != nil || cmd.Code != int32(remoting.PushReplyMessageToClient) || cmd.IsOneway() {
		p.t.Fatalf("pushed %+v, %v", cmd, err)
	}
	var push protocol.ReplyPush
	if err := push.Decode(cmd); err != nil {
		p.t.Fatal(err)
	}
	e := remoting.Begin(nil, cmd.Reply(code))
	body := string(cmd.Body)
	p.write(e.End(nil))
	return push, body
}

// A reply goes to the connection of the client that asked, whoever sends it, and is stored.
func TestReply(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	p := newPeer(t, c.Broker())
	for i, header := range []remoting.Header{
		longNames{replyRequest("asker@1")}, replyRequest("asker@1"),
	} {
		asks := requester(t, c.Broker(), "asker@1")
		done := make(chan *invoke.Response, 1)
		code := [...]remoting.RequestCode{remoting.SendReplyMessage, remoting.SendReplyMessageV2}[i]
		go func() { done <- p.call(code, header, []byte("answer")) }()
		push, body := asks.confirm(remoting.Success)
		if body != "answer" || push.Topic != replyTopic || push.Group != "producers" ||
			!strings.HasPrefix(push.BornHost, "127.0.0.1:") || push.StoreHost != c.Broker() {
			t.Errorf("pushed %+v %q", push, body)
		}
		props := map[string]string{}
		record.EachProperty([]byte(push.Properties), func(name, value []byte) bool {
			props[string(name)] = string(value)
			return true
		})
		if props["PUSH_REPLY_TIME"] == "" {
			t.Error("no PUSH_REPLY_TIME")
		}
		delete(props, "PUSH_REPLY_TIME")
		want := map[string]string{
			"CORRELATION_ID": "c1", "MSG_TYPE": "reply", "TTL": "5000", "UNIQ_KEY": "U1",
			"REPLY_TO_CLIENT": "asker@1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
		}
		if diff := cmp.Diff(want, props); diff != "" {
			t.Errorf("properties (-want +got):\n%s", diff)
		}
		r := <-done
		var out protocol.SendResponse
		if err := out.Decode(r.Command); err != nil || r.Code != 0 || out.QueueOffset != int64(i) {
			t.Errorf("answer %v %q %+v, %v", r.Code, r.Remark, out, err)
		}
		_ = asks.conn.Close()
	}
	if got := p.bodies(replyTopic, 0); len(got) != 2 {
		t.Errorf("stored %v", got)
	}
}

// A reply that does not reach its requester is an error, and stored none the less; with
// storeReplyMessageEnable=false nothing is stored.
func TestReplyFails(t *testing.T) {
	t.Parallel()
	for _, store := range []bool{true, false} {
		c := enginetest.Start(t, func(c *engine.Config) { c.StoreReplies = store })
		p := newPeer(t, c.Broker())
		check := func(what string, r *invoke.Response, remark string) {
			t.Helper()
			if r.Code != remoting.SystemError || r.Remark != remark {
				t.Errorf("%s: code %v, remark %q", what, r.Code, r.Remark)
			}
			var out protocol.SendResponse
			if err := out.Decode(r.Command); err != nil || out.NoMessage == store || out.Region != "DefaultRegion" {
				t.Errorf("%s: answer %+v, %v", what, out, err)
			}
		}
		check("no requester", p.call(remoting.SendReplyMessageV2, replyRequest(""), []byte("a")),
			"reply message properties[REPLY_TO_CLIENT] is null")
		check("gone", p.call(remoting.SendReplyMessageV2, replyRequest("nobody@1"), []byte("a")),
			"push reply message fail, channel of <nobody@1> not found.")
		asks := requester(t, c.Broker(), "asker@1")
		done := make(chan *invoke.Response, 1)
		go func() { done <- p.call(remoting.SendReplyMessageV2, replyRequest("asker@1"), []byte("a")) }()
		asks.confirm(remoting.SystemError)
		check("refused", <-done, "push reply message to asker@1fail.")
		go func() { done <- p.call(remoting.SendReplyMessageV2, replyRequest("asker@1"), []byte("a")) }()
		if _, err := asks.answer(callWithin); err != nil {
			t.Fatal(err)
		}
		_ = asks.conn.Close()
		check("closed", <-done, "push reply message to asker@1fail.")
		want := 0
		if store {
			want = 4
		}
		if got := p.bodies(replyTopic, 0); len(got) != want {
			t.Errorf("store=%v: stored %v", store, got)
		}
		bad := replyRequest("asker@1")
		bad.QueueID = 9
		if r := p.call(remoting.SendReplyMessageV2, bad, []byte("a")); r.Code != remoting.InvalidParameter {
			t.Errorf("queue 9: %v %q", r.Code, r.Remark)
		}
	}
}

// TestReplyFlags: flags of a reply that say what it is not reach the requester as they are, and are not
// stored; a reply that claims to be an inner batch is not stored at all.
func TestReplyFlags(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	p := newPeer(t, c.Broker())
	asks := requester(t, c.Broker(), "asker@1")
	ask := func(flags int32, props ...string) {
		t.Helper()
		r := replyRequest("asker@1")
		r.SysFlag = flags
		for i := 0; i+1 < len(props); i += 2 {
			r.Properties = record.AppendProperty(r.Properties, props[i], props[i+1])
		}
		done := make(chan *invoke.Response, 1)
		go func() { done <- p.call(remoting.SendReplyMessageV2, r, []byte("answer")) }()
		if push, _ := asks.confirm(remoting.Success); push.SysFlag != flags {
			t.Errorf("pushed with flags %#x, want %#x", push.SysFlag, flags)
		}
		if answer := <-done; answer.Code != remoting.Success {
			t.Errorf("flags %#x: %v %q", flags, answer.Code, answer.Remark)
		}
	}
	ask(0x301 | 0x4 | 0xC0 | 0x2)
	ask(0, "INNER_NUM", "7")
	d := p.pull(pullRequest(replyTopic, 0, 0, "*", 0))
	if len(d.views) != 1 || d.views[0].SysFlag() != 0x301 {
		t.Errorf("stored %d, %+v", len(d.views), d.head)
	}
}
