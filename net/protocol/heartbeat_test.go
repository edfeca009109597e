// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
)

// TestGoldenFingerprint: the fingerprint of a heartbeat that a Java client 5.5.0 sent is the one that
// it put there, and knows neither the client nor the versions of subscriptions.
func TestGoldenFingerprint(t *testing.T) {
	t.Parallel()
	const sent = `{"clientID":"127.0.0.1@30325#1521504992800","consumerDataSet":[{"consumeFromWhere":"` +
		`CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG_HB2","m` +
		`essageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":` +
		`[2598944],"expressionType":"TAG","subString":"TagZ","subVersion":1795977279391,"tags` +
		`Set":["TagZ"],"topic":"TopicHb2"},{"classFilterMode":false,"codeSet":[],"expressionT` +
		`ype":"TAG","subString":"*","subVersion":1795977270752,"tagsSet":[],"topic":"%RETRY%C` +
		`G_HB2"}],"unitMode":false}],"heartbeatFingerprint":1041631811,"producerDataSet":[{"g` +
		`roupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}`
	var h protocol.HeartbeatData
	if err := protocol.Unmarshal([]byte(sent), &h); err != nil {
		t.Fatal(err)
	}
	want := h.HeartbeatFingerprint
	if got := h.Fingerprint(); got != want || want != 1041631811 {
		t.Errorf("fingerprint %d, want %d", got, want)
	}
	before := h.ConsumerDataSet[0].SubscriptionDataSet[0].SubVersion
	h.ClientID, h.WithoutSub = "another", true
	h.ConsumerDataSet[0].SubscriptionDataSet[0].SubVersion++
	if got := h.Fingerprint(); got != want {
		t.Errorf("fingerprint %d of another client, want %d", got, want)
	}
	if got := h.ConsumerDataSet[0].SubscriptionDataSet[0].SubVersion; got != before+1 {
		t.Errorf("the body was changed: version %d", got)
	}
	h.ConsumerDataSet[0].SubscriptionDataSet[0].Topic = "Other"
	if got := h.Fingerprint(); got == want {
		t.Error("another topic has the same fingerprint")
	}
}
