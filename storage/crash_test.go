// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

var seedsFlag = flag.Int("seeds", 0,
	"how many seeds TestCrashHistories runs; 0: as many as end within a few seconds")

// shortHistories is how long TestCrashHistories takes new seeds when none are asked for.
const shortHistories = 6 * time.Second

// TestCrashHistories runs histories that a seed decides: append, batch, flush, roll, checkpoint,
// retention, deletion of topics, faults of the disk, restart, power loss and death of the process
// at any call to the file system, recovery. After each crash the store is compared with a model.
//
// `make crash SEEDS=n` runs n seeds, `make crash SEED=x` one of them again. A seed decides all but
// how the store's goroutines run beside each other, which counts with SYNC_FLUSH only.
func TestCrashHistories(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		story, err := runHistory(*seedFlag, t.TempDir(), &tally{})
		t.Log(story)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var sum tally
	var next, failed atomic.Int64
	first := rand.Uint64() >> 16
	began, told := time.Now(), time.Now()
	var progress sync.Mutex
	more := func() (uint64, bool) {
		n := next.Add(1)
		if *seedsFlag == 0 {
			return first + uint64(n), time.Since(began) < shortHistories
		}
		progress.Lock()
		defer progress.Unlock()
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			rate := float64(n) / time.Since(began).Seconds()
			fmt.Fprintf(os.Stderr, "crash: %d of %d seeds, %.0f/s, %s left, %d violations\n", n, *seedsFlag,
				rate, time.Duration(float64(*seedsFlag-int(n))/rate*1e9).Round(time.Second), failed.Load())
		}
		return uint64(n), n <= int64(*seedsFlag)
	}
	var workers sync.WaitGroup
	base := t.TempDir()
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, ok := more(); ok && failed.Load() < 10; seed, ok = more() {
				dir := filepath.Join(base, fmt.Sprint(seed))
				if story, err := runHistory(seed, dir, &sum); err != nil {
					failed.Add(1)
					t.Errorf("seed %d: %v\n%s", seed, err, story)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	line := fmt.Sprintf("crash: %s; %d violations; %s", &sum, failed.Load(),
		time.Since(began).Round(100*time.Millisecond))
	t.Log(line)
	if *seedsFlag > 0 {
		fmt.Fprintln(os.Stderr, line)
	}
	if sum.crashes.Load() == 0 || sum.checked.Load() == 0 {
		t.Error("nothing was tested")
	}
}

// tally counts what histories did.
type tally struct {
	seeds, appended, crashes, kills, inside, faults, restarts, deletes, cleaned, checked atomic.Int64
}

func (s *tally) String() string {
	return fmt.Sprintf("%d seeds, %d messages stored, %d power losses and %d kills (%d of them within "+
		"a call), %d disk faults, %d clean restarts, %d topics deleted, %d log files deleted, "+
		"%d messages compared", s.seeds.Load(), s.appended.Load(), s.crashes.Load(), s.kills.Load(),
		s.inside.Load(), s.faults.Load(), s.restarts.Load(), s.deletes.Load(), s.cleaned.Load(),
		s.checked.Load())
}

// slot is a message that was sent to a queue.
type slot struct {
	text    string
	at, end record.PhysicalOffset // end 0: not acknowledged
}

// line is what a queue may hold: slots[:least] for sure.
type line struct {
	slots []slot
	least int
	// gone says that a deletion of the topic had begun: the queue may be empty.
	gone bool
}

// image is what a crash left, and what must be in it.
type image struct {
	dir     string
	killed  bool
	lines   map[storage.QueueID]line
	logMin  record.PhysicalOffset // no file from here on was deleted
	flushed record.PhysicalOffset
}

// history is one run.
type history struct {
	r      *rand.Rand // of the operations
	images *rand.Rand // of what crashes leave; only used under mu
	sum    *tally
	cfg    storage.Config
	disk   *crashfs.FS
	store  *storage.Store
	base   string
	round  int
	keep   float64

	storyMu sync.Mutex
	story   strings.Builder

	// Guards what follows, which calls to the file system read from any goroutine; only the
	// history's own writes lines, and calls nothing of the store meanwhile.
	mu      sync.Mutex
	lines   map[storage.QueueID]line
	logMin  record.PhysicalOffset
	calls   int // to the file system, this round
	crashAt int // the number of the call that a power loss comes before; 0: none
	failAt  int // that of the call that fails; 0: none
	failure error
	failed  bool
	taken   *image
}

// runHistory runs the history of a seed in a directory of its own, and tells it.
func runHistory(seed uint64, dir string, sum *tally) (story string, err error) {
	h := &history{
		r: rand.New(rand.NewPCG(seed, 2)), images: rand.New(rand.NewPCG(seed, 3)), sum: sum,
		base: dir, lines: map[storage.QueueID]line{},
	}
	h.configure()
	sum.seeds.Add(1)
	for range 2 + h.r.IntN(4) {
		if err = h.life(); err != nil {
			err = fmt.Errorf("life %d: %w", h.round, err)
			break
		}
	}
	if h.store != nil {
		_ = h.store.Close()
	}
	return h.story.String(), err
}

// logf adds to the story.
func (h *history) logf(format string, args ...any) {
	h.storyMu.Lock()
	defer h.storyMu.Unlock()
	_, _ = fmt.Fprintf(&h.story, format+"\n", args...)
}

func (h *history) configure() {
	cfg := small(filepath.Join(h.base, "0"))
	cfg.SyncFlush = h.r.IntN(3) == 0
	cfg.FlushInterval, cfg.FlushThorough = time.Hour, time.Hour
	cfg.QueueFlushInterval, cfg.QueueFlushThorough = time.Hour, time.Hour
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 101, 100
	cfg.QueueFilesOpen = 2 + h.r.IntN(5)
	cfg.Retention = storage.Retention{
		Keep: time.Hour, MaxUsedRatio: 100, Every: time.Hour, Batch: 100,
	}
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	cfg.Now = func() time.Time { return time.UnixMilli(now.Add(1)) }
	cfg.Notice = func(msg string, kv ...any) { h.logf("  store: %s %v", msg, kv) }
	h.cfg = cfg
}

// life opens the store, does things, and ends in a crash.
func (h *history) life() error {
	h.round++
	if err := os.MkdirAll(h.cfg.RootDir, 0o755); err != nil {
		return err
	}
	disk, err := crashfs.New(h.cfg.RootDir)
	if err != nil {
		return err
	}
	h.disk = disk
	h.cfg.FS, h.cfg.CommitLogDir = openFS{disk}, ""
	h.mu.Lock()
	h.calls, h.crashAt, h.failAt, h.failed, h.taken = 0, 0, 0, false, nil
	h.keep = []float64{0, 0.3, 0.9, 1}[h.r.IntN(4)]
	switch h.r.IntN(6) {
	case 0: // already while it recovers, mostly
		h.crashAt = 1 + h.r.IntN(25)
	case 1, 2:
		h.crashAt = 1 + h.r.IntN(300)
	case 3:
		h.failAt = 20 + h.r.IntN(300)
		h.failure = []error{syscall.EIO, syscall.ENOSPC}[h.r.IntN(2)]
	}
	h.mu.Unlock()
	disk.Before = h.before
	h.logf("life %d in %s: crash at call %d, fault %v at call %d, keep %g", h.round, h.cfg.RootDir,
		h.crashAt, h.failure, h.failAt, h.keep)
	if err := h.open(); err != nil {
		return err
	}
	if h.store != nil {
		h.mu.Lock()
		h.logMin = h.store.Info().Min // no file is old any more
		h.mu.Unlock()
	}
	for range 5 + h.r.IntN(60) {
		if h.store == nil || h.ended() {
			break
		}
		if err := h.step(); err != nil {
			return err
		}
	}
	return h.crash()
}

// open opens the store and compares it with the model.
func (h *history) open() error {
	s, err := storage.Open(h.cfg)
	if err != nil {
		if h.hurt() || h.ended() {
			h.logf("open: %v", err)
			return nil // a fault may keep the store from starting; the next life must see everything
		}
		return fmt.Errorf("open: %w", err)
	}
	h.store = s
	return h.settle()
}

// before is called ahead of every call to the file system.
func (h *history) before(op, path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if h.calls == h.crashAt {
		h.logf("  power loss before %s %s", op, path)
		h.sum.inside.Add(1)
		h.takeLocked(h.keep, false)
	}
	if h.calls == h.failAt {
		h.logf("  %s %s fails: %v", op, path, h.failure)
		h.failed = true
		h.sum.faults.Add(1)
		return &os.PathError{Op: op, Path: path, Err: h.failure}
	}
	return nil
}

// takeLocked takes the image of a crash now.
func (h *history) takeLocked(keep float64, killed bool) {
	im := &image{
		dir: filepath.Join(h.base, fmt.Sprint(h.round)), killed: killed, logMin: h.logMin,
		lines: make(map[storage.QueueID]line, len(h.lines)),
	}
	if s := h.store; s != nil {
		im.flushed = s.Flushed()
	}
	for id, l := range h.lines {
		l.slots = append([]slot(nil), l.slots...)
		for i := l.least; i < len(l.slots) && h.store != nil; i++ {
			if end := l.slots[i].end; end == 0 || end > im.flushed && !killed {
				break
			}
			l.least++
		}
		im.lines[id] = l
	}
	if err := os.MkdirAll(im.dir, 0o755); err != nil {
		panic(err)
	}
	if err := h.disk.Crash(im.dir, h.images, keep); err != nil {
		panic(err)
	}
	h.taken = im
}

// hurt reports whether the disk has failed in this life.
func (h *history) hurt() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// ended reports whether the crash of this life has come.
func (h *history) ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken != nil
}

