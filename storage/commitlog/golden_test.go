// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
)

// golden is a directory written, and in part damaged, by Apache RocketMQ 5.5.0, with what is to be
// recovered from it.
type golden struct {
	name    string
	size    int64 // of a segment
	records int
	end     int64
	notices int
	damage  int64 // of a CorruptionError, and then records and end hold when it is skipped
}

func goldenLogs() []golden {
	const big = 1 << 20
	return []golden{
		{name: "fit", size: segmentSize, records: 9, end: 353228},
		{name: "base", size: segmentSize, records: 90, end: 243278},
		{name: "base-crash", size: segmentSize, records: 90, end: 243278},
		{name: "multi-crash", size: big, records: 420, end: 3842563},
		{name: "many-crash", size: 32 << 10, records: 150, end: 482694},
		{name: "nommap", size: big, records: 120, end: 73357},
		{name: "v2", size: big, records: 22, end: 7940},
		{name: "ipv6", size: big, records: 8, end: 1794},
		{name: "plain-533", size: big, records: 120, end: 73357},
		{name: "last-tail-zero-clean", size: segmentSize, records: 89, end: 240565},
		{name: "last-tail-zero-crash", size: segmentSize, records: 89, end: 240565},
		{name: "last-body-flip-crash", size: segmentSize, records: 89, end: 240565},
		{name: "last-size-flip-crash", size: segmentSize, records: 89, end: 240565},
		{
			name: "middle-body-flip-crash", size: segmentSize, records: 89, end: 243278,
			damage: 118071, notices: 1,
		},
		{
			name: "middle-size-flip-crash", size: segmentSize, records: 89, end: 243278,
			damage: 118071, notices: 1,
		},
		{name: "middle-property-flip-crash", size: segmentSize, records: 90, end: 243278},
		{name: "drop-last-crash", size: segmentSize, records: 70, end: 186246},
		{name: "garbage-after-last-crash", size: segmentSize, records: 90, end: 243278},
		{name: "stale-record-after-last-crash", size: segmentSize, records: 90, end: 243278},
		{name: "stale-record-after-last-clean", size: segmentSize, records: 90, end: 243278},
		{name: "file-short-clean", size: segmentSize, records: 89, end: 240565, notices: 1},
		{name: "foreign-file-clean", size: segmentSize, records: 90, end: 243278, notices: 1},
		{name: "empty-last-file-clean", size: segmentSize, records: 90, end: 243278, notices: 1},
		{name: "first-log-deleted-crash", size: segmentSize, records: 64, end: 243278},
		{name: "log-deleted-clean", size: segmentSize, records: 0, end: 0},
	}
}

// TestGoldenRecover opens what RocketMQ wrote or what was damaged since, then appends, and recovers
// again what it had and what was appended.
func TestGoldenRecover(t *testing.T) {
	t.Parallel()
	for _, g := range goldenLogs() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			var told notices
			cfg := commitlog.Config{
				Dir: unpack(t, g.name), SegmentSize: g.size, Notice: told.notice,
			}
			if g.damage != 0 {
				_, _, err := recoverLog(cfg)
				var bad *commitlog.CorruptionError
				if !errors.As(err, &bad) || int64(bad.Offset) != g.damage || bad.Path == "" {
					t.Fatalf("got %v, want damage at %d", err, g.damage)
				}
				cfg.Damage = commitlog.DamageSkip
			}
			l, got := open(t, cfg)
			if len(got.at) != g.records || int64(l.Wrote()) != g.end || l.Flushed() != l.Wrote() {
				t.Fatalf("%d records, wrote=%d flushed=%d, want %d and %d",
					len(got.at), l.Wrote(), l.Flushed(), g.records, g.end)
			}
			if told.count() != g.notices {
				t.Errorf("notices %q, want %d", told.msgs, g.notices)
			}
			more := fill(t, l, 5, 300)
			closeLog(t, l)
			cfg.Damage = commitlog.DamageStop
			l, again := open(t, cfg)
			had := g.records
			if g.damage != 0 {
				had++ // what takes the place of the damaged one
			}
			if len(again.at) != had+5 || again.data[had] != more.data[0] ||
				again.data[had+4] != more.data[4] {
				t.Errorf("after appending: %d records up to %d", len(again.at), l.Wrote())
			}
		})
	}
}

// TestGoldenRewrite appends the records that RocketMQ stored, one by one, and gets its files.
func TestGoldenRewrite(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fit", "base"} {
		dir := unpack(t, name)
		l, want := open(t, commitlog.Config{Dir: dir})
		closeLog(t, l)
		mine := t.TempDir()
		l, _ = open(t, commitlog.Config{Dir: mine})
		for i, b := range want.data {
			dst, at, err := l.Reserve(len(b))
			if err != nil {
				t.Fatal(err)
			}
			if int64(at) != want.at[i] {
				t.Fatalf("%s: record %d goes to %d, RocketMQ had it at %d", name, i, at, want.at[i])
			}
			copy(dst, b)
			if err := l.Commit(); err != nil {
				t.Fatal(err)
			}
			l.Publish(at+record.PhysicalOffset(len(b)), 1)
		}
		closeLog(t, l)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			a, errA := os.ReadFile(filepath.Join(dir, e.Name()))
			b, errB := os.ReadFile(filepath.Join(mine, e.Name()))
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%s: segment %s differs (%v, %v)", name, e.Name(), errA, errB)
			}
		}
	}
}
