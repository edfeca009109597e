// SPDX-License-Identifier: Apache-2.0

package nameserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// known are the codes that a name server answers, with the fields that they cannot do without.
// Requests of ClientManage and brokers stand for all others.
func known() map[remoting.RequestCode][]string {
	broker := []string{"brokerName", "brokerAddr", "clusterName", "brokerId"}
	return map[remoting.RequestCode][]string{
		remoting.PutKVConfig:                   {"namespace", "key", "value"},
		remoting.GetKVConfig:                   {"namespace", "key"},
		remoting.DeleteKVConfig:                {"namespace", "key"},
		remoting.RegisterBroker:                broker,
		remoting.UnregisterBroker:              broker,
		remoting.GetRouteInfoByTopic:           {"topic"},
		remoting.GetBrokerClusterInfo:          nil,
		remoting.WipeWritePermOfBroker:         {"brokerName"},
		remoting.GetAllTopicListFromNameServer: nil,
		remoting.DeleteTopicInNamesrv:          {"topic"},
		remoting.RegisterTopicInNamesrv:        {"topic"},
		remoting.GetKVListByNamespace:          {"namespace"},
		remoting.GetTopicsByCluster:            {"cluster"},
		remoting.GetSystemTopicListFromNS:      nil,
		remoting.GetUnitTopicList:              nil,
		remoting.GetHasUnitSubTopicList:        nil,
		remoting.GetHasUnitSubUnunitTopicList:  nil,
		remoting.UpdateNamesrvConfig:           nil,
		remoting.GetNamesrvConfig:              nil,
		remoting.QueryDataVersion:              {"clusterName", "brokerAddr"},
		remoting.AddWritePermOfBroker:          {"brokerName"},
		remoting.GetBrokerMemberGroup:          {"clusterName", "brokerName"},
		remoting.BrokerHeartbeat:               {"clusterName", "brokerAddr"},
	}
}

// TestMatrixOfBrokenRequests sends every code with nothing, without each field, with odd values
// and with odd bodies, in both header forms. Each is answered within a second on a connection that
// stays, a missing field is named, and the server goes on.
func TestMatrixOfBrokenRequests(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	dial(t, s).register("b", "0", "1:1")
	bodies := []string{
		"", "{}", "[]", "null", "1", `"text"`, "{", `{"a":`, "\x00\xff", "a=b",
		`{"topicConfigSerializeWrapper":[]}`, `{"topicConfigSerializeWrapper":{"topicConfigTable":7}}`,
		`{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":null,"b":3}}}`,
		`{"topicConfigSerializeWrapper":null}`, `{"queueDatas":null}`, `{"queueDatas":[null,{}]}`,
		`{"counter":"x"}`, `{"counter":{}}`, "x\x9c", "\x78\x9c\x01", strings.Repeat("[", 5000),
	}
	values := []string{
		"", " ", "-1", "9223372036854775808", "null", "\x00", "%s",
		strings.Repeat("x", 70000),
	}
	for _, form := range []remoting.SerializeType{remoting.JSON, remoting.Binary} {
		pool := invoke.NewPool(invoke.Config{Serialize: form})
		t.Cleanup(func() { _ = pool.Close() })
		conn, err := pool.Dial(within(t), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		send := func(code remoting.RequestCode, f fields, body string) *invoke.Response {
			t.Helper()
			n++
			r := &invoke.Request{Code: code, Body: []byte(body)}
			if f != nil {
				r.Header = f
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			begin := time.Now()
			a, err := conn.Call(ctx, r)
			if err != nil {
				t.Fatalf("%v %.100v %.50q: %v", code, f, body, err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("%v %.100v %.50q: answered after %v", code, f, body, took)
			}
			return a
		}
		for code, names := range known() {
			for _, body := range bodies {
				send(code, nil, body)
				send(code, complete(names, "-", "v"), body)
				send(code, complete(names, "-", "1"), body)
			}
			for _, name := range names {
				a := send(code, complete(names, name, "1"), "")
				wanted := missingRemark(code, name)
				if wanted != "" && (a.Code != 1 || !strings.Contains(a.Remark, wanted)) {
					t.Errorf("%v without %s: %d %q", code, name, a.Code, a.Remark)
				}
				for _, value := range values {
					f := complete(names, "-", "1")
					f[name] = value
					send(code, f, "")
				}
			}
		}
		for _, code := range []remoting.RequestCode{-1, 0, 10, 11, 34, 35, 99999, 1 << 30} {
			want := fmt.Sprintf(" request type %d not supported", code)
			if a := send(code, nil, ""); a.Code != 3 || a.Remark != want {
				t.Errorf("code %d: %d %q", code, a.Code, a.Remark)
			}
		}
		t.Logf("%d requests", n)
	}
	if !dial(t, s).hasRoute() {
		t.Error("the registered broker is gone")
	}
}

// missingRemark is what the answer to a request without a field must hold. A route request without
// a topic gets TOPIC_NOT_EXIST, as from the reference.
func missingRemark(code remoting.RequestCode, name string) string {
	kv := code == remoting.PutKVConfig || code == remoting.GetKVConfig ||
		code == remoting.DeleteKVConfig
	switch {
	case code == remoting.GetRouteInfoByTopic:
		return ""
	case kv && name != "value":
		return "namespace or key is null"
	}
	return "the field " + name + " is missing"
}

// complete returns the fields with one value, except one.
func complete(names []string, except, value string) fields {
	f := fields{}
	for _, name := range names {
		if name != except {
			f[name] = value
		}
	}
	return f
}
