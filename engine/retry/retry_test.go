// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/retry"
	"github.com/skylarkmq/skylark/net/protocol"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	plain := protocol.DefaultSubscriptionGroup("g")
	exponential, custom, bare := plain, plain, plain
	exponential.GroupRetryPolicy = &protocol.GroupRetryPolicy{
		Type: protocol.RetryPolicyExponential,
		ExponentialRetryPolicy: &protocol.ExponentialRetryPolicy{
			Initial: 100, Max: 5000, Multiplier: 3,
		},
	}
	bare.GroupRetryPolicy = &protocol.GroupRetryPolicy{Type: protocol.RetryPolicyExponential}
	custom.GroupRetryPolicy = &protocol.GroupRetryPolicy{
		Type:                  protocol.RetryPolicyCustomized,
		CustomizedRetryPolicy: &protocol.CustomizedRetryPolicy{Next: []int64{1, 2, 3, 4, 5}},
	}
	dead := retry.Decision{Dead: true}
	level := func(n int32) retry.Decision { return retry.Decision{Level: n} }
	wait := func(ms int64) retry.Decision { return retry.Decision{DelayMS: ms} }
	for name, c := range map[string]struct {
		group        protocol.SubscriptionGroupConfig
		times        int32
		level, limit int32
		want         retry.Decision
	}{
		"first":                          {plain, 0, 0, -1, level(3)},
		"last":                           {plain, 15, 0, -1, level(18)},
		"over the group's limit":         {plain, 16, 0, -1, dead},
		"over the client's limit":        {plain, 2, 0, 2, dead},
		"the client's limit is greater":  {plain, 16, 0, 20, level(19)},
		"a limit of none":                {plain, 0, 0, 0, dead},
		"the client's level":             {plain, 5, 1, -1, level(1)},
		"dead at once":                   {plain, 0, -1, -1, dead},
		"exponential":                    {exponential, 2, 0, -1, wait(900)},
		"exponential, no more than that": {exponential, 15, 0, -1, wait(5000)},
		"exponential by default":         {bare, 1, 0, -1, wait(10000)},
		"custom begins at the third":     {custom, 0, 0, -1, wait(3)},
		"custom ends with the last":      {custom, 9, 0, -1, wait(5)},
		"the client's level counts more": {custom, 0, 2, -1, level(2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := retry.Decide(&c.group, c.times,
				retry.Asked{DelayLevel: c.level, MaxReconsumeTimes: c.limit})
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLevelOf(t *testing.T) {
	t.Parallel()
	levels := []time.Duration{time.Second, time.Minute, 5 * time.Second}
	for ms, want := range map[int64]int32{0: 1, 1000: 1, 1001: 3, 5000: 3, 5001: 2, 60000: 2, 99999: 2} {
		level, exact := retry.LevelOf(levels, ms)
		if wantExact := ms == 1000 || ms == 5000 || ms == 60000; exact != wantExact || level != want {
			t.Errorf("%d ms: level %d exact %v, want %d %v", ms, level, exact, want, wantExact)
		}
	}
}
