// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// written returns a closed log with count records.
func written(t *testing.T, count, n int) (dir string, want found, end int64) {
	t.Helper()
	dir = t.TempDir()
	l, _ := open(t, commitlog.Config{Dir: dir})
	want = fill(t, l, count, n)
	end = int64(l.Wrote())
	closeLog(t, l)
	return dir, want, end
}

// check recovers and compares with the first count records.
func check(t *testing.T, cfg commitlog.Config, want found, count int) {
	t.Helper()
	l, got := open(t, cfg)
	if !slices.Equal(got.at, want.at[:count]) || !slices.Equal(got.data, want.data[:count]) {
		t.Errorf("recovered %d records, want %d", len(got.at), count)
	}
	end := want.at[count-1] + int64(len(want.data[count-1]))
	if count < len(want.at) && int64(l.Wrote()) == want.at[count] {
		end = want.at[count] // behind a blank
	}
	if int64(l.Wrote()) != end {
		t.Errorf("wrote %d, want %d", l.Wrote(), end)
	}
	closeLog(t, l)
}

// TestRecoverFrom starts at any place and visits what lies behind it.
func TestRecoverFrom(t *testing.T) {
	t.Parallel()
	dir, want, end := written(t, 200, 900)
	l, err := commitlog.Open(commitlog.Config{Dir: dir, SegmentSize: segmentSize})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stop := errors.New("stop")
	for _, from := range []int64{-1, 0, want.at[3], segmentSize, want.at[150], end, end + 1e6, 1e12} {
		var got []int64
		e, err := l.Recover(record.PhysicalOffset(from), true, func(v record.View) error {
			got = append(got, int64(v.PhysicalOffset()))
			return nil
		})
		first, _ := slices.BinarySearch(want.at, from)
		if int64(e) != end || err != nil || !slices.Equal(got, want.at[first:]) {
			t.Errorf("from %d: end %d, %v, %d records", from, e, err, len(got))
		}
	}
	_, err = l.Recover(0, true, func(record.View) error { return stop })
	if err != stop { //nolint:errorlint // it must come back as it is
		t.Errorf("error of visit: %v", err)
	}
	r, err := l.Region(record.PhysicalOffset(want.at[0]), 10)
	if err != nil {
		t.Errorf("Region before Truncate: %v", err)
	}
	r.Release()
	if _, _, err := l.Reserve(10); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("Reserve before Truncate: %v", err)
	}
}

// TestCrashTornProperties is a crash that lost the properties of the last record. Its check sum,
// over the body, still matches.
func TestCrashTornProperties(t *testing.T) {
	t.Parallel()
	for _, zeros := range []int64{1, 20, 100} {
		dir := t.TempDir()
		l, _ := open(t, commitlog.Config{Dir: dir})
		want := fill(t, l, 10, 300)
		d := draft(10, 300)
		d.Properties = record.AppendProperty(d.Properties, "LONG", strings.Repeat("x", 150))
		if _, _, err := put(l, &d, 10); err != nil {
			t.Fatal(err)
		}
		end := int64(l.Wrote())
		closeLog(t, l)
		patch(t, dir, end-zeros, make([]byte, zeros))
		check(t, commitlog.Config{Dir: dir}, want, 10)
	}
}

// TestTornLookInTheMiddle keeps a record that looks torn and is followed by others: a peer may send
// such properties.
func TestTornLookInTheMiddle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, commitlog.Config{Dir: dir})
	var want found
	for i := range 3 {
		d := draft(i, 300)
		if i == 1 {
			d.Properties = append([]byte("A\x01b"), make([]byte, 90)...)
		}
		at, b, err := put(l, &d, i)
		if err != nil {
			t.Fatal(err)
		}
		want.at, want.data = append(want.at, at), append(want.data, b)
	}
	closeLog(t, l)
	check(t, commitlog.Config{Dir: dir}, want, 3)
}

// TestRecoverStaleRecord copies a valid record behind the last one, which RocketMQ takes in.
func TestRecoverStaleRecord(t *testing.T) {
	t.Parallel()
	dir, want, end := written(t, 100, 900)
	patch(t, dir, end, []byte(want.data[3]))
	check(t, commitlog.Config{Dir: dir}, want, 100)
	b, err := os.ReadFile(segmentPath(dir, end))
	if err != nil || len(bytes.Trim(b[end%segmentSize:], "\x00")) != 0 {
		t.Errorf("the bytes behind the end are not zeros (%v)", err)
	}
}

