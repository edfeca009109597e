// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// fieldList is a header of fixed fields.
type fieldList []field

func (l fieldList) AppendFields(e *remoting.Encoder) {
	for _, f := range l {
		e.String(f.name, f.value)
	}
}

// TestGoldenSignature signs two requests that Apache's Java client 5.5.0 signed with rocketmq2 and
// 12345678.
func TestGoldenSignature(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fields fieldList
		body   string
		want   string
	}{
		{
			fieldList{{"AccessKey", "rocketmq2"}, {"topic", "TopicAcl"}},
			"",
			"6yan9Ej+NVLm1NtHMmg9XSN8aGI=",
		},
		{
			fieldList{
				{"a", "PG_ACL"},
				{"b", "TopicAcl"},
				{"c", "TBW102"},
				{"d", "4"},
				{"e", "2"},
				{"f", "0"},
				{"g", "1795979386320"},
				{"h", "0"},
				{
					"i", "KEYS\x01k\x02UNIQ_KEY\x01C00002025A3F30946E09944EB5D00000\x02" +
						"WAIT\x01true\x02TAGS\x01T\x02",
				},
				{"j", "0"},
				{"k", "false"},
				{"m", "false"},
				{"n", "broker-a"},
				{"AccessKey", "rocketmq2"},
			}, "signed", "NE6gS9tTQL+HePJ19sp4HxlAllM=",
		},
	} {
		got, err := sign(tc.fields, &invoke.Request{Body: []byte(tc.body)}, "12345678")
		if err != nil || got != tc.want {
			t.Errorf("got %s, %v, want %s", got, err, tc.want)
		}
	}
}

func TestNamespaceNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ namespace, name, wire string }{
		{"", "t", "t"},
		{"ns", "t", "ns%t"},
		{"ns", "%RETRY%g", "%RETRY%ns%g"},
		{"ns", "%DLQ%g", "%DLQ%ns%g"},
		{"ns", "TBW102", "TBW102"},
		{"ns", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"},
		{"ns", "CID_RMQ_SYS_x", "CID_RMQ_SYS_x"},
	} {
		wire := wrapName(tc.namespace, tc.name)
		if wire != tc.wire || wrapName(tc.namespace, wire) != wire ||
			unwrapName(tc.namespace, wire) != tc.name {
			t.Errorf("%s in %q: %s, twice %s, back %s, want %s", tc.name, tc.namespace, wire,
				wrapName(tc.namespace, wire), unwrapName(tc.namespace, wire), tc.wire)
		}
	}
}
