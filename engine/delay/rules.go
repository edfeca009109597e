// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"math"
	"strconv"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Properties that ask for a delay or say what became of it.
const (
	PropDelay        = "DELAY"            // delay level
	PropTimerSec     = "TIMER_DELAY_SEC"  // seconds from now on; counts before the next two
	PropTimerMS      = "TIMER_DELAY_MS"   // milliseconds from now on; counts before the next
	PropTimerDeliver = "TIMER_DELIVER_MS" // the time itself in milliseconds

	PropRealTopic = "REAL_TOPIC" // where a waiting message is to go
	PropRealQueue = "REAL_QID"
	PropTimerOut  = "TIMER_OUT_MS"      // slot of the timer wheel; the broker's
	PropTimerDel  = "TIMER_DEL_UNIQKEY" // the unique key of the message to be recalled
)

// Rules say how messages that ask for a delay are stored. They are constant.
type Rules struct {
	Levels Levels

	TimerOff    bool  // timerWheelEnable is false
	PrecisionMS int64 // timerPrecisionMs
	TimerMaxMS  int64 // the longest delay of a timer (timerMaxDelaySec)
}

// asked is what a message's properties say about its delay. Nil: nothing.
type asked struct {
	delay, sec, ms, deliver, out, del []byte
}

func ask(props []byte) asked {
	var a asked
	record.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case PropDelay:
			a.delay = value
		case PropTimerSec:
			a.sec = value
		case PropTimerMS:
			a.ms = value
		case PropTimerDeliver:
			a.deliver = value
		case PropTimerOut:
			a.out = value
		case PropTimerDel:
			a.del = value
		}
		return true
	})
	return a
}

// Park makes a message wait if its properties ask for it: topic, queue and properties of the draft
// become those of the waiting record. Their bytes are appended to scratch, which is returned grown.
// outMS is the time of a timer's slot, 0 when the message is none. It does nothing to a message that
// is due already or asks for no delay.
//
// Errors are *remoting.Error with RocketMQ's codes and texts; the entry is then unchanged.
func (r *Rules) Park(e *storage.Entry, scratch []byte, nowMS int64) (
	grown []byte, outMS int64, err error,
) {
	a := ask(e.Draft.Properties)
	if a.delay != nil {
		level, err := strconv.ParseInt(string(a.delay), 10, 32)
		if err != nil {
			return scratch, 0, remoting.Errorf(remoting.MessageIllegal,
				"the message is illegal: property DELAY is %.40q, not a number", a.delay)
		}
		if level > 0 {
			return r.parkLevel(e, scratch, level), 0, nil
		}
	}
	if a.out != nil || a.sec == nil && a.ms == nil && a.deliver == nil ||
		string(e.Draft.Topic) == protocol.TimerTopic {
		return scratch, 0, nil
	}
	return r.parkTimer(e, scratch, &a, nowMS)
}

func (r *Rules) parkLevel(e *storage.Entry, scratch []byte, asked int64) []byte {
	d, level := &e.Draft, r.Levels.Clamp(asked)
	clamped := int64(level) != asked
	scratch, props := without(scratch, d.Properties, func(name []byte) bool {
		switch string(name) {
		case PropRealTopic, PropRealQueue, PropTimerSec, PropTimerMS, PropTimerDeliver:
			return true
		}
		return clamped && string(name) == PropDelay
	})
	start := len(scratch) - len(props)
	if clamped {
		scratch = appendInt(scratch, PropDelay, int64(level))
	}
	scratch = parkAt(d, scratch, start, protocol.ScheduleTopic, int32(level)-1)
	e.DelayMS = r.Levels.MS(level)
	return scratch
}

func (r *Rules) parkTimer(e *storage.Entry, scratch []byte, a *asked, nowMS int64) (
	[]byte, int64, error,
) {
	if r.TimerOff {
		return scratch, 0, remoting.Errorf(remoting.SystemError,
			"accurate timer message is not enabled, timerWheelEnable is false")
	}
	due, ok := a.due(nowMS)
	if !ok || due-nowMS > r.TimerMaxMS || due <= nowMS && a.del != nil {
		return scratch, 0, remoting.Errorf(remoting.MessageIllegal, "timer message illegal, the delay "+
			"time should not be bigger than the max delay %dms; or if set del msg, the delay time "+
			"should be bigger than the current time", r.TimerMaxMS)
	}
	if due <= nowMS {
		return scratch, 0, nil
	}
	out := r.slotMS(due)
	scratch, props := without(scratch, e.Draft.Properties, func(name []byte) bool {
		return string(name) == PropRealTopic || string(name) == PropRealQueue
	})
	start := len(scratch) - len(props)
	scratch = appendInt(scratch, PropTimerOut, out)
	return parkAt(&e.Draft, scratch, start, protocol.TimerTopic, 0), out, nil
}

// due returns when a timer message is to be delivered, in milliseconds.
func (a *asked) due(nowMS int64) (due int64, ok bool) {
	text, unit, from := a.sec, int64(1000), nowMS
	switch {
	case a.sec != nil:
	case a.ms != nil:
		text, unit = a.ms, 1
	default:
		text, unit, from = a.deliver, 1, 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n > (math.MaxInt64-from)/unit || n < math.MinInt64/unit {
		return 0, false
	}
	return from + n*unit, true
}

// slotMS is the time of the wheel's slot for a delivery time: the last one before it.
func (r *Rules) slotMS(due int64) int64 { return due - 1 - (due-1)%r.PrecisionMS }

// without appends the properties to scratch, except those that drop names, and returns scratch and
// what was appended.
func without(scratch, props []byte, drop func(name []byte) bool) (grown, kept []byte) {
	start := len(scratch)
	record.EachProperty(props, func(name, value []byte) bool {
		if !drop(name) {
			scratch = appendProperty(scratch, name, value)
		}
		return true
	})
	return scratch, scratch[start:]
}

// appendProperty is record.AppendProperty for a buffer in which other bytes come before the
// properties.
func appendProperty[N, V string | []byte](dst []byte, name N, value V) []byte {
	dst = append(dst, name...)
	dst = append(dst, 1)
	dst = append(dst, value...)
	return append(dst, 2)
}

func appendInt(dst []byte, name string, n int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, 1)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, 2)
}

// parkAt finishes the properties that begin at start with the draft's real place and gives it the
// place where it waits.
func parkAt(d *record.Draft, scratch []byte, start int, topic string, queue int32) []byte {
	scratch = appendProperty(scratch, PropRealTopic, d.Topic)
	scratch = appendInt(scratch, PropRealQueue, int64(d.QueueID))
	d.Properties = scratch[start:len(scratch):len(scratch)]
	scratch = append(scratch, topic...)
	d.Topic = scratch[len(scratch)-len(topic) : len(scratch) : len(scratch)]
	d.QueueID = queue
	return scratch
}
