// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestHostIP: the address in client and message ids is one that others may know, of either family.
func TestHostIP(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		prefixes []string
		want     string
	}{
		{nil, "127.0.0.1"},
		{[]string{"127.0.0.1/8", "::1/128", "fe80::1/64"}, "127.0.0.1"},
		{[]string{"127.0.0.1/8", "2001:db8::7/64", "10.0.0.7/24", "10.0.0.8/24"}, "10.0.0.7"},
		{[]string{"::1/128", "fe80::1/64", "2001:db8::7/64", "2001:db8::8/64"}, "2001:db8::7"},
		{[]string{"nonsense", "10.0.0.7/24"}, "10.0.0.7"},
	} {
		if got := hostIP(tc.prefixes); got.String() != tc.want {
			t.Errorf("%v: got %s, want %s", tc.prefixes, got, tc.want)
		}
	}
}

// TestPeriods holds what users do not set to RocketMQ's values.
func TestPeriods(t *testing.T) {
	t.Parallel()
	c, k := defaultConfig(), defaultConsumerConfig()
	got := map[string]time.Duration{
		"route": c.routeEvery, "heartbeat": c.beatEvery, "resolver": c.resolveEvery,
		"call": c.callTimeout, "dial": c.dialTimeout, "write": c.writeTimeout, "idle": c.idleTimeout,
		"rebalance": k.rebalanceEvery, "commit": k.commitEvery, "lock": k.lockEvery,
		"handler": k.handlerTimeout, "drain": k.drainTimeout, "revoke": k.revokeTimeout,
	}
	want := map[string]time.Duration{
		"route": 30 * time.Second, "heartbeat": 30 * time.Second, "resolver": 2 * time.Minute,
		"call": 3 * time.Second, "dial": 3 * time.Second, "write": 5 * time.Second,
		"idle": 2 * time.Minute, "rebalance": 20 * time.Second, "commit": 5 * time.Second,
		"lock": 20 * time.Second, "handler": 15 * time.Minute, "drain": 30 * time.Second,
		"revoke": 5 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAvoidance holds the times for which brokers are passed over to RocketMQ's table.
func TestAvoidance(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ latency, avoided int64 }{ // milliseconds
		{0, 0},
		{549, 0},
		{550, 2000},
		{1799, 2000},
		{1800, 5000},
		{2999, 5000},
		{3000, 6000},
		{4999, 6000},
		{5000, 10_000},
		{10_000, 10_000},
		{14_999, 10_000},
		{15_000, 30_000},
	} {
		got := avoidFor(time.Duration(tc.latency) * time.Millisecond)
		if got.Milliseconds() != tc.avoided {
			t.Errorf("%d ms: avoided for %s, want %d ms", tc.latency, got, tc.avoided)
		}
	}
	if avoidFor(isolated) != 10*time.Second {
		t.Errorf("a failure avoids for %s", avoidFor(isolated))
	}
}
