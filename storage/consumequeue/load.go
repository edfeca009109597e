// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// inspectFiles is how many of a queue's last files are always read by Load.
const inspectFiles = 3

// Bounds is what Load has to know about the log.
type Bounds struct {
	// LogEnd is an offset that no record ends behind: the end of the last file of the log.
	LogEnd record.PhysicalOffset
	// Trusted is an offset up to which every unit is known to be on disk. Files whose first unit
	// points behind it are read, and the last three in any case.
	Trusted record.PhysicalOffset
	// LogMin is where the log begins. Files in front of a gap that point before it are what a
	// deletion left, and are removed.
	LogMin record.PhysicalOffset
	// Keep is how many bytes of units at the ends of queues may stay in memory until Forget, for a
	// recovery that compares them with their records.
	Keep int64
}

// State is what Load found in one queue.
type State struct {
	Queue *Queue
	// End is where the last indexed record ends; 0 when the queue has none.
	End record.PhysicalOffset
	// First is the record of the first unit; -1 when the queue has none.
	First record.PhysicalOffset
	// Damage says what was cut off, or is empty. Records from From on must be dispatched again.
	Damage string
	From   record.PhysicalOffset
}

// Load reads the folder: it finds the end of every queue and cuts off what cannot be right there.
// Unknown names are left alone and returned in foreign. It must be called once, before all else.
//
// The error names the file; it is returned when files cannot be read or have the length of another
// configuration.
func (s *Set) Load(b Bounds) (states []State, foreign []string, err error) {
	topics, err := s.cfg.FS.ReadDir(s.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("consumequeue: load: %w", err)
	}
	found := make([]topicQueues, len(topics))
	atOnce(min(4*runtime.GOMAXPROCS(0), len(topics)), len(topics), func(i int) {
		found[i] = s.list(topics[i])
	})
	var all []*Queue
	for _, f := range found {
		if f.err != nil {
			return nil, nil, fmt.Errorf("consumequeue: load: %w", f.err)
		}
		all, foreign = append(all, f.queues...), append(foreign, f.foreign...)
	}
	return s.loadAll(all, b, foreign)
}

// topicQueues is what the folder of a topic holds.
type topicQueues struct {
	queues  []*Queue
	foreign []string
	err     error
}

func (s *Set) list(topic fs.DirEntry) (found topicQueues) {
	path := filepath.Join(s.cfg.Dir, topic.Name())
	if !topic.IsDir() {
		found.foreign = []string{path}
		return found
	}
	entries, err := s.cfg.FS.ReadDir(path)
	if err != nil {
		found.err = err
		return found
	}
	for _, entry := range entries {
		n, ok := parseQueue(entry.Name())
		if !ok || !entry.IsDir() {
			found.foreign = append(found.foreign, filepath.Join(path, entry.Name()))
			continue
		}
		q, err := s.Create(topic.Name(), n)
		if err != nil {
			found.err = err
			return found
		}
		found.queues = append(found.queues, q)
	}
	return found
}

// loadAll loads the queues with a few goroutines, since it mostly waits for the disk.
func (s *Set) loadAll(queues []*Queue, b Bounds, foreign []string) ([]State, []string, error) {
	s.keepLeft.Store(b.Keep)
	states := make([]State, len(queues))
	others := make([][]string, len(queues))
	errs := make([]error, len(queues))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(4*runtime.GOMAXPROCS(0), len(queues)) {
		workers.Go(func() {
			l := loader{bounds: b, buf: make([]byte, 64<<10/s.unit*s.unit)}
			for i := range next {
				states[i], others[i], errs[i] = l.load(queues[i])
			}
		})
	}
	for i := range queues {
		next <- i
	}
	close(next)
	workers.Wait()
	for i := range queues {
		if errs[i] != nil {
			return nil, nil, fmt.Errorf("consumequeue: load queue %s: %w", queues[i].id, errs[i])
		}
		foreign = append(foreign, others[i]...)
	}
	return states, foreign, nil
}

// loader reads queues one after the other.
type loader struct {
	bounds Bounds
	buf    []byte
	behind record.QueueOffset // of the messages of the batch queue that is being inspected
	first  Unit               // of the file that was inspected last, zero if it has none
	last   int64              // bytes at the start of buf that are the last units of the queue
}

