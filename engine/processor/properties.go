// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"

	"github.com/skylarkmq/skylark/storage/record"
)

// Property bytes: name 0x01 value 0x02 (RocketMQ MessageDecoder).
const (
	nameEnd  = 1
	valueEnd = 2
)

// sent is what a send must know of its property string, found in the one pass that rewrites it.
type sent struct {
	text []byte // the string to store
	uniq []byte // view of the unique key in text; nil when the producer sent none
	tags []byte // view in text; nil: none

	delay       []byte // value of DELAY, nil: absent
	timer       bool   // one of the TIMER_* delays is asked for
	transaction bool   // TRAN_MSG is true
	innerNum    bool   // INNER_NUM is present: the message claims to be an inner batch
	noWait      bool   // WAIT is false: the producer does not wait for the disk
	keys        []byte // value of KEYS, view in text; nil: absent
}

// rewrite appends the producer's properties to dst without those that the broker owns (POP_CK,
// MSG_REGION, TRACE_ON, CLUSTER) and without items that RocketMQ's parser drops, then own, which
// is already in wire form. It reports what it saw. Cost: one pass, one copy, no allocation beyond
// the growth of dst.
func rewrite(dst, props, own []byte) ([]byte, sent) {
	var s sent
	start := len(dst)
	for len(props) > 0 {
		item := props
		if i := bytes.IndexByte(props, valueEnd); i >= 0 {
			item, props = props[:i], props[i+1:]
		} else {
			props = nil
		}
		eq := bytes.IndexByte(item, nameEnd)
		if eq <= 0 || eq == len(item)-1 {
			continue // no separator, no name or no value: MessageDecoder ignores it too
		}
		if brokerOwned(item[:eq]) {
			continue
		}
		at := len(dst)
		dst = append(dst, item...)
		dst = append(dst, valueEnd)
		s.note(dst[at:at+eq], dst[at+eq+1:len(dst)-1])
	}
	dst = append(dst, own...)
	s.text = dst[start:]
	return dst, s
}

// brokerOwned names the properties that a broker sets or strips, whatever the producer sent.
func brokerOwned(name []byte) bool {
	switch string(name) {
	case "POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER":
		return true
	}
	return false
}

// note keeps the properties that decide what happens to the message. Later duplicates win.
func (s *sent) note(name, value []byte) {
	switch string(name) {
	case "UNIQ_KEY":
		s.uniq = value
	case "TAGS":
		s.tags = value
	case "KEYS":
		s.keys = value
	case "DELAY":
		s.delay = value
	case "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS":
		s.timer = true
	case "TRAN_MSG":
		s.transaction = bytes.EqualFold(value, []byte("true"))
	case "INNER_NUM":
		s.innerNum = true
	case "WAIT":
		s.noWait = bytes.EqualFold(value, []byte("false"))
	}
}

// later says that the message may have to wait; package delay decides.
func (s *sent) later() bool { return s.delay != nil || s.timer }

// asksDelay is later without the delay levels that ask for none.
func (s *sent) asksDelay() bool {
	level, number := plainDelay(s.delay)
	return s.timer || s.delay != nil && (!number || level > 0)
}

// ownProperties is the part that each stored single message of this broker carries, in wire form.
func ownProperties(region, cluster string, traceOn bool) []byte {
	trace := "false"
	if traceOn {
		trace = "true"
	}
	own := record.AppendProperty(nil, "MSG_REGION", region)
	own = record.AppendProperty(own, "TRACE_ON", trace)
	return record.AppendProperty(own, "CLUSTER", cluster)
}

// plainDelay reads a DELAY value: level is what it asks for, ok is false when it is no number.
func plainDelay(value []byte) (level int64, ok bool) {
	negative := false
	digits := value
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		negative, digits = digits[0] == '-', digits[1:]
	}
	if len(digits) == 0 || len(digits) > 10 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		level = level*10 + int64(c-'0')
	}
	if negative {
		level = -level
	}
	return level, true
}

// scheduledElement finds the first element of a batch body that asks for a delay, a timer or a
// transaction. RocketMQ stores such elements as if they were plain; this broker refuses them,
// because a message that asked to come later must not come now.
func scheduledElement(body []byte) (index int, property string) {
	if !bytes.Contains(body, []byte("DELAY\x01")) && !bytes.Contains(body, []byte("TIMER_")) &&
		!bytes.Contains(body, []byte("TRAN_MSG")) {
		return -1, ""
	}
	elements := record.NewBatchReader(body)
	for i := 0; ; i++ {
		_, _, props, ok := elements.Next()
		if !ok {
			return -1, ""
		}
		_, s := rewrite(nil, props, nil)
		level, number := plainDelay(s.delay)
		switch {
		case s.delay != nil && (!number || level > 0):
			return i, "DELAY"
		case s.timer:
			return i, "TIMER_*"
		case s.transaction:
			return i, "TRAN_MSG"
		}
	}
}
