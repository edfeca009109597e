// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

const sector = 512

// holed is a copy of a log with zeros in the place of some bytes.
func holed(t *testing.T, dir string, at, n int64) string {
	t.Helper()
	image := copyDir(t, dir)
	patch(t, image, at, make([]byte, n))
	return image
}

// sectorEndIn returns the first end of a sector behind offset at.
func sectorEndIn(at int64) int64 { return (at/sector + 1) * sector }

// aside reads the one stretch that was set aside: its offset, its bytes, and what is noted.
func aside(t *testing.T, dir string) (at int64, b []byte, note map[string]any) {
	t.Helper()
	notes, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("notes %v, %v in %s", notes, err, dir)
	}
	text, err := os.ReadFile(notes[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &note); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	b, err = os.ReadFile(strings.TrimSuffix(notes[0], ".json"))
	if err != nil {
		t.Fatal(err)
	}
	return int64(note["offset"].(float64)), b, note
}

// logBytes returns the bytes [from, to) of a log, which lie in one segment.
func logBytes(t *testing.T, dir string, from, to int64) string {
	t.Helper()
	b, err := os.ReadFile(segmentPath(dir, from))
	if err != nil {
		t.Fatal(err)
	}
	return string(b[from%segmentSize : to-from/segmentSize*segmentSize])
}

// TestCrashLostSectors: zeros up to the end of a sector, and be it one byte, behind what was on disk
// and in front of valid records are the trace of a power loss, and the log ends there. In front of
// that mark, or where no power was lost, they are damage.
func TestCrashLostSectors(t *testing.T) {
	t.Parallel()
	dir, want, end := written(t, 200, 900)
	const victim = 120
	at, next := want.at[victim], want.at[victim+1]
	body := sectorEndIn(at + 200)
	for _, zeros := range []int64{1, 2, 40, 63, 64, 200} {
		image := holed(t, dir, body-zeros, zeros)
		damaged := logBytes(t, image, at, next)
		cfg := commitlog.Config{Dir: image, SegmentSize: segmentSize, OnDisk: record.PhysicalOffset(at)}
		var bad *commitlog.CorruptionError
		for name, c := range map[string]func(*commitlog.Config){
			"on disk":      func(c *commitlog.Config) { c.OnDisk++ },
			"no power out": func(c *commitlog.Config) { c.PagesKept = true },
		} {
			strict := cfg
			c(&strict)
			if _, _, err := recoverLog(strict); !errors.As(err, &bad) || int64(bad.Offset) != at ||
				int64(bad.End) != end {
				t.Fatalf("%d zeros, %s: %v", zeros, name, err)
			}
		}
		cfg.DamagedDir = filepath.Join(t.TempDir(), "damaged")
		check(t, cfg, want, victim)
		from, b, note := aside(t, cfg.DamagedDir)
		if from != at || int64(len(b)) != end-at || string(b[:next-at]) != damaged ||
			!strings.HasPrefix(note["done"].(string), "cut, since a power loss") {
			t.Errorf("%d zeros: set aside %d bytes at %d, %v", zeros, len(b), from, note)
		}
		for i := victim + 1; i < len(want.at); i++ { // what lies behind is in the copy as it was
			if got := b[want.at[i]-at:][:len(want.data[i])]; string(got) != want.data[i] {
				t.Fatalf("record %d is not in the copy", i)
			}
		}
	}
	// Nothing is known about the flushed part: only many zeros tell.
	for zeros, ok := range map[int64]bool{8: false, 64: true} {
		cfg := commitlog.Config{Dir: holed(t, dir, body-zeros, zeros), SegmentSize: segmentSize, OnDisk: -1}
		l, _, err := recoverLog(cfg)
		if (err == nil) != ok {
			t.Errorf("%d zeros without a mark: %v", zeros, err)
		}
		if l != nil {
			closeLog(t, l)
		}
	}
}

