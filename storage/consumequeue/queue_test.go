// SPDX-License-Identifier: Apache-2.0

package consumequeue_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// unitAt is the unit that the tests put at a queue offset.
func unitAt(i int64) consumequeue.Unit {
	return consumequeue.Unit{At: record.PhysicalOffset(i * 100), Size: 100, TagsCode: -i}
}

func openSet(t *testing.T, dir string, units int64) (*consumequeue.Set, []consumequeue.State) {
	t.Helper()
	set, err := consumequeue.Open(consumequeue.Config{Dir: dir, FileSize: units * 20, MaxOpen: 4})
	if err != nil {
		t.Fatal(err)
	}
	states, foreign, err := set.Load(consumequeue.Bounds{LogEnd: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	if len(foreign) > 0 {
		t.Fatalf("foreign files %v", foreign)
	}
	t.Cleanup(set.Close)
	return set, states
}

func create(t *testing.T, set *consumequeue.Set, topic string, id int32) *consumequeue.Queue {
	t.Helper()
	q, err := set.Create(topic, id)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func appendUnits(t *testing.T, q *consumequeue.Queue, n int) {
	t.Helper()
	if err := q.Prepare(n); err != nil {
		t.Fatal(err)
	}
	for range n {
		q.Append(q.Written(), unitAt(int64(q.Written())))
	}
	q.Publish()
}

// wantUnits checks that the queue holds exactly [from, to) as unitAt says.
func wantUnits(t *testing.T, q *consumequeue.Queue, from, to int64) {
	t.Helper()
	if int64(q.Min()) != from || int64(q.End()) != to {
		t.Fatalf("queue %s is [%d, %d), want [%d, %d)", q.ID(), q.Min(), q.End(), from, to)
	}
	for i := from; i < to; i++ {
		u, ok := q.Unit(record.QueueOffset(i))
		if !ok || u != unitAt(i) {
			t.Fatalf("queue %s unit %d = %+v, %v, want %+v", q.ID(), i, u, ok, unitAt(i))
		}
	}
}

// TestUndo: what a round appended and cannot publish leaves the file as it was, over the end of a file too,
// and the queue goes on in its place.
func TestUndo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, _ := openSet(t, dir, 10)
	q := create(t, set, "T", 0)
	appendUnits(t, q, 7)
	q.Begin()
	if err := q.Prepare(6); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		q.Append(q.Written(), unitAt(int64(q.Written())+1000))
	}
	q.Undo()
	wantUnits(t, q, 0, 7)
	if q.Written() != 7 {
		t.Errorf("the next unit is %d, want 7", q.Written())
	}
	var all []byte
	for _, base := range []int64{0, 10 * 20} {
		b, err := os.ReadFile(filepath.Join(dir, "T", "0", fmt.Sprintf("%020d", base)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if n := bytes.Count(all[7*20:], []byte{0}); n != 13*20 {
		t.Errorf("%d bytes behind the last unit are not zero", 13*20-n)
	}
	appendUnits(t, q, 8)
	wantUnits(t, q, 0, 15)
}

// TestGoldenUnit pins the bytes of a unit.
func TestGoldenUnit(t *testing.T) {
	t.Parallel()
	want := []byte{
		0, 0, 0, 0, 0, 0, 0x5B, 0x42, 0, 0, 0x05, 0xB7,
		0xFF, 0xFF, 0xFF, 0xFF, 0xE8, 0x97, 0xC5, 0x79,
	}
	u := consumequeue.DecodeUnit(want)
	if u != (consumequeue.Unit{At: 0x5B42, Size: 1463, TagsCode: -392706695}) {
		t.Fatalf("decoded %+v", u)
	}
	got := make([]byte, consumequeue.UnitSize)
	u.Encode(got)
	if !bytes.Equal(got, want) {
		t.Fatalf("encoded %x, want %x", got, want)
	}
}

// TestAppendReadReopen crosses files and reads the same after a restart.
func TestAppendReadReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, _ := openSet(t, dir, 10)
	q := create(t, set, "T", 3)
	for _, n := range []int{1, 8, 1, 1, 35, 4} {
		appendUnits(t, q, n)
	}
	wantUnits(t, q, 0, 50)
	if more, err := set.Flush(0); more || err != nil {
		t.Fatalf("flush: more %v, error %v", more, err)
	}
	if n := set.OpenFiles(); n > 4 {
		t.Fatalf("%d files mapped at rest, the bound is 4", n)
	}
	set.CloseIdle()
	if n := set.CloseIdle(); n != 0 {
		t.Fatalf("%d files mapped after two idle rounds", n)
	}
	wantUnits(t, q, 0, 50)
	set.Close()

	set, states := openSet(t, dir, 10)
	if len(states) != 1 || states[0].Damage != "" || states[0].End != 5000 {
		t.Fatalf("states %+v", states)
	}
	q = set.Lookup([]byte("T"), 3)
	wantUnits(t, q, 0, 50)
	appendUnits(t, q, 1)
	wantUnits(t, q, 0, 51)
	entries, _ := os.ReadDir(filepath.Join(dir, "T", "3"))
	if len(entries) != 6 || entries[5].Name() != "00000000000000001000" {
		t.Fatalf("files %v", entries)
	}
}

// TestModelQueues runs random operations on several queues against counters.
func TestModelQueues(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	set, _ := openSet(t, dir, 7)
	model := make([]int64, 9)
	for range 2000 {
		id := int32(r.IntN(len(model)))
		q := create(t, set, "T", id)
		switch op := r.IntN(100); {
		case op < 60:
			n := 1 + r.IntN(20)
			appendUnits(t, q, n)
			model[id] += int64(n)
		case op < 80 && model[id] > 0:
			at := r.Int64N(model[id])
			units, ok := q.Units(record.QueueOffset(at))
			if !ok {
				t.Fatalf("queue %d has no units at %d of %d", id, at, model[id])
			}
			for i := range units.Len() {
				if units.At(i) != unitAt(at+int64(i)) {
					t.Fatalf("queue %d unit %d = %+v", id, at+int64(i), units.At(i))
				}
			}
			units.Release()
		case op < 90:
			if _, err := set.Flush(int64(r.IntN(2))); err != nil {
				t.Fatal(err)
			}
		case op < 97:
			set.CloseIdle()
		default:
			set.Close()
			set, _ = openSet(t, dir, 7)
		}
	}
	for id, n := range model {
		wantUnits(t, create(t, set, "T", int32(id)), 0, n)
	}
}

// TestLoadDamage cuts what is wrong and says from where to dispatch again.
func TestLoadDamage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(dir string)
		end    int64
		from   record.PhysicalOffset
		broken bool
	}{
		"none":          {func(string) {}, 35, 0, false},
		"hole":          {func(dir string) { zero(dir, 12, 1) }, 12, 1200, true},
		"last unit":     {func(dir string) { zero(dir, 34, 1) }, 34, 0, false},
		"tail of zeros": {func(dir string) { zero(dir, 18, 17) }, 18, 0, false},
		"first unit":    {func(dir string) { zero(dir, 0, 1) }, 35, 0, false}, // not read: trusted
		"file missing":  {func(dir string) { remove(dir, 10) }, 10, 1000, true},
		"last missing":  {func(dir string) { remove(dir, 30) }, 30, 0, false},
		"order":         {func(dir string) { put(dir, 25, unitAt(3)) }, 25, 2500, true},
		"beyond log":    {func(dir string) { put(dir, 34, unitAt(1<<40)) }, 34, 3400, true},
		"negative size": {func(dir string) { put(dir, 34, consumequeue.Unit{Size: -1}) }, 34, 3400, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			set, _ := openSet(t, dir, 10)
			appendUnits(t, create(t, set, "T", 0), 35)
			set.Close()
			c.damage(filepath.Join(dir, "T", "0"))
			set, err := consumequeue.Open(consumequeue.Config{Dir: dir, FileSize: 200})
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			states, _, err := set.Load(consumequeue.Bounds{LogEnd: 1 << 40, Trusted: 1 << 40})
			if err != nil {
				t.Fatal(err)
			}
			q, st := set.Lookup([]byte("T"), 0), states[0]
			if int64(q.End()) != c.end || st.From != c.from || st.Damage != "" != c.broken {
				t.Fatalf("end %d, state %+v; want end %d, from %d", q.End(), st, c.end, c.from)
			}
			for i := c.end; i < 35; i++ {
				if o, old, err := q.Put(record.QueueOffset(i), unitAt(i)); o != consumequeue.Added || err != nil {
					t.Fatalf("put %d: %v, %+v, %v", i, o, old, err)
				}
			}
			if name != "first unit" {
				wantUnits(t, q, 0, 35)
			}
		})
	}
}