// TestRecoverDamage flips bytes of a record in the middle: refused with the place, skipped on
// demand, and not looked at by a recovery that starts in a later segment.
func TestRecoverDamage(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]int64{"size": 2, "magic": 5, "place": 30, "body": 100} {
		dir, want, _ := written(t, 200, 900)
		const victim = 120
		at := want.at[victim]
		patch(t, dir, at+offset, []byte{0x5A})
		cfg := commitlog.Config{Dir: dir, SegmentSize: segmentSize}
		_, _, err := recoverLog(cfg)
		var bad *commitlog.CorruptionError
		if !errors.As(err, &bad) || int64(bad.Offset) != at || bad.Path != segmentPath(dir, at) ||
			int64(bad.Next) != want.at[victim+1] || bad.Reason == "" {
			t.Fatalf("%s: %v", name, err)
		}
		checkLaterStart(t, cfg, at)
		cfg.Damage = commitlog.DamageSkip
		rest := found{
			at:   slices.Delete(slices.Clone(want.at), victim, victim+1),
			data: slices.Delete(slices.Clone(want.data), victim, victim+1),
		}
		check(t, cfg, rest, len(rest.at))
	}
}

// checkLaterStart recovers from behind the damage in its segment, and from the next segment.
func checkLaterStart(t *testing.T, cfg commitlog.Config, damage int64) {
	t.Helper()
	var told notices
	cfg.Notice = told.notice
	l, err := commitlog.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	visit := func(record.View) error { return nil }
	if _, err := l.Recover(record.PhysicalOffset(damage+1), true, visit); err != nil {
		t.Errorf("start behind the damage: %v", err)
	}
	if told.count() != 1 {
		t.Errorf("notices %q", told.msgs)
	}
	next := (damage/segmentSize + 1) * segmentSize
	if _, err := l.Recover(record.PhysicalOffset(next), true, visit); err != nil {
		t.Errorf("start in the next segment: %v", err)
	}
}

// TestRecoverLostBlank damages the blank at the end of a segment.
func TestRecoverLostBlank(t *testing.T) {
	t.Parallel()
	dir, want, _ := written(t, 200, 900)
	i := slices.IndexFunc(want.at, func(at int64) bool { return at >= segmentSize })
	blank := want.at[i-1] + int64(len(want.data[i-1]))
	patch(t, dir, blank, []byte("damaged."))
	cfg := commitlog.Config{Dir: dir, PagesKept: true, SegmentSize: segmentSize}
	var bad *commitlog.CorruptionError
	if _, _, err := recoverLog(cfg); !errors.As(err, &bad) || int64(bad.Offset) != blank ||
		bad.Next != segmentSize {
		t.Fatalf("got %v", err)
	}
	cfg.Damage = commitlog.DamageSkip
	check(t, cfg, want, len(want.at))
}

// TestTruncate cuts anywhere a record begins, also at the start of a segment, and goes on there.
func TestTruncate(t *testing.T) {
	t.Parallel()
	dir, want, _ := written(t, 200, 900)
	i := slices.IndexFunc(want.at, func(at int64) bool { return at >= 2*segmentSize })
	for _, count := range []int{150, i + 1, i, 3, 0} {
		l, err := commitlog.Open(commitlog.Config{Dir: dir, SegmentSize: segmentSize})
		if err != nil {
			t.Fatal(err)
		}
		end := record.PhysicalOffset(want.at[count])
		if err := l.Truncate(end); err != nil {
			t.Fatal(err)
		}
		if err := l.Truncate(end); err == nil {
			t.Error("a second Truncate is accepted")
		}
		d := draft(count, 900)
		if at, b, err := put(l, &d, count); at != int64(end) || b != want.data[count] || err != nil {
			t.Fatalf("cut to %d records: next at %d, %v", count, at, err)
		}
		closeLog(t, l)
		check(t, commitlog.Config{Dir: dir}, want, count+1)
	}
	l, err := commitlog.Open(commitlog.Config{Dir: dir, SegmentSize: segmentSize})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, end := range []record.PhysicalOffset{-1, 10 * segmentSize} {
		if err := l.Truncate(end); err == nil {
			t.Errorf("Truncate(%d) is accepted", end)
		}
	}
}