// TestDamageBehindTheMark: a byte that was changed is no trace of a power loss, wherever it lies.
func TestDamageBehindTheMark(t *testing.T) {
	t.Parallel()
	dir, want, _ := written(t, 200, 900)
	for _, offset := range []int64{2, 5, 30, 100, 950} {
		image := copyDir(t, dir)
		at := want.at[120]
		patch(t, image, at+offset, []byte{0x5A})
		_, _, err := recoverLog(commitlog.Config{Dir: image, SegmentSize: segmentSize})
		var bad *commitlog.CorruptionError
		if offset < 940 && (!errors.As(err, &bad) || int64(bad.Offset) != at) {
			t.Errorf("byte %d: %v", offset, err)
		}
	}
}

// TestCrashLostPageBelowSize: the page that was lost ends with the first bytes of a later record,
// which are zeros in any case, as the size of a record has high bytes of zero (seed 1571).
func TestCrashLostPageBelowSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, commitlog.Config{Dir: dir})
	var want found
	add := func(size int) {
		d := draft(len(want.at), 0)
		d = draft(len(want.at), size-d.Size())
		at, b, err := put(l, &d, len(want.at))
		if err != nil {
			t.Fatal(err)
		}
		want.at, want.data = append(want.at, at), append(want.data, b)
	}
	add(4096 - 200)
	add(200)
	add(4094) // a page but for two bytes
	for range 10 {
		add(300)
	}
	closeLog(t, l)
	image := holed(t, dir, 4096, 4096)
	check(t, commitlog.Config{Dir: image}, want, 2)
}

// TestCrashZeroInProperties: a property with a zero byte at the end of a page is no torn record when
// only the process died, and the records behind it stay.
func TestCrashZeroInProperties(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, commitlog.Config{Dir: dir})
	var want found
	for i := range 9 {
		d := draft(i, 100)
		if i == 3 {
			d.Properties = record.AppendProperty(d.Properties, "ZEROS", strings.Repeat("\x00", 9000))
		}
		at, b, err := put(l, &d, i)
		if err != nil {
			t.Fatal(err)
		}
		want.at, want.data = append(want.at, at), append(want.data, b)
	}
	end := l.Wrote()
	closeLog(t, l)
	check(t, commitlog.Config{Dir: copyDir(t, dir), PagesKept: true}, want, 9)
	check(t, commitlog.Config{Dir: copyDir(t, dir), OnDisk: end}, want, 9)
}

// TestTruncateDamage ends the log at damage when told to. What lay behind is in a file of its own,
// byte for byte, and never comes back into the log, whatever is lost after the cut.
func TestTruncateDamage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	dir, want, end := written(t, 200, 900)
	const victim = 70 // in the middle of a segment, and others follow
	at := want.at[victim]
	patch(t, dir, at+100, []byte{0x5A})
	for round := range 8 {
		image := copyDir(t, dir)
		disk, err := crashfs.New(filepath.Dir(image))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 31, 15, 4, 5, 678e6, time.UTC)
		cfg := commitlog.Config{
			Dir: image, SegmentSize: segmentSize, PagesKept: true, FS: disk, Damage: commitlog.DamageTruncate,
			Now: func() time.Time { return now },
		}
		l, got := open(t, cfg)
		if len(got.at) != victim || int64(l.Wrote()) != at {
			t.Fatalf("%d records up to %d, want %d up to %d", len(got.at), l.Wrote(), victim, at)
		}
		from, b, note := aside(t, filepath.Join(filepath.Dir(image), "damaged"))
		wantNote := map[string]any{
			"offset": float64(at), "size": float64(end - at), "nextRecord": float64(want.at[victim+1]),
			"reason": "the check sum of the body differs", "done": "cut, as --recover=truncate asked for",
			"time": "2026-01-31T15:04:05.678Z",
		}
		if diff := cmp.Diff(wantNote, note); diff != "" || from != at || int64(len(b)) != end-at {
			t.Fatalf("set aside %d bytes at %d: %s", len(b), from, diff)
		}
		for i := victim + 1; i < len(want.at); i++ {
			if got := b[want.at[i]-at:][:len(want.data[i])]; string(got) != want.data[i] {
				t.Fatalf("record %d is not in the copy", i)
			}
		}
		for range round { // the same sizes as those that were cut: old records would fit on
			d := draft(victim+500, 900)
			if _, _, err := put(l, &d, victim+500); err != nil {
				t.Fatal(err)
			}
		}
		lost := filepath.Join(t.TempDir(), "lost")
		if err := disk.Crash(lost, rng, []float64{0, 0.5, 1}[round%3]); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		l, got = open(t, commitlog.Config{Dir: filepath.Join(lost, "copy"), SegmentSize: segmentSize})
		for i, data := range got.data {
			if i >= victim && slices.Contains(want.data[victim:], data) {
				t.Fatalf("round %d: record %d came back behind the cut", round, i)
			}
		}
		if len(got.at) < victim {
			t.Fatalf("round %d: only %d records of %d", round, len(got.at), victim)
		}
		closeLog(t, l)
	}
}