// crash ends the life, and makes the next one begin with what is left.
func (h *history) crash() error {
	if !h.ended() {
		kill := h.r.IntN(3) == 0
		if kill && h.store != nil { // the image of a kill is not taken in one moment
			h.await(func(i storage.Info) bool { return i.Indexed >= i.Dispatched })
		}
		h.mu.Lock()
		h.logf("end of life: kill %v", kill)
		if kill {
			h.takeLocked(1, true)
		} else {
			h.takeLocked(h.keep, false)
		}
		h.mu.Unlock()
	}
	im := h.taken
	if im.killed {
		h.sum.kills.Add(1)
	} else {
		h.sum.crashes.Add(1)
	}
	h.disk.Before = nil
	if h.store != nil {
		_ = h.store.Close() // of a world that no longer is
		h.store = nil
	}
	if err := os.RemoveAll(h.cfg.RootDir); err != nil {
		return err
	}
	h.lines, h.logMin = im.lines, im.logMin
	h.cfg.RootDir = im.dir
	return nil
}

// await waits for what the store's goroutines do, for a second at the most.
func (h *history) await(done func(storage.Info) bool) bool {
	for end := time.Now().Add(time.Second); time.Now().Before(end); runtime.Gosched() {
		if done(h.store.Info()) {
			return true
		}
	}
	return false
}

