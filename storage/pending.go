// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/storage/record"
)

// Topics and files in which RocketMQ keeps messages that it delivers later.
const (
	timerTopic = "rmq_sys_wheel_timer"

	timerSlotSize   = 32 // int64 time in units, int64 first, int64 last, int32 count, int32 unused
	offSlotCount    = 24
	timerUnitMS     = 1000 // timerPrecisionMs
	offTimerReadMS  = 0    // of timercheck: int64, slots before this time were delivered
	offTimerQueueAt = 16   // of timercheck: int64, messages before this queue offset are in the wheel
	timerCheckUsed  = 56
)

// PendingInfo counts messages that wait in the store to be delivered later, as found at the start.
// They stay where they are: RocketMQ delivers them when it opens the store again.
type PendingInfo struct {
	Timer int64 // with a delivery time, in rmq_sys_wheel_timer
}

// countPending reads RocketMQ's progress files. What cannot be read counts as no progress, so that
// the numbers are rather too high.
func (s *Store) countPending() PendingInfo {
	return PendingInfo{Timer: s.countTimer()}
}

// notePending warns of messages that nobody delivers.
func (s *Store) notePending() {
	if p := s.pending; p != (PendingInfo{}) {
		s.cfg.Notice("store has messages to be delivered later, which are left untouched",
			"timer", p.Timer)
	}
}

// countTimer counts what is in the wheel and not yet due, and what is not in the wheel yet.
func (s *Store) countTimer() int64 {
	lo, hi, ok := s.QueueBounds([]byte(timerTopic), 0)
	if !ok || hi == 0 {
		return 0
	}
	check, err := os.ReadFile(s.path("config", "timercheck"))
	if err != nil || len(check) < timerCheckUsed {
		return int64(hi - lo)
	}
	readMS := int64(binary.BigEndian.Uint64(check[offTimerReadMS:]))
	done := record.QueueOffset(binary.BigEndian.Uint64(check[offTimerQueueAt:]))
	n := int64(hi - min(max(lo, done), hi))
	wheel, err := os.Open(s.path("timerwheel"))
	if err != nil {
		return int64(hi - lo)
	}
	defer func() { _ = wheel.Close() }()
	slots := bufio.NewReaderSize(wheel, 64<<10)
	var slot [timerSlotSize]byte
	for {
		if _, err := io.ReadFull(slots, slot[:]); err != nil {
			return n
		}
		if at := int64(binary.BigEndian.Uint64(slot[:])); at > 0 && at*timerUnitMS >= readMS {
			n += int64(max(int32(binary.BigEndian.Uint32(slot[offSlotCount:])), 0))
		}
	}
}

// offsetTable reads the object behind a key of a JSON file of RocketMQ, whose keys are numbers
// without quotes. Values that are no offsets are left out.
func offsetTable(path, key string) map[int64]record.QueueOffset {
	table := map[int64]record.QueueOffset{}
	text, err := os.ReadFile(path)
	if err != nil {
		return table
	}
	object := regexp.MustCompile(regexp.QuoteMeta(strconv.Quote(key)) + `\s*:\s*\{([^{}]*)\}`)
	found := object.FindSubmatch(text)
	if found == nil {
		return table
	}
	for pair := range strings.SplitSeq(string(found[1]), ",") {
		name, value, _ := strings.Cut(pair, ":")
		k, err := strconv.ParseInt(strings.Trim(strings.TrimSpace(name), `"`), 10, 64)
		if err != nil {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err == nil && v >= 0 && v < math.MaxInt64 {
			table[k] = record.QueueOffset(v)
		}
	}
	return table
}