func put(dir string, at int64, u consumequeue.Unit) {
	var b [consumequeue.UnitSize]byte
	u.Encode(b[:])
	write(dir, at, b[:])
}

func zero(dir string, at, n int64) {
	for i := range n {
		write(dir, at+i, make([]byte, consumequeue.UnitSize))
	}
}

func fileOf(dir string, at int64) string {
	const digits = "00000000000000000000"
	name := []byte(digits)
	for i, n := len(name)-1, at/10*200; n > 0; i, n = i-1, n/10 {
		name[i] = '0' + byte(n%10)
	}
	return filepath.Join(dir, string(name))
}

func write(dir string, at int64, b []byte) {
	f, err := os.OpenFile(fileOf(dir, at), os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt(b, at%10*20)
	}
	if err != nil {
		panic(err)
	}
	_ = f.Close()
}

func remove(dir string, at int64) {
	if err := os.Remove(fileOf(dir, at)); err != nil {
		panic(err)
	}
}

// TestPutRebuild covers queues that begin late, gaps, conflicts and older files made again.
func TestPutRebuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, _ := openSet(t, dir, 10)
	q := create(t, set, "T", 0)
	check := func(at int64, u consumequeue.Unit, want consumequeue.Outcome) {
		t.Helper()
		if got, _, err := q.Put(record.QueueOffset(at), u); got != want || err != nil {
			t.Fatalf("put %d = %v, %v, want %v", at, got, err, want)
		}
	}
	check(14, unitAt(14), consumequeue.Added)
	check(15, unitAt(15), consumequeue.Added)
	check(14, unitAt(14), consumequeue.Present)
	check(17, unitAt(17), consumequeue.Ahead)
	check(15, unitAt(77), consumequeue.Conflict)
	q.CorrectMin(0)
	wantUnits(t, q, 14, 16)
	check(13, unitAt(13), consumequeue.Added) // takes the place of a filler
	wantUnits(t, q, 13, 16)
	check(3, unitAt(3), consumequeue.Added) // makes the first file
	for i := int64(4); i < 13; i++ {
		check(i, unitAt(i), consumequeue.Added)
	}
	wantUnits(t, q, 3, 16)
	if err := q.Truncate(11); err != nil {
		t.Fatal(err)
	}
	wantUnits(t, q, 3, 11)
	check(11, unitAt(11), consumequeue.Added)
	if n, err := q.TruncateLog(1050); n != 2 || err != nil {
		t.Fatalf("cut %d units, %v", n, err)
	}
	wantUnits(t, q, 3, 10)
	q.CorrectMin(500)
	wantUnits(t, q, 5, 10)
	if err := q.FillTo(33); err != nil {
		t.Fatal(err)
	}
	check(33, unitAt(33), consumequeue.Added)
	q.CorrectMin(900)
	if q.Min() != 9 {
		t.Fatalf("min %d, want 9", q.Min())
	}
	q.CorrectMin(1000)
	wantUnits(t, q, 33, 34)
}