// step does one thing.
func (h *history) step() error {
	switch op := h.r.IntN(100); {
	case op < 66:
		return h.append()
	case op < 76:
		if err := h.store.Flush(); err != nil && !h.hurt() {
			return fmt.Errorf("flush: %w", err)
		}
	case op < 82:
		h.store.FlushQueues()
	case op < 87:
		return h.clean()
	case op < 91:
		return h.deleteTopic()
	case op < 93:
		return h.restart()
	default:
		return h.look()
	}
	return nil
}

// append sends a random batch. The model knows of it before the store does.
func (h *history) append() error {
	es, texts := randomEntries(h.r)
	h.mu.Lock()
	starts := make([]int, len(es))
	for i := range es {
		id := entryQueue(&es[i])
		l := h.lines[id]
		starts[i] = len(l.slots)
		for _, text := range texts[i] {
			l.slots = append(l.slots, slot{text: text})
		}
		h.lines[id] = l
	}
	h.mu.Unlock()
	h.store.Append(es)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.note(es, texts, starts)
}

// note tells the model how the store answered. What it refused goes out of the model.
func (h *history) note(es []storage.Entry, texts [][]string, starts []int) error {
	refused := map[storage.QueueID]int{}
	for i := range es {
		e, id := &es[i], entryQueue(&es[i])
		l := h.lines[id]
		at := starts[i] - refused[id]
		if e.Err != nil {
			if !h.failed {
				return fmt.Errorf("append: %w", e.Err)
			}
			l.slots = append(l.slots[:at:at], l.slots[at+len(texts[i]):]...)
			refused[id] += len(texts[i])
			h.lines[id] = l
			continue
		}
		h.sum.appended.Add(int64(len(texts[i])))
		if int(e.QueueOffset) != at || int(e.Count) != len(texts[i]) {
			return fmt.Errorf("queue %s: %d messages at %d, want %d at %d", id, e.Count, e.QueueOffset,
				len(texts[i]), at)
		}
		places := append([]record.PhysicalOffset{}, e.Places...)
		if len(places) == 0 {
			places = append(places, e.At)
		}
		for j := range texts[i] {
			s := &l.slots[at+j]
			s.at, s.end = places[j], e.End
			if j+1 < len(places) {
				s.end = places[j+1]
			}
		}
	}
	return nil
}