// TestSkipDamage does without damaged records when told to. Later starts need not be told again.
func TestSkipDamage(t *testing.T) {
	t.Parallel()
	dir, want, end := written(t, 200, 900)
	first := slices.IndexFunc(want.at, func(at int64) bool { return at >= segmentSize })
	// One in the middle, and one that the end of its segment follows.
	victims := []int{20, first - 1}
	for _, i := range victims {
		patch(t, dir, want.at[i]+100, []byte{0x5A})
	}
	damaged := logBytes(t, dir, want.at[20], want.at[21])
	cfg := commitlog.Config{Dir: dir, SegmentSize: segmentSize, PagesKept: true}
	cfg.Damage = commitlog.DamageSkip
	l, _ := open(t, cfg)
	closeLog(t, l)
	notes, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "damaged", "*.json"))
	if err != nil || len(notes) != 2 {
		t.Fatalf("notes %v, %v", notes, err)
	}
	b, err := os.ReadFile(strings.TrimSuffix(notes[0], ".json"))
	if err != nil || string(b) != damaged {
		t.Errorf("the copy has %d bytes, %v", len(b), err)
	}
	cfg.Damage = commitlog.DamageStop
	var told notices
	cfg.Notice = told.notice
	l, got := open(t, cfg)
	defer closeLog(t, l)
	if int64(l.Wrote()) != end || told.count() != 0 {
		t.Errorf("wrote %d, want %d; %v", l.Wrote(), end, told.msgs)
	}
	for i, data := range want.data {
		if slices.Contains(got.data, data) == slices.Contains(victims, i) {
			t.Errorf("record %d: wrongly there or missing", i)
		}
	}
	for _, data := range got.data {
		v, err := record.Parse([]byte(data))
		if err != nil || !v.CheckCRC() {
			t.Fatal(err)
		}
		if !slices.Contains(want.data, data) && v.SysFlag()&record.SysTransactionMask != record.SysRollback {
			t.Errorf("%s at %d would get into a queue", v.Topic(), v.PhysicalOffset())
		}
	}
}

// TestLastRecordOnDisk: the last record was on disk and is damaged. The log ends in front of it, as
// RocketMQ's does, but its bytes are kept.
func TestLastRecordOnDisk(t *testing.T) {
	t.Parallel()
	dir, want, end := written(t, 50, 900)
	at := want.at[49]
	patch(t, dir, at+100, []byte{0x5A})
	damaged := logBytes(t, dir, at, end)
	cfg := commitlog.Config{Dir: dir, PagesKept: true, OnDisk: record.PhysicalOffset(at + 1)}
	check(t, cfg, want, 49)
	if from, b, _ := aside(t, filepath.Join(filepath.Dir(dir), "damaged")); from != at ||
		string(b) != damaged {
		t.Errorf("set aside %d bytes at %d", len(b), from)
	}
}

// TestGapTruncated ends the log in front of a missing segment when told to.
func TestGapTruncated(t *testing.T) {
	t.Parallel()
	dir, want, _ := written(t, 200, 900)
	if err := os.Remove(segmentPath(dir, segmentSize)); err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(want.at, func(at int64) bool { return at >= segmentSize })
	cfg := commitlog.Config{Dir: dir, SegmentSize: segmentSize, Damage: commitlog.DamageTruncate}
	check(t, cfg, want, n)
	if _, b, _ := aside(t, filepath.Join(filepath.Dir(dir), "damaged")); len(b) == 0 {
		t.Error("nothing is set aside")
	}
	cfg.Damage = commitlog.DamageStop
	check(t, cfg, want, n)
}
