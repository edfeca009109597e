// SPDX-License-Identifier: Apache-2.0

// Package retry decides what becomes of a message that a consumer could not handle: whether it is
// tried again, when, or whether it is a dead letter. It is pure computation.
//
// The rules are those of RocketMQ's AbstractSendMessageProcessor.consumerSendMsgBack and of the
// classes CustomizedRetryPolicy and ExponentialRetryPolicy.
package retry

import (
	"math"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// firstLevel is the delay level of the first retry.
const firstLevel = 3

// stepOffset is where RocketMQ's CustomizedRetryPolicy begins in its list of delays, because its
// default list is that of the delay levels.
const stepOffset = firstLevel - 1

// Asked is what a consumer says when it sends a message back.
type Asked struct {
	DelayLevel        int32 // negative: dead letter at once, 0: the broker chooses
	MaxReconsumeTimes int32 // negative: the group's own limit counts
}

// Decision is what becomes of the message.
type Decision struct {
	Dead bool
	// Level is the delay level, or 0 when DelayMS says how long to wait, in milliseconds.
	Level   int32
	DelayMS int64
}

// Decide says what becomes of a message that was consumed reconsumeTimes times before this one. A
// group without a retry policy of its own waits for level 3 and one level more each time.
func Decide(cfg *protocol.SubscriptionGroupConfig, reconsumeTimes int32, asked Asked) Decision {
	limit := cfg.RetryMaxTimes
	if asked.MaxReconsumeTimes >= 0 {
		limit = asked.MaxReconsumeTimes
	}
	switch {
	case reconsumeTimes >= limit, asked.DelayLevel < 0:
		return Decision{Dead: true}
	case asked.DelayLevel > 0:
		return Decision{Level: asked.DelayLevel}
	}
	if wait, ok := policyDelay(cfg.GroupRetryPolicy, reconsumeTimes); ok {
		return Decision{DelayMS: wait}
	}
	return Decision{Level: firstLevel + max(reconsumeTimes, 0)}
}

// policyDelay is the delay in milliseconds that a group's own policy asks for; ok is false when the
// group has none.
func policyDelay(p *protocol.GroupRetryPolicy, reconsumeTimes int32) (ms int64, ok bool) {
	if p == nil {
		return 0, false
	}
	times := int(max(reconsumeTimes, 0))
	if p.Type == protocol.RetryPolicyExponential {
		e := p.ExponentialRetryPolicy
		if e == nil { // RocketMQ's defaults
			e = &protocol.ExponentialRetryPolicy{
				Initial: 5000, Max: (2 * time.Hour).Milliseconds(), Multiplier: 2,
			}
		}
		return exponential(e, times), true
	}
	if c := p.CustomizedRetryPolicy; c != nil && len(c.Next) > 0 {
		return max(c.Next[min(times+stepOffset, len(c.Next)-1)], 0), true
	}
	return 0, false
}

// timesMax is the last try that makes the exponential delay longer.
const timesMax = 32

func exponential(p *protocol.ExponentialRetryPolicy, times int) int64 {
	wait := float64(p.Initial) * math.Pow(float64(p.Multiplier), float64(min(times, timesMax)))
	return int64(max(min(wait, float64(p.Max)), 0))
}

// LevelOf returns the delay level with exactly that delay, or the next longer one, or the longest.
func LevelOf(levels []time.Duration, delayMS int64) (level int32, exact bool) {
	wait := time.Duration(delayMS) * time.Millisecond
	if i := slices.Index(levels, wait); i >= 0 {
		return int32(i) + 1, true
	}
	best := 0
	for i, d := range levels {
		nearer := d >= wait && (levels[best] < wait || d < levels[best])
		if nearer || levels[best] < wait && d > levels[best] {
			best = i
		}
	}
	return int32(best) + 1, false
}