// TestCrashTail cuts or overwrites the tail at random places; recovery returns the records in
// front of the damage.
func TestCrashTail(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	dir, want, end := written(t, 150, 900)
	for round := range 60 {
		image := copyDir(t, dir)
		from := end - rng.Int64N(end-end/segmentSize*segmentSize) // in the last segment
		junk := make([]byte, segmentSize-from%segmentSize)
		if round%2 == 0 {
			junk = junk[:rng.IntN(len(junk))+1]
			for i := range junk {
				junk[i] = byte(rng.Uint32())
			}
			if int64(len(junk)) < end-from { // records behind would make it no tail
				junk = slices.Concat(junk, make([]byte, end-from-int64(len(junk))))
			}
		}
		patch(t, image, from, junk)
		count := 0
		for count < len(want.at) && want.at[count]+int64(len(want.data[count])) <= from {
			count++
		}
		check(t, commitlog.Config{Dir: image}, want, count)
	}
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(filepath.Join(to, "copy"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "copy")
}

// TestCrashPower loses power again and again, with every mix of lost and kept pages. What was
// flushed is recovered, and what is recovered is a prefix of what was written; then the log goes on
// from the image.
func TestCrashPower(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 8 {
		dir := filepath.Join(t.TempDir(), "log")
		if err := vfs.OS().MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		var want found
		for life := range 6 {
			c, err := crashfs.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			l, got := open(t, commitlog.Config{Dir: dir, FS: c})
			if !isPrefix(got, want) {
				t.Fatalf("round %d life %d: %d records recovered are no prefix of %d",
					round, life, len(got.at), len(want.at))
			}
			want = live(t, l, rng, got)
			image := filepath.Join(t.TempDir(), "log")
			flushed := int64(l.Flushed())
			if err := c.Crash(image, rng, []float64{0, 0.3, 0.5, 0.9, 1}[rng.IntN(5)]); err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
			checkImage(t, copyDir(t, image), want, flushed)
			dir = image
		}
	}
}

// live appends for a while and flushes now and then; it returns all records.
func live(t *testing.T, l *commitlog.Log, rng *rand.Rand, had found) found {
	t.Helper()
	want := found{at: slices.Clone(had.at), data: slices.Clone(had.data)}
	for range rng.IntN(120) + 1 {
		d := draft(len(want.at), rng.IntN(6000))
		at, b, err := put(l, &d, len(want.at))
		if err != nil {
			t.Fatal(err)
		}
		want.at, want.data = append(want.at, at), append(want.data, b)
		if rng.IntN(30) == 0 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return want
}

func isPrefix(got, want found) bool {
	return len(got.at) <= len(want.at) && slices.Equal(got.at, want.at[:len(got.at)]) &&
		slices.Equal(got.data, want.data[:len(got.at)])
}

// checkImage recovers what a power loss left.
func checkImage(t *testing.T, dir string, want found, flushed int64) {
	t.Helper()
	l, got := open(t, commitlog.Config{Dir: dir})
	defer closeLog(t, l)
	if !isPrefix(got, want) {
		t.Fatalf("%d records are no prefix of the %d written", len(got.at), len(want.at))
	}
	for i, at := range want.at {
		if at+int64(len(want.data[i])) <= flushed && i >= len(got.at) {
			t.Fatalf("flushed up to %d, but only %d records of %d are left",
				flushed, len(got.at), len(want.at))
		}
	}
}

// FuzzTail puts any bytes behind, or in place of the end of, a log. Recovery never fails and never
// loses what is in front of them.
func FuzzTail(f *testing.F) {
	d := draft(3, 200)
	b := make([]byte, d.Size())
	d.Encode(b, record.Place{Physical: 0})
	f.Add(b, uint16(0))
	f.Add(b[:50], uint16(0))
	f.Add([]byte("\x00\x00\x00\x10\xcb\xd4\x31\x94"), uint16(3))
	f.Fuzz(func(t *testing.T, tail []byte, back uint16) {
		dir := t.TempDir()
		l, _ := open(t, commitlog.Config{Dir: dir})
		want := fill(t, l, 10, 300)
		end := int64(l.Wrote())
		closeLog(t, l)
		at := max(0, end-int64(back))
		patch(t, dir, at, tail[:min(len(tail), int(segmentSize-at))])
		l, got, err := recoverLog(commitlog.Config{
			Dir: dir, SegmentSize: segmentSize, Damage: commitlog.DamageSkip,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i, start := range want.at {
			whole := start+int64(len(want.data[i])) <= at
			if whole && (i >= len(got.at) || got.data[i] != want.data[i]) {
				t.Fatalf("record %d at %d is lost", i, start)
			}
		}
	})
}
