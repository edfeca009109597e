// SPDX-License-Identifier: Apache-2.0

package delay_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// properties makes property text of "NAME=value" separated by blanks.
func properties(text string) []byte {
	var props []byte
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		props = record.AppendProperty(props, name, value)
	}
	return props
}

// text is the reverse of properties.
func text(props []byte) string {
	var pairs []string
	record.EachProperty(props, func(name, value []byte) bool {
		pairs = append(pairs, string(name)+"="+string(value))
		return true
	})
	return strings.Join(pairs, " ")
}

func rules(t *testing.T) *delay.Rules {
	t.Helper()
	levels, err := delay.ParseLevels(delay.DefaultLevels)
	if err != nil {
		t.Fatal(err)
	}
	return &delay.Rules{Levels: levels, PrecisionMS: 1000, TimerMaxMS: 259200000}
}

// nowMS is the time of the tests of rules.
const nowMS = 1_795_978_000_300

type parked struct {
	Topic, Properties string
	Queue             int32
	DelayMS, OutMS    int64
}

// TestPark holds the place and the properties of waiting messages to what RocketMQ stores.
func TestPark(t *testing.T) {
	t.Parallel()
	const place = "REAL_TOPIC=orders REAL_QID=2"
	for name, c := range map[string]struct {
		topic, props string
		want         parked
	}{
		"nothing asked": {"orders", "KEYS=k", parked{"orders", "KEYS=k", 2, 0, 0}},
		"level 0":       {"orders", "DELAY=0", parked{"orders", "DELAY=0", 2, 0, 0}},
		"dead letter":   {"orders", "DELAY=-1", parked{"orders", "DELAY=-1", 2, 0, 0}},
		"level 3": {
			"orders", "KEYS=k DELAY=3 n=1",
			parked{"SCHEDULE_TOPIC_XXXX", "KEYS=k DELAY=3 n=1 " + place, 2, 10000, 0},
		},
		"level over the table": {
			"orders", "DELAY=99 n=1",
			parked{"SCHEDULE_TOPIC_XXXX", "n=1 DELAY=18 " + place, 17, 7200000, 0},
		},
		"waited before": {
			"orders", "REAL_TOPIC=x DELAY=1 REAL_QID=9",
			parked{"SCHEDULE_TOPIC_XXXX", "DELAY=1 " + place, 0, 1000, 0},
		},
		"level wins over timer": {
			"orders", "DELAY=1 TIMER_DELAY_SEC=5 TIMER_DELAY_MS=5 TIMER_DELIVER_MS=5",
			parked{"SCHEDULE_TOPIC_XXXX", "DELAY=1 " + place, 0, 1000, 0},
		},
		"seconds": {
			"orders", "TIMER_DELAY_SEC=2", parked{
				"rmq_sys_wheel_timer",
				"TIMER_DELAY_SEC=2 TIMER_OUT_MS=1795978002000 " + place, 0, 0, 1_795_978_002_000,
			},
		},
		"seconds count before milliseconds": {
			"orders", "TIMER_DELAY_MS=99999 TIMER_DELAY_SEC=2 TIMER_DELIVER_MS=1", parked{
				"rmq_sys_wheel_timer", "TIMER_DELAY_MS=99999 TIMER_DELAY_SEC=2 TIMER_DELIVER_MS=1 " +
					"TIMER_OUT_MS=1795978002000 " + place, 0, 0, 1_795_978_002_000,
			},
		},
		"exactly at a tick": {
			"orders", "TIMER_DELIVER_MS=1795978005000", parked{
				"rmq_sys_wheel_timer", "TIMER_DELIVER_MS=1795978005000 TIMER_OUT_MS=1795978004000 " +
					place, 0, 0, 1_795_978_004_000,
			},
		},
		"due already": {
			"orders", "TIMER_DELIVER_MS=1795978000300",
			parked{"orders", "TIMER_DELIVER_MS=1795978000300", 2, 0, 0},
		},
		"timed before": {
			"orders", "TIMER_DELAY_SEC=9 TIMER_OUT_MS=5",
			parked{"orders", "TIMER_DELAY_SEC=9 TIMER_OUT_MS=5", 2, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := storage.Entry{Draft: record.Draft{
				Topic: []byte(c.topic), QueueID: 2, Properties: properties(c.props),
			}}
			before := "something that ends without a separator"
			scratch, out, err := rules(t).Park(&e, []byte(before), nowMS)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(scratch), before) {
				t.Errorf("scratch %q lost what it had", scratch)
			}
			got := parked{
				string(e.Draft.Topic), text(e.Draft.Properties), e.Draft.QueueID, e.DelayMS, out,
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParkRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		props string
		off   bool
		code  remoting.ResponseCode
		says  string
	}{
		"level no number": {"DELAY=abc", false, remoting.MessageIllegal, "DELAY"},
		"timer no number": {"TIMER_DELAY_SEC=soon", false, remoting.MessageIllegal, "259200000ms"},
		"too far":         {"TIMER_DELAY_SEC=259201", false, remoting.MessageIllegal, "259200000ms"},
		"far too far":     {"TIMER_DELAY_SEC=9223372036854775", false, remoting.MessageIllegal, "259200000ms"},
		"wheel off":       {"TIMER_DELAY_MS=5", true, remoting.SystemError, "timerWheelEnable"},
		"recall of the past": {
			"TIMER_DELIVER_MS=5 TIMER_DEL_UNIQKEY=k", false, remoting.MessageIllegal, "set del msg",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rules(t)
			r.TimerOff = c.off
			e := storage.Entry{Draft: record.Draft{
				Topic: []byte("orders"), Properties: properties(c.props),
			}}
			_, _, err := r.Park(&e, nil, nowMS)
			var wire *remoting.Error
			if !errors.As(err, &wire) || wire.Code != c.code || !strings.Contains(wire.Remark, c.says) {
				t.Errorf("error %v, want code %d with %q", err, c.code, c.says)
			}
			if string(e.Draft.Topic) != "orders" || text(e.Draft.Properties) != c.props {
				t.Errorf("the refused message was changed: %q %q", e.Draft.Topic, e.Draft.Properties)
			}
		})
	}
}

func TestParseLevels(t *testing.T) {
	t.Parallel()
	levels, err := delay.ParseLevels(" 1s  2m 3h 4d ")
	want := delay.Levels{time.Second, 2 * time.Minute, 3 * time.Hour, 96 * time.Hour}
	if err != nil || !cmp.Equal(want, levels) {
		t.Errorf("levels %v, %v", levels, err)
	}
	for _, bad := range []string{"", "5", "s", "-1s", "0s", "1x", "1s 99999999999d", "1.5s"} {
		if got, err := delay.ParseLevels(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}
