// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sent is what a foreign producer was told about a message.
type sent struct {
	Status        string `json:"status"`
	MsgID         string `json:"msgId"`
	OffsetMsgID   string `json:"offsetMsgId"`
	QueueID       int    `json:"queueId"`
	QueueOffset   int64  `json:"queueOffset"`
	Broker        string `json:"broker"`
	Region        string `json:"region"`
	TraceOn       bool   `json:"traceOn"`
	TransactionID string `json:"transactionId"`
	RecallHandle  string `json:"recallHandle"`
	Body          string `json:"body"`
}

// received is a message as a foreign consumer saw it.
type received struct {
	Topic           string            `json:"topic"`
	Broker          string            `json:"broker"`
	QueueID         int               `json:"queueId"`
	QueueOffset     int64             `json:"queueOffset"`
	CommitLogOffset int64             `json:"commitLogOffset"`
	MsgID           string            `json:"msgId"`
	OffsetMsgID     string            `json:"offsetMsgId"`
	Tags            string            `json:"tags"`
	Keys            string            `json:"keys"`
	Flag            int32             `json:"flag"`
	SysFlag         int32             `json:"sysFlag"`
	ReconsumeTimes  int32             `json:"reconsumeTimes"`
	BornTimestamp   int64             `json:"bornTimestamp"`
	StoreTimestamp  int64             `json:"storeTimestamp"`
	BornHost        string            `json:"bornHost"`
	StoreHost       string            `json:"storeHost"`
	StoreSize       int               `json:"storeSize"`
	Properties      map[string]string `json:"properties"`
	BodySize        int               `json:"bodySize"`
	BodySHA256      string            `json:"bodySha256"`
	Body            string            `json:"body"`
}

type queue struct {
	Topic   string `json:"topic"`
	Broker  string `json:"broker"`
	QueueID int    `json:"queueId"`
}

type pulled struct {
	Status   string     `json:"status"`
	Next     int64      `json:"next"`
	Min      int64      `json:"min"`
	Max      int64      `json:"max"`
	Messages []received `json:"messages"`
}

// name makes a topic, group or instance name that no other test uses, and no other run of this one
// (-count).
func name(t *testing.T, kind string) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	suffix, known := shared.suffixes[t]
	if !known {
		shared.runs[t.Name()]++
		if n := shared.runs[t.Name()]; n > 1 {
			suffix = fmt.Sprint("_", n)
		}
		shared.suffixes[t] = suffix
	}
	return kind + "_" + strings.NewReplacer("/", "_", "=", "_", "#", "_", ".", "_").Replace(t.Name()) + suffix
}

func hashOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func bodies(messages []received) []string {
	var out []string
	for _, m := range messages {
		out = append(out, m.Body)
	}
	return out
}

// sameSet compares without regard to order and repetition: delivery is at least once.
func sameSet(got, want []string) error {
	g, w := distinct(got), distinct(want)
	if slices.Equal(g, w) {
		return nil
	}
	missing := slices.DeleteFunc(slices.Clone(w), func(s string) bool { return slices.Contains(g, s) })
	extra := slices.DeleteFunc(slices.Clone(g), func(s string) bool { return slices.Contains(w, s) })
	return fmt.Errorf("%d of %d, missing %v, not expected %v", len(g), len(w), missing, extra)
}

func distinct(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

func numbered(prefix string, count int) []string {
	var out []string
	for i := range count {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// createTopic makes a topic through the broker's admin command and waits for its route.
func createTopic(t *testing.T, at target, topic string, queues int) {
	t.Helper()
	jvm := java(t)
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	run(t, jvm, "admin.createTopic", args{
		"handle": admin, "address": at.Broker, "topic": topic, "queues": queues,
	})
	waitForRoute(t, at.NameServer, topic)
}

// producer starts a producer of the foreign client d.
func producer(t *testing.T, d *driver, at target, extra args) string {
	t.Helper()
	a := args{"namesrv": at.NameServer, "group": name(t, "PG"), "instance": name(t, "P")}
	for k, v := range extra {
		a[k] = v
	}
	return open(t, d, "producer", a)
}

// awaitPush waits until a push consumer has got count messages and returns all it got.
func awaitPush(t *testing.T, d *driver, handle string, count, timeoutMS int) []received {
	t.Helper()
	return must[[]received](t, d, "push.await", args{"handle": handle, "count": count, "timeoutMs": timeoutMS})
}