// load finds the files of q and its end.
func (l *loader) load(q *Queue) (State, []string, error) {
	state := State{Queue: q, First: -1}
	bases, foreign, err := listFiles(q)
	if err != nil || len(bases) == 0 {
		return state, foreign, err
	}
	size := q.set.cfg.FileSize
	whole := unbroken(bases, size)
	for whole < len(bases) {
		old, err := l.leftOver(q, bases[whole-1])
		if err != nil {
			return state, foreign, err
		}
		if !old {
			break
		}
		for _, base := range bases[:whole] {
			if err := q.remove(base); err != nil {
				return state, foreign, err
			}
		}
		bases = bases[whole:]
		whole = unbroken(bases, size)
	}
	q.first, q.files = bases[0], int64(whole)
	q.named.Store(true)
	if whole < len(bases) {
		state.Damage = fmt.Sprintf("the file that begins at %d is missing", bases[whole-1]+size)
		for _, base := range bases[whole:] {
			if err := q.remove(base); err != nil {
				return state, foreign, err
			}
		}
	}
	end, err := l.inspect(q, &state)
	if err != nil {
		return state, foreign, err
	}
	q.loaded = end
	q.written.Store(end)
	q.end.Store(end)
	q.flushed.Store(end)
	q.min.Store(min(q.first/q.set.unit, end))
	if l.bounds.Keep > 0 && l.last > 0 {
		q.keep(l.buf[:l.last], end, state.First)
	}
	return state, foreign, q.resetMessages()
}

// unbroken returns how many files follow each other from the first one on.
func unbroken(bases []int64, size int64) int {
	n := 1
	for n < len(bases) && bases[n] == bases[n-1]+size {
		n++
	}
	return n
}

// leftOver reports whether the record of the last unit of a file lay in front of the log.
func (l *loader) leftOver(q *Queue, base int64) (bool, error) {
	f, err := q.set.cfg.FS.OpenFile(filepath.Join(q.dir(), fileName(base)), os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	var b [UnitSize]byte // a batch unit begins like any other
	if _, err := f.ReadAt(b[:], q.set.cfg.FileSize-q.set.unit); err != nil {
		return false, err
	}
	u := DecodeUnit(b[:])
	return u.Size > 0 && !u.Filler() && u.At < l.bounds.LogMin, nil
}

// listFiles returns where the files of q begin, in order, and checks their lengths. An empty last
// file is removed, as RocketMQ does; a cut one is extended again.
func listFiles(q *Queue) (bases []int64, foreign []string, err error) {
	entries, err := q.set.cfg.FS.ReadDir(q.dir())
	if err != nil {
		return nil, nil, err
	}
	size := q.set.cfg.FileSize
	lengths := map[int64]int64{}
	for _, entry := range entries {
		path := filepath.Join(q.dir(), entry.Name())
		base, ok := parseFileName(entry.Name())
		if !ok || entry.IsDir() {
			foreign = append(foreign, path)
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return nil, nil, err
		}
		bases, lengths[base] = append(bases, base), info.Size()
	}
	slices.Sort(bases)
	if n := len(bases); n > 0 && lengths[bases[n-1]] == 0 {
		if err := q.remove(bases[n-1]); err != nil {
			return nil, nil, err
		}
		bases = bases[:n-1]
	}
	for i, base := range bases {
		path := filepath.Join(q.dir(), fileName(base))
		length := lengths[base]
		cut := length < size && (length == 0 || length%q.set.unit != 0 || i > 0)
		if base%size != 0 || lengths[base] != size && !cut {
			return nil, nil, fmt.Errorf("%s has %d bytes, mappedFileSizeConsumeQueue is %d: start "+
				"with the size that the files were written with", path, lengths[base], size)
		}
		if cut {
			if err := q.resize(base, size); err != nil {
				return nil, nil, err
			}
		}
	}
	return bases, foreign, nil
}

// inspect reads the last files of q, cuts off what is wrong, and returns the end in units.
func (l *loader) inspect(q *Queue, state *State) (end int64, err error) {
	size := q.set.cfg.FileSize
	l.behind, l.last = 0, 0
	from := q.files - 1
	for ; from > 0; from-- {
		if q.files-from < inspectFiles {
			continue
		}
		u, err := firstUnit(q, from)
		if err != nil {
			return 0, err
		}
		// Zeros are no unit at the beginning of the log, but one that a power loss has taken.
		if u.Size > 0 && !u.Filler() && u.At < l.bounds.Trusted {
			break
		}
	}
	if from > 0 {
		u, err := firstUnit(q, 0)
		if err != nil {
			return 0, err
		}
		state.begins(u)
	}
	var last Unit
	for i := from; i < q.files; i++ {
		n, rest, err := l.inspectFile(q, q.first+i*size, &last)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			state.begins(l.first)
		}
		end = (q.first + i*size + n) / q.set.unit
		if n == size && !rest {
			continue
		}
		dirty := rest
		for j := i + 1; j < q.files && !dirty; j++ {
			if dirty, err = hasData(q, q.first+j*size); err != nil {
				return 0, err
			}
		}
		if dirty && state.Damage == "" {
			state.Damage = fmt.Sprintf("unit %d is not valid but bytes follow", end)
		}
		if dirty || i+1 < q.files {
			if err := q.cut(end); err != nil {
				return 0, err
			}
		}
		break
	}
	state.End = last.End()
	if state.Damage != "" {
		state.From = state.End
	}
	return end, nil
}