// TestPublishBelow shows units only when the log is flushed up to them.
func TestPublishBelow(t *testing.T) {
	t.Parallel()
	set, _ := openSet(t, t.TempDir(), 10)
	q := create(t, set, "T", 0)
	if err := q.Prepare(25); err != nil {
		t.Fatal(err)
	}
	for i := range int64(25) {
		q.Append(record.QueueOffset(i), unitAt(i))
	}
	q.Release()
	for _, limit := range []int64{0, 99, 100, 1250, 1999, 2500} {
		all := q.PublishBelow(record.PhysicalOffset(limit))
		if got := int64(q.End()); got != limit/100 || all != (got == 25) {
			t.Fatalf("flushed %d: end %d, all %v", limit, got, all)
		}
	}
}

// TestDeleteWhileRead keeps what a reader holds readable.
func TestDeleteWhileRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, _ := openSet(t, dir, 10)
	q := create(t, set, "T", 0)
	appendUnits(t, q, 5)
	units, ok := q.Units(0)
	if !ok {
		t.Fatal("no units")
	}
	if err := set.Delete("T"); err != nil {
		t.Fatal(err)
	}
	if got := units.At(4); got != unitAt(4) {
		t.Fatalf("unit of a deleted queue %+v", got)
	}
	units.Release()
	if _, ok := q.Units(0); ok {
		t.Fatal("a deleted queue still gives units")
	}
	if set.Lookup([]byte("T"), 0) != nil {
		t.Fatal("deleted queue found")
	}
	if _, err := os.Stat(filepath.Join(dir, "T")); !os.IsNotExist(err) {
		t.Fatalf("folder still there: %v", err)
	}
	if _, err := set.Flush(0); err != nil {
		t.Fatal(err)
	}
	appendUnits(t, create(t, set, "T", 0), 3)
	wantUnits(t, set.Lookup([]byte("T"), 0), 0, 3)
}

// TestOpenRefusesOtherSize names the configuration key.
func TestOpenRefusesOtherSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, _ := openSet(t, dir, 10)
	appendUnits(t, create(t, set, "T", 0), 5)
	set.Close()
	other, err := consumequeue.Open(consumequeue.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Load(consumequeue.Bounds{LogEnd: 1 << 40}); err == nil {
		t.Fatal("loaded files of another size")
	} else {
		t.Log(err)
	}
}

// TestAllocsAppendRead holds the hot path at zero.
func TestAllocsAppendRead(t *testing.T) {
	set, _ := openSet(t, t.TempDir(), 300_000)
	q := create(t, set, "T", 0)
	appendUnits(t, q, 1)
	topic := []byte("T")
	n := testing.AllocsPerRun(1000, func() {
		q := set.Lookup(topic, 0)
		if err := q.Prepare(1); err != nil {
			t.Fatal(err)
		}
		q.Append(q.Written(), unitAt(int64(q.Written())))
		q.Publish()
		units, ok := q.Units(q.End() - 1)
		if !ok || units.Len() != 1 {
			t.Fatal("no unit")
		}
		units.Release()
	})
	if n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}
