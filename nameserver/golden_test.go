// SPDX-License-Identifier: Apache-2.0

package nameserver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// exchange is a request to Apache RocketMQ 5.5.0's name server and its answer.
type exchange struct {
	Request, RequestBody, Answer, AnswerBody string
}

func exchanges(t *testing.T, path string) []exchange {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []exchange
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x exchange
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// header is what must be equal in an answer.
type header struct {
	Code      int32             `json:"code"`
	Flag      int32             `json:"flag"`
	Language  string            `json:"language"`
	Opaque    remoting.Opaque   `json:"opaque"`
	Remark    string            `json:"remark"`
	Version   int32             `json:"version"`
	ExtFields map[string]string `json:"extFields"`
}

func headerOf(cmd *remoting.Command) header {
	h := header{
		cmd.Code, cmd.Flag, cmd.Language.String(), cmd.Opaque, string(cmd.Remark),
		cmd.Version, nil,
	}
	if cmd.HasFields {
		h.ExtFields = map[string]string{}
	}
	for _, f := range cmd.Fields {
		h.ExtFields[string(f.Name)] = string(f.Value)
	}
	return h
}

// body sorts what has no order: the reference lists topics in the order of a hash map.
func body(t *testing.T, text string) string {
	t.Helper()
	if !strings.Contains(text, `"topicList"`) {
		return text
	}
	var list protocol.TopicList
	if err := protocol.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	slices.Sort(list.TopicList)
	return string(protocol.Marshal(&list))
}

func replay(t *testing.T, xs []exchange, send func(header, body string) *remoting.Command) {
	t.Helper()
	for _, x := range xs {
		var want header
		if err := json.Unmarshal([]byte(x.Answer), &want); err != nil {
			t.Fatal(err)
		}
		got := send(x.Request, x.RequestBody)
		if diff := cmp.Diff(want, headerOf(got)); diff != "" {
			t.Errorf("%s\nanswer (-want +got):\n%s", x.Request, diff)
		}
		if diff := cmp.Diff(body(t, x.AnswerBody), body(t, string(got.Body))); diff != "" {
			t.Errorf("%s\nbody (-want +got):\n%s", x.Request, diff)
		}
	}
}

// TestGoldenProbe answers hand-made requests as the reference did, byte for byte in the bodies.
func TestGoldenProbe(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	xs := exchanges(t, "testdata/probe.jsonl")
	table := map[string]*protocol.TopicConfig{}
	for _, x := range xs {
		if strings.Contains(x.Request, `"code":206`) {
			var list protocol.TopicList
			if err := protocol.Unmarshal([]byte(x.AnswerBody), &list); err != nil {
				t.Fatal(err)
			}
			for _, name := range list.TopicList {
				table[name] = &protocol.TopicConfig{Perm: 7, ReadQueueNums: 8, WriteQueueNums: 8}
			}
		}
	}
	wrapper := protocol.TopicConfigWrapper{TopicConfigTable: table}
	f := brokerFields("broker-a", "0", "127.0.0.1:1")
	f["clusterName"] = "DefaultCluster"
	dial(t, s).want(0, "", remoting.RegisterBroker, f,
		string(protocol.Marshal(&protocol.RegisterBrokerBody{TopicConfigs: wrapper})))
	nc := dialRaw(t, s)
	replay(t, xs, func(header, body string) *remoting.Command { return raw(t, nc, header, body) })
}

// TestGoldenRegister takes the registrations of a real master and a real slave.
func TestGoldenRegister(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	nc := dialRaw(t, s)
	xs := exchanges(t, "testdata/register.jsonl")
	replay(t, xs[:len(xs)-2], func(header, body string) *remoting.Command {
		return raw(t, nc, header, body)
	})
	c := dial(t, s)
	var data protocol.TopicRouteData
	r := c.want(0, "", remoting.GetRouteInfoByTopic, fields{"topic": "TBW102"}, "")
	if err := protocol.Unmarshal(r.Body, &data); err != nil {
		t.Fatal(err)
	}
	want := protocol.TopicRouteData{
		BrokerDatas: []protocol.BrokerData{{
			Cluster: "DefaultCluster", BrokerName: "broker-a",
			BrokerAddrs: map[int64]string{0: "127.0.0.1:20911", 1: "127.0.0.1:21080"},
		}},
		QueueDatas: []protocol.QueueData{
			{BrokerName: "broker-a", ReadQueueNums: 8, WriteQueueNums: 8, Perm: 7},
		},
		FilterServerTable: map[string][]string{},
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("route (-want +got):\n%s", diff)
	}
	replay(t, xs[len(xs)-2:], func(header, body string) *remoting.Command {
		return raw(t, nc, header, body)
	})
	c.want(remoting.TopicNotExist, "No topic route info in name server for the topic: TBW102\n"+
		"See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
		remoting.GetRouteInfoByTopic, fields{"topic": "TBW102"}, "")
}

// TestGoldenDeflated takes what a 5.5.0 broker with compressedRegister=true sends: a deflated body
// under compressed=false, which the reference refuses.
func TestGoldenDeflated(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	data, err := os.ReadFile("testdata/register-deflated.json")
	if err != nil {
		t.Fatal(err)
	}
	var x struct {
		Header string
		Body   []byte
	}
	if err := json.Unmarshal(data, &x); err != nil {
		t.Fatal(err)
	}
	if got := raw(t, dialRaw(t, s), x.Header, string(x.Body)); got.Code != 0 {
		t.Fatalf("answer %d %s", got.Code, got.Remark)
	}
}
