// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// popStep is one request of pop consumption and its answer, as Apache's broker gives it too: run with
// -against=apache. In fields # stands for any number, and a field that is not named must not be there.
type popStep struct {
	what   string
	code   int
	fields map[string]string
	body   string
	want   int
	remark string // its start
	answer map[string]string
	bodies string
}

const (
	popCode, ackCode, changeCode       = 200050, 200051, 200053
	notifyCode, pollingCode, batchCode = 200054, 200055, 200151
)

// popFields are those of a pop of queue 0, with changes.
func popFields(topic, group string, changes ...string) map[string]string {
	f := map[string]string{
		"bname": "broker-a", "bornTime": fmt.Sprint(time.Now().UnixMilli()), "consumerGroup": group, "exp": "*",
		"expType": "TAG", "initMode": "0", "invisibleTime": "30000", "maxMsgNums": "2", "pollTime": "0",
		"queueId": "0", "topic": topic,
	}
	for i := 0; i+1 < len(changes); i += 2 {
		f[changes[i]] = changes[i+1]
	}
	return f
}

var anyNumber = regexp.MustCompile(`^\d+$`)

func (s *popStep) check(t *testing.T, a *header) {
	t.Helper()
	if a.Code != s.want || !strings.HasPrefix(a.Remark, s.remark) || s.remark == "" && a.Remark != "" {
		t.Errorf("%s: %d %q, want %d %q", s.what, a.Code, a.Remark, s.want, s.remark)
	}
	for name, want := range s.answer {
		got, ok := a.ExtFields[name]
		if !ok || want == "#" && !anyNumber.MatchString(got) || want != "#" && got != want {
			t.Errorf("%s: field %s is %q, want %q", s.what, name, got, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.ExtFields)) {
		if _, ok := s.answer[name]; !ok {
			t.Errorf("%s: field %s=%q is not expected", s.what, name, a.ExtFields[name])
		}
	}
	list, err := summarize(a.Body)
	if s.bodies != "" || err == nil && len(list) > 0 {
		var got []string
		for _, m := range list {
			got = append(got, m.Body)
		}
		if fmt.Sprint(got) != s.bodies {
			t.Errorf("%s: messages %v, want %s, %v", s.what, got, s.bodies, err)
		}
	}
}

// nothing are the fields of a pop that is refused, found of one that is not.
var (
	popNothing = map[string]string{"invisibleTime": "0", "popTime": "0", "restNum": "0", "reviveQid": "0"}
	popEmpty   = map[string]string{
		"invisibleTime": "30000", "popTime": "#", "restNum": "0", "reviveQid": "#", "startOffsetInfo": "",
		"msgOffsetInfo": "",
	}
)

func popFound(start, offsets, rest string) map[string]string {
	return map[string]string{
		"invisibleTime": "30000", "popTime": "#", "restNum": rest, "reviveQid": "#", "startOffsetInfo": start,
		"msgOffsetInfo": offsets,
	}
}

// The answers to each request of pop consumption: codes, remarks, fields and messages.
func TestPopAnswers(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 4)
	p := producer(t, jvm, at, nil)
	for i := range 6 {
		must[sent](t, jvm, "producer.send", args{
			"handle": p, "topic": topic, "body": fmt.Sprint("pop", i), "tags": "TagP", "queueId": i % 2,
			"broker": at.BrokerName,
		})
	}
	ack := func(changes ...string) map[string]string {
		f := map[string]string{
			"consumerGroup": group, "extraInfo": "2 1795977941206 30000 2 0 broker-a 0 2", "offset": "2",
			"queueId": "0", "topic": topic,
		}
		for i := 0; i+1 < len(changes); i += 2 {
			f[changes[i]] = changes[i+1]
		}
		return f
	}
	look := func(group, queue string, more ...string) map[string]string {
		f := map[string]string{"consumerGroup": group, "queueId": queue, "topic": topic}
		for i := 0; i+1 < len(more); i += 2 {
			f[more[i]] = more[i+1]
		}
		return f
	}
	now := fmt.Sprint(time.Now().Add(time.Minute).UnixMilli())
	empty := map[string]string{}
	steps := []popStep{
		{"first", popCode, popFields(topic, group), "", 0, "FOUND", popFound("0 0 0", "0 0 0,1", "1"), "[pop0 pop2]"},
		{"the rest", popCode, popFields(topic, group), "", 0, "FOUND", popFound("0 0 2", "0 0 2", "0"), "[pop4]"},
		{"nothing", popCode, popFields(topic, group), "", 210, "NO_MESSAGE_IN_QUEUE", popEmpty, ""},
		{"filter", popCode, popFields(topic, group, "queueId", "1", "exp", "None"), "", 210, "NO_MESSAGE_IN_QUEUE", popEmpty, ""},
		{"33", popCode, popFields(topic, group, "maxMsgNums", "33"), "", 29, "the broker[", popNothing, ""},
		{"no such queue", popCode, popFields(topic, group, "queueId", "99"), "", 29, "queueId[99] is illegal, topic:[" + topic, popNothing, ""},
		{"no such topic", popCode, popFields("None"+topic, group), "", 17, "topic[None" + topic + "] not exist, apply first please!", popNothing, ""},
		{"late", popCode, popFields(topic, group, "bornTime", "1000", "pollTime", "1"), "", 210, "the broker[", popNothing, ""},
		{"bad SQL", popCode, popFields(topic, group, "expType", "SQL92", "exp", "a = ="), "", 23, "parse the consumer's subscription failed", popNothing, ""},
		{"SQL", popCode, popFields(topic, group+"3", "expType", "SQL92", "exp", "TAGS = 'TagP'"), "", 0, "FOUND", popFound("0 0 0", "0 0 0,1", "1"), "[pop0 pop2]"},
		{"polling info", pollingCode, look(group, "-1"), "", 0, "not set any response code", map[string]string{"pollingNum": "0"}, ""},
		{"notification", notifyCode, look(group+"2", "-1", "bornTime", now, "pollTime", "1000"), "", 0, "not set any response code", map[string]string{"hasMsg": "true", "pollingFull": "false"}, ""},
		{"change", changeCode, ack("invisibleTime", "20000"), "", 0, "not set any response code", map[string]string{"invisibleTime": "20000", "popTime": "#", "reviveQid": "2"}, ""},
		{"ack", ackCode, ack(), "", 0, "", empty, ""},
		{"ack again", ackCode, ack(), "", 0, "", empty, ""},
		{"ack too far", ackCode, ack("offset", "99999"), "", 208, "offset is illegal, key:" + topic + "@0, commit:99999, store:0~3", empty, ""},
		{"ack no such queue", ackCode, ack("queueId", "99"), "", 13, "queueId[99] is illegal", empty, ""},
		{"ack no such topic", ackCode, ack("topic", "None"+topic), "", 17, "topic[None", empty, ""},
		{"batch ack of nothing", batchCode, nil, "", 208, "", empty, ""},
	}
	ordered := popFound("0 0 0", "0 0 0,1", "1")
	ordered["reviveQid"], ordered["orderCountInfo"] = "999", "0 0 0"
	steps = append(steps, popStep{
		"ordered", popCode, popFields(topic, group+"4", "order", "true", "attemptId", "one"), "", 0, "FOUND", ordered, "[pop0 pop2]",
	})
	for i := range steps {
		s := &steps[i]
		s.check(t, rawCall(t, at, s.code, s.fields, []byte(s.body)))
	}
}
