// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// slot is a message that was sent to a queue.
type slot struct {
	text    string
	at, end record.PhysicalOffset // end 0: not acknowledged
	inner   bool                  // it is in a record with others, which has no keys
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
	spread bool   // the log lies in two directories
	boot   string // of the life before, when only its process died

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
	over    bool // what the store still does is of a world that no longer is
}

// runHistory runs the history of a seed in a directory of its own, and tells it.
func runHistory(seed uint64, dir string, sum *tally) (story string, err error) {
	h := &history{
		r: rand.New(rand.NewPCG(seed, 2)), images: rand.New(rand.NewPCG(seed, 3)), sum: sum,
		base: dir, lines: map[storage.QueueID]line{}, spread: seed%3 == 0,
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
	cfg.BulkLeast = []int{0, 1, 400}[h.r.IntN(3)]
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
	if h.boot != "" {
		disk.Boot = h.boot
	}
	h.disk, h.boot = disk, ""
	h.cfg.FS, h.cfg.CommitLogDir = openFS{disk}, ""
	if h.spread {
		h.cfg.CommitLogDir = filepath.Join(h.cfg.RootDir, "commitlog") + "," +
			filepath.Join(h.cfg.RootDir, "commitlog2")
	}
	h.mu.Lock()
	h.calls, h.crashAt, h.failAt, h.failed, h.taken, h.over = 0, 0, 0, false, nil, false
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
	if h.over {
		return nil
	}
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
	safe := record.PhysicalOffset(0)
	if s := h.store; s != nil {
		im.flushed = s.Flushed()
		if safe = im.flushed; killed {
			safe = s.Info().Wrote // in the file, which outlives the process
		}
	}
	for id, l := range h.lines {
		l.slots = append([]slot(nil), l.slots...)
		for i := l.least; i < len(l.slots) && h.store != nil; i++ {
			if end := l.slots[i].end; end == 0 || end > safe {
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
		h.boot = h.disk.Boot
		h.sum.kills.Add(1)
	} else {
		h.sum.crashes.Add(1)
	}
	h.mu.Lock()
	h.over = true // disk.Before stays: goroutines of the store read it until Close has ended them
	h.mu.Unlock()
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

// await waits for what the store's goroutines do, for half a minute at the most, and not long after a
// disk fault: what stops at one, as the index does, goes on with the next start.
func (h *history) await(done func(storage.Info) bool) bool {
	began := time.Now()
	for limit := 30 * time.Second; time.Since(began) < limit; runtime.Gosched() {
		if done(h.store.Info()) {
			return true
		}
		if h.hurt() {
			limit = 100 * time.Millisecond
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
	through := h.r.IntN(3) == 0
	for i := range es {
		es[i].AwaitsFlush = !through || i > 0
	}
	h.store.Append(es)
	wrote := h.store.Info().Wrote
	h.mu.Lock()
	defer h.mu.Unlock()
	if end := es[len(es)-1].End; (through || !h.cfg.SyncFlush) && !h.failed && wrote < end {
		return fmt.Errorf("append: what ends at %d is in the file up to %d", end, wrote)
	}
	return h.note(es, texts, starts)
}

// note tells the model how the store answered. What it refused goes out of the model.
func (h *history) note(es []storage.Entry, texts [][]string, starts []int) error {
	refused := map[storage.QueueID]int{}
	for i := range es {
		e, id := &es[i], entryQueue(&es[i])
		if errors.Is(e.Err, storage.ErrUnsure) && h.failed {
			continue // there or not, but its place is nobody else's
		}
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
			s.at, s.end = places[min(j, len(places)-1)], e.End
			s.inner = e.Draft.SysFlag&record.SysInnerBatch != 0
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
	files, err := filepath.Glob(filepath.Join(h.cfg.RootDir, "commitlog*", "*"))
	if err != nil || len(files) < 2 {
		return err
	}
	slices.SortFunc(files, func(a, b string) int { // the directories take turns
		return strings.Compare(filepath.Base(a), filepath.Base(b))
	})
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