// begins notes the first unit of a queue.
func (s *State) begins(u Unit) {
	if u.Size > 0 && !u.Filler() {
		s.First = u.At
	}
}

// inspectFile reads units until one is not valid. It returns the bytes of the valid ones, and
// whether anything but zeros follows. last is the last unit that was valid and no filler.
func (l *loader) inspectFile(q *Queue, base int64, last *Unit) (n int64, rest bool, err error) {
	l.first = Unit{}
	f, err := q.openFile(base)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	size := q.set.cfg.FileSize
	used := dataEnd(f, size)
	if used <= int64(len(l.buf)) {
		f.ReadAhead(false) // it would read the hole behind the data, a quarter of a megabyte
	}
	// The first read takes the odd rest, so that the last one is full and can be kept.
	step := min((used+q.set.unit-1)/q.set.unit*q.set.unit, size)
	step = (step-1)%int64(len(l.buf)) + 1
	for n < size {
		if n >= used {
			return n, false, nil
		}
		chunk := l.buf[:min(step, size-n)]
		step = int64(len(l.buf))
		got, err := f.ReadAt(chunk, n)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, err
		}
		clear(chunk[got:])
		if n == 0 {
			l.first = DecodeUnit(chunk)
		}
		l.last = 0
		for ; len(chunk) > 0; chunk = chunk[q.set.unit:] {
			u := DecodeUnit(chunk)
			switch {
			case u.Filler() && !q.set.cfg.Batch:
			case u.Size <= 0 || u.At < last.End() || u.End() > l.bounds.LogEnd,
				q.set.cfg.Batch && !l.follows(chunk):
				if !allZero(chunk) {
					return n, true, nil
				}
				rest, err = fileHasData(f, n+int64(len(chunk)), used)
				return n, rest, err
			default:
				*last = u
			}
			n += q.set.unit
			l.last += q.set.unit
		}
	}
	return n, false, nil
}

// follows reports whether a unit of a batch queue can come behind those before it.
func (l *loader) follows(b []byte) bool {
	u := DecodeBatchUnit(b)
	if !u.valid() || u.Base < l.behind {
		return false
	}
	l.behind = u.Behind()
	return true
}

// firstUnit reads the first unit of file i of q.
func firstUnit(q *Queue, i int64) (Unit, error) {
	f, err := q.openFile(q.first + i*q.set.cfg.FileSize)
	if err != nil {
		return Unit{}, err
	}
	defer func() { _ = f.Close() }()
	var b [UnitSize]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return Unit{}, err
	}
	return DecodeUnit(b[:]), nil
}

func hasData(q *Queue, base int64) (bool, error) {
	f, err := q.openFile(base)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	return fileHasData(f, 0, dataEnd(f, q.set.cfg.FileSize))
}

// dataEnd returns where the last part of a file ends that is no hole. It must be asked before
// reading: what was read ahead counts as data. Where holes are not known it returns size.
func dataEnd(f vfs.File, size int64) int64 {
	const seekData, seekHole = 3, 4 // lseek(2)
	seeker, ok := f.(io.Seeker)
	if !ok {
		return size
	}
	end := int64(0)
	for end < size {
		data, err := seeker.Seek(end, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return end
		}
		if err != nil {
			return size
		}
		hole, err := seeker.Seek(data, seekHole)
		if err != nil || hole <= data {
			return size
		}
		end = hole
	}
	return size
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// fileHasData reports whether a byte of [from, end) is not zero.
func fileHasData(f vfs.File, from, end int64) (bool, error) {
	if from >= end {
		return false, nil
	}
	buf := make([]byte, 16<<10)
	for from < end {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), end-from)], from)
		if !allZero(buf[:n]) {
			return true, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if n == 0 {
			break
		}
		from += int64(n)
	}
	return false, nil
}
