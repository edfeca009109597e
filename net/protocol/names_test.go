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

func TestJavaHash(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int32{
		"": 0, "a": 97, "*": 42, "TagA": 2598919, "TagB": 2598920, "order-created": -392709271,
		"订单": 1129459, "Aa": 2112, "BB": 2112, "😀": 55357*31 + 56832,
	} {
		if got := protocol.JavaHash([]byte(text)); got != want {
			t.Errorf("JavaHash(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestValidNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("t", 127)
	for _, tc := range []struct {
		name         string
		topic, group string // remark, "" when valid
	}{
		{"Topic-1_%|", "", ""},
		{"", "The specified topic is blank.", "The specified group is blank."},
		{" \t", "The specified topic is blank.", "The specified group is blank."},
		{
			"a.b",
			"The specified topic: a.b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
			"The specified group: a.b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
		},
		{long, "", "The specified group: " + long + ", is longer than group max length: 120"},
		{
			long + "t", "The specified topic: " + long + "t, is longer than topic max length: 127",
			"The specified group: " + long + "t, is longer than group max length: 120",
		},
		{strings.Repeat("g", 120), "", ""},
		{
			"%RETRY%" + strings.Repeat("g", 248), "",
			"The specified group: %RETRY%" + strings.Repeat("g", 248) +
				", is longer than group max length: 120",
		},
		{
			"%DLQ%" + strings.Repeat("g", 251),
			"The specified topic: %DLQ%" + strings.Repeat("g", 251) +
				", is longer than topic max length: 255",
			"The specified group: %DLQ%" + strings.Repeat("g", 251) +
				", is longer than group max length: 120",
		},
	} {
		check := func(err error, want string) {
			t.Helper()
			var refusal *remoting.Error
			switch {
			case want == "" && err != nil:
				t.Errorf("%.20s: got %v", tc.name, err)
			case want != "" && (!errors.As(err, &refusal) || refusal.Remark != want ||
				refusal.Code != remoting.InvalidParameter):
				t.Errorf("%.20s: got %v, want %s", tc.name, err, want)
			}
		}
		check(protocol.ValidTopic([]byte(tc.name)), tc.topic)
		check(protocol.ValidGroup([]byte(tc.name)), tc.group)
	}
}

func TestSystemTopics(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]bool{
		"TBW102": {true, false}, "SCHEDULE_TOPIC_XXXX": {true, true}, "rmq_sys_x": {true, false},
		"SELF_TEST_TOPIC": {true, true}, "Order": {false, false}, "": {false, false},
		"RMQ_SYS_TRACE_TOPIC": {true, false}, "RMQ_SYS_x": {false, false},
	} {
		got := [2]bool{protocol.IsSystemTopic(name), protocol.RefusedOnSend([]byte(name))}
		if got != want {
			t.Errorf("%q: system, refused = %v, want %v", name, got, want)
		}
	}
	for _, name := range protocol.SystemTopics() {
		if !protocol.IsSystemTopic(name) {
			t.Errorf("%q is no system topic", name)
		}
	}
	if got := protocol.PermText(6) + protocol.PermText(7) + protocol.PermText(0); got != "RW-RWX---" {
		t.Errorf("PermText: got %s", got)
	}
}

func TestParseSubscription(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		expr, exprType string
		want           protocol.SubscriptionData
		refused        bool
	}{
		{expr: "", want: protocol.SubscriptionData{SubString: "*"}},
		{expr: "*", exprType: "TAG", want: protocol.SubscriptionData{SubString: "*"}},
		{expr: " TagA||TagB || TagA|| ", want: protocol.SubscriptionData{
			SubString: " TagA||TagB || TagA|| ",
			TagsSet:   []string{"TagA", "TagB"}, CodeSet: []int32{2598919, 2598920},
		}},
		{expr: "Aa||BB", want: protocol.SubscriptionData{
			SubString: "Aa||BB", TagsSet: []string{"Aa", "BB"}, CodeSet: []int32{2112},
		}},
		{expr: "||", refused: true},
		{expr: "a > 5", exprType: "SQL92", want: protocol.SubscriptionData{
			SubString: "a > 5", ExpressionType: "SQL92",
		}},
		{expr: "", exprType: "SQL92", refused: true},
	} {
		got, err := protocol.ParseSubscription("T", tc.expr, tc.exprType)
		if tc.refused {
			var refusal *remoting.Error
			if !errors.As(err, &refusal) || refusal.Code != remoting.SubscriptionParseFailed {
				t.Errorf("%q: got %v", tc.expr, err)
			}
			continue
		}
		tc.want.Topic = "T"
		if tc.want.ExpressionType == "" {
			tc.want.ExpressionType = "TAG"
		}
		if tc.want.TagsSet == nil {
			tc.want.TagsSet, tc.want.CodeSet = []string{}, []int32{}
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v, -want +got:\n%s", tc.expr, err, diff)
		}
	}
}