func entryQueue(e *storage.Entry) storage.QueueID {
	return storage.QueueID{Topic: string(e.Draft.Topic), Queue: e.Draft.QueueID}
}

// clean makes the oldest files of the log old, and has the cleaner look.
func (h *history) clean() error {
	files, err := filepath.Glob(filepath.Join(h.cfg.RootDir, "commitlog", "*"))
	if err != nil || len(files) < 2 {
		return err
	}
	n := 1 + h.r.IntN(len(files)-1)
	old := time.Now().Add(-2 * time.Hour)
	for _, f := range files[:n] {
		if err := os.Chtimes(f, old, old); err != nil {
			return err
		}
	}
	before := h.store.Info().Min
	segment := record.PhysicalOffset(h.cfg.SegmentSize)
	h.mu.Lock()
	h.logMin = max(h.logMin, before+record.PhysicalOffset(n)*segment)
	h.mu.Unlock()
	h.store.CleanNow(time.Now())
	low := h.store.Info().Min
	h.mu.Lock()
	defer h.mu.Unlock()
	if low > h.logMin {
		return fmt.Errorf("clean: the log begins at %d, only what is below %d was old", low, h.logMin)
	}
	h.sum.cleaned.Add(int64((low - before) / segment))
	return nil
}

func (h *history) deleteTopic() error {
	topic := fmt.Sprintf("T%d", h.r.IntN(3))
	h.mu.Lock()
	for id, l := range h.lines {
		if id.Topic == topic {
			l.gone = true
			h.lines[id] = l
		}
	}
	h.mu.Unlock()
	h.logf("delete %s", topic)
	err := h.store.DeleteTopic(topic)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if !h.failed {
			return fmt.Errorf("delete %s: %w", topic, err)
		}
		if h.taken == nil { // the life ends: whether the topic is there is not known
			h.takeLocked(h.keep, false)
		}
		return nil
	}
	h.sum.deletes.Add(1)
	for id := range h.lines {
		if id.Topic == topic {
			delete(h.lines, id)
		}
	}
	return nil
}

// restart stops the store cleanly and opens it again. The disk goes on: what Close did not sync can
// still be lost.
func (h *history) restart() error {
	h.logf("restart")
	err := h.store.Close()
	if err != nil && !h.hurt() {
		return fmt.Errorf("close: %w", err)
	}
	h.mu.Lock()
	if err == nil {
		flushed := h.store.Flushed()
		for id, l := range h.lines {
			for l.least < len(l.slots) && l.slots[l.least].end <= flushed {
				l.least++
			}
			h.lines[id] = l
		}
	}
	h.store = nil
	h.mu.Unlock()
	h.sum.restarts.Add(1)
	return h.open()
}

// look compares one queue with the model.
func (h *history) look() error {
	for id := range h.lines {
		if h.cfg.SyncFlush { // what is not on disk is not visible
			if err := h.store.Flush(); err != nil {
				return nil //nolint:nilerr // the disk has failed
			}
			if !h.await(func(i storage.Info) bool { return i.Dispatched >= i.Wrote }) {
				return nil
			}
		}
		return h.compare(id, len(h.lines[id].slots))
	}
	return nil
}

