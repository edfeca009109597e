// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultLevels is RocketMQ's default messageDelayLevel.
const DefaultLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// levelsMax bounds the levels of a table; each has a queue.
const levelsMax = 1024

// Levels are the delays of the levels from 1 on.
type Levels []time.Duration

// ParseLevels reads messageDelayLevel: numbers with a unit of s, m, h or d, separated by blanks; the
// position is the level. Delays must be above zero and below 100 years.
func ParseLevels(text string) (Levels, error) {
	units := map[byte]time.Duration{
		's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour,
	}
	var levels Levels
	for field := range strings.FieldsSeq(text) {
		unit, ok := units[field[len(field)-1]]
		n, err := strconv.ParseInt(field[:len(field)-1], 10, 64)
		if !ok || err != nil || n <= 0 || n > int64(100*365*24*time.Hour/unit) {
			return nil, fmt.Errorf("messageDelayLevel %q: %q is no delay such as 10s, 5m, 1h or 2d",
				text, field)
		}
		levels = append(levels, time.Duration(n)*unit)
	}
	if len(levels) == 0 || len(levels) > levelsMax {
		return nil, fmt.Errorf("messageDelayLevel %q: it has %d levels, must have 1 to %d",
			text, len(levels), levelsMax)
	}
	return levels, nil
}

// Clamp returns the level that a message asking for level gets: the highest at the most.
func (l Levels) Clamp(level int64) int { return int(min(level, int64(len(l)))) }

// MS returns the delay of a level of the table in milliseconds.
func (l Levels) MS(level int) int64 { return l[level-1].Milliseconds() }
