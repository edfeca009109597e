// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// Statistics cover about the last minute, in slots of ten seconds. They are added to where things
// happen and summed up when somebody asks; nothing samples them.
const (
	statSlots = 6
	statSlot  = 10 * time.Second
)

// topicStats counts for one topic. Guarded by Consumer.mu.
type topicStats struct {
	slots       [statSlots]statSums
	failedTotal int64
}

type statSums struct {
	slot           int64 // number since 1970; others are stale
	ok, failed     int64
	handling       time.Duration
	pulls, fetched int64
	pulling        time.Duration
}

func (k *Consumer) statsLocked(topic string) *topicStats {
	s := k.stats[topic]
	if s == nil {
		s = &topicStats{}
		k.stats[topic] = s
	}
	return s
}

func (s *topicStats) at(now time.Time) *statSums {
	n := now.UnixNano() / int64(statSlot)
	sums := &s.slots[n%statSlots]
	if sums.slot != n {
		*sums = statSums{slot: n}
	}
	return sums
}

func (s *topicStats) handled(failed bool, now time.Time, took time.Duration) {
	sums := s.at(now)
	sums.handling += took
	if failed {
		sums.failed++
		s.failedTotal++
		return
	}
	sums.ok++
}

func (s *topicStats) pulled(messages int, now time.Time, took time.Duration) {
	sums := s.at(now)
	sums.pulls++
	sums.fetched += int64(messages)
	sums.pulling += took
}

// status sums the last minute up, in milliseconds and per second.
func (s *topicStats) status(now time.Time) protocol.ConsumeStatus {
	last := now.UnixNano() / int64(statSlot)
	var t statSums
	for _, sums := range s.slots {
		if last-sums.slot < statSlots {
			t.ok += sums.ok
			t.failed += sums.failed
			t.handling += sums.handling
			t.pulls += sums.pulls
			t.fetched += sums.fetched
			t.pulling += sums.pulling
		}
	}
	window := (statSlots * statSlot).Seconds()
	mean := func(d time.Duration, n int64) float64 {
		return float64(d.Microseconds()) / 1000 / float64(max(n, 1))
	}
	return protocol.ConsumeStatus{
		ConsumeOKTPS: float64(t.ok) / window, ConsumeFailedTPS: float64(t.failed) / window,
		ConsumeRT: mean(t.handling, t.ok+t.failed), PullRT: mean(t.pulling, t.pulls),
		PullTPS: float64(t.fetched) / window, ConsumeFailedMsgs: s.failedTotal,
	}
}

func isPanic(err error) bool {
	var p *panicked
	return errors.As(err, &p)
}

// Ordinals of RocketMQ's ConsumeReturnType, for traces.
const (
	traceSuccess = iota
	traceTimeout
	tracePanic
	_ // a null result, which handlers here have not
	traceFailed
)

// traceBefore records that a handler gets a message, traceAfter that it has returned. The text that
// joins the two records is made only when there is a trace.
func (w *worker) traceBefore(d *delivery) (request string) {
	if w.k.tracer == nil {
		return ""
	}
	request = string(w.k.client.ids.Append(nil))
	w.k.tracer.consuming(&d.m, request)
	return request
}

func (w *worker) traceAfter(d *delivery, request string, err error) {
	if w.k.tracer == nil {
		return
	}
	code := traceSuccess
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		code = traceTimeout
	case isPanic(err):
		code = tracePanic
	default:
		code = traceFailed
	}
	w.k.tracer.consumed(&d.m, request, time.Since(w.began), err == nil, code)
}