// settle compares the whole store with the model after a crash, and makes the model what is there.
func (h *history) settle() error {
	low := h.store.Info().Min
	if low > h.logMin {
		return fmt.Errorf("the log begins at %d, nothing behind %d was deleted", low, h.logMin)
	}
	for _, topic := range h.store.Topics() {
		for _, queue := range h.store.Queues(topic) {
			id := storage.QueueID{Topic: topic, Queue: queue}
			if _, hi, _ := h.store.QueueBounds([]byte(topic), queue); hi > 0 && h.lines[id].slots == nil {
				return fmt.Errorf("queue %s has %d messages and was deleted or never there", id, hi)
			}
		}
	}
	for id, l := range h.lines {
		_, end, _ := h.store.QueueBounds([]byte(id.Topic), id.Queue)
		hi := int(end)
		if l.gone && hi == 0 {
			h.mu.Lock()
			delete(h.lines, id)
			h.mu.Unlock()
			continue
		}
		if hi < l.least || hi > len(l.slots) {
			return fmt.Errorf("queue %s ends at %d, want between %d and %d (log %d to %d)", id, hi, l.least,
				len(l.slots), h.store.Info().Min, h.store.Info().Wrote)
		}
		l.slots, l.least, l.gone = l.slots[:hi:hi], hi, false
		h.mu.Lock()
		h.lines[id] = l
		h.mu.Unlock()
		if err := h.compare(id, hi); err != nil {
			return err
		}
	}
	return h.keys()
}

// compare reads what a queue has below hi: from the first message that the log still has on, every
// one is there, as it was sent.
func (h *history) compare(id storage.QueueID, hi int) error {
	slots := h.lines[id].slots
	low, end, _ := h.store.QueueBounds([]byte(id.Topic), id.Queue)
	if int(end) != hi {
		return fmt.Errorf("queue %s ends at %d, want %d", id, end, hi)
	}
	logMin := h.store.Info().Min
	for i := int(low) - 1; i >= 0 && slots[i].at >= logMin && slots[i].end > 0; i-- {
		return fmt.Errorf("queue %s begins at %d and hides the message before it, at %d of a log from %d",
			id, low, slots[i].at, logMin)
	}
	var res storage.ReadResult
	for at := int(low); at < hi; {
		h.store.Read(&storage.ReadRequest{
			Topic: []byte(id.Topic), Queue: id.Queue, From: record.QueueOffset(at), MaxMessages: 32,
		}, &res)
		got, err := recordBodies(&res)
		if err != nil {
			return fmt.Errorf("queue %s at %d: %w", id, at, err)
		}
		if len(got) == 0 || int(res.Next) != at+len(got) {
			return fmt.Errorf("queue %s (%d to %d) at %d: %s, %d messages, next %d", id, low, hi, at,
				res.Status, len(got), res.Next)
		}
		h.mu.Lock()
		for i, v := range got {
			if v.text != slots[at+i].text {
				h.mu.Unlock()
				return fmt.Errorf("queue %s offset %d holds %.40q, want %.40q", id, at+i, v.text,
					slots[at+i].text)
			}
			slots[at+i].at, slots[at+i].end = v.at, v.end
		}
		h.mu.Unlock()
		at += len(got)
		h.sum.checked.Add(int64(len(got)))
	}
	return nil
}

// recordBodies parses the records of a result and releases its regions.
func recordBodies(res *storage.ReadResult) (list []slot, err error) {
	defer zerocopy.ReleaseAll(res.Regions)
	for i := range res.Regions {
		for b := res.Regions[i].Mem; len(b) > 0; {
			v, err := record.Parse(b)
			if err != nil {
				return nil, err
			}
			if !v.CheckCRC() {
				return nil, fmt.Errorf("record at %d fails its check sum", v.PhysicalOffset())
			}
			at := v.PhysicalOffset()
			list = append(list, slot{
				text: string(v.Body()), at: at, end: at + record.PhysicalOffset(v.TotalSize()),
			})
			b = b[v.TotalSize():]
		}
	}
	return list, nil
}

// keys looks some messages up by key.
func (h *history) keys() error {
	if h.hurt() {
		return nil // the index may have stopped until the next start
	}
	for id, l := range h.lines {
		if len(l.slots) == 0 {
			continue
		}
		s := l.slots[h.r.IntN(len(l.slots))]
		if s.at < h.store.Info().Min || s.end == 0 {
			continue
		}
		n := 0
		for _, key := range []string{s.text[:16], "id-" + s.text[:min(len(s.text), 20)]} {
			res, err := h.store.Query(id.Topic, key, 64, 0, 1<<60)
			if err != nil {
				return err
			}
			n += len(res.Regions)
			zerocopy.ReleaseAll(res.Regions)
		}
		if n == 0 {
			return fmt.Errorf("queue %s: the key of %.30q, at %d, finds nothing", id, s.text, s.at)
		}
	}
	return nil
}
