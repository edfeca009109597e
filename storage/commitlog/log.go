// SPDX-License-Identifier: Apache-2.0

// Package commitlog owns the one ordered log of all messages: a sequence of segments of equal size,
// with append, group flush and recovery of the tail.
//
// It decides where a record lies and how much is on disk; what a record contains beyond its own
// bytes (queues, keys) and who may append when is the concern of package storage. The files are
// those of Apache RocketMQ (CommitLog, MappedFileQueue); storage/docs/format/commitlog.md has them.
//
// Reserve and Publish are called by one goroutine at a time, everything else by any. Open, Recover
// and Truncate come first, in this order:
//
//	log, err := commitlog.Open(commitlog.Config{Dir: dir, Notice: notice})
//	end, err := log.Recover(from, true, func(v record.View) error { return rebuild(v) })
//	err = log.Truncate(end)
//	dst, at, err := log.Reserve(draft.Size())
//	draft.Encode(dst, record.Place{Queue: next, Physical: at, StoreMS: now})
//	err = log.Commit()
//	log.Publish(at+record.PhysicalOffset(len(dst)), now)
//	err = log.Close()
package commitlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/storage/mappedfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

var (
	// ErrOutOfRange is returned for bytes below the oldest segment, at or past wrote, in a segment
	// that is missing, or in more than one segment.
	ErrOutOfRange = errors.New("commitlog: out of range")
	// ErrTooLarge is returned for a reservation that no segment can hold.
	ErrTooLarge = errors.New("commitlog: too large for a segment")
	// ErrClosed is returned after Close, and by Reserve before Truncate.
	ErrClosed = errors.New("commitlog: log is not open for this")
)

// Config says where the log is and how it is written. The zero value of a field means its default.
type Config struct {
	// FS is the file system; default vfs.OS().
	FS vfs.FS
	// Dir holds the segments and nothing else. It is created.
	Dir string
	// Dirs, when it is not empty, are the directories of segments in place of Dir: new ones go round
	// over them. ReadOnlyDirs hold more, and none is created there, also when Dirs names them
	// (RocketMQ storePathCommitLog and readOnlyCommitLogStorePaths, MultiPathMappedFileQueue).
	Dirs, ReadOnlyDirs []string
	// FullDirs returns the directories that new segments avoid as long as there are others. Any
	// goroutine may call it. It may be nil.
	FullDirs func() []string
	// SegmentSize is the size of each segment in bytes; default 1 GiB. It must be that of existing
	// segments (RocketMQ mappedFileSizeCommitLog).
	SegmentSize int64

	// PopulateWindow is how far ahead of the writer pages are created, in bytes; default 32 MiB.
	// Less risks that the writer catches up, more is written to disk in vain at each flush.
	PopulateWindow int64
	// PopulateStep is how much of it is created at once; default 1 MiB.
	PopulateStep int64

	// BulkLeast is how many bytes a reservation has that counts as large, see bulk; default 16 KiB. It has
	// no meaning with Sync.
	BulkLeast int

	// Sync flushes whatever was published as soon as the flush before it is done; what is published
	// meanwhile goes with the next one. Until then it lies in memory of the process, see stage.
	Sync bool
	// Prewrite has zeros written ahead of the writer with Sync, two PopulateWindows of them. A flush
	// into blocks that were written before need not wait for the file system's journal, which takes
	// half the time; it costs a second write of every byte of the log.
	Prewrite bool
	// FlushInterval is the period of asynchronous flushing; default 500 ms.
	FlushInterval time.Duration
	// FlushLeastPages is the least number of dirty pages of 4096 bytes worth a flush; default 4.
	FlushLeastPages int
	// FlushThorough is the time after which less is flushed too; default 10 s.
	FlushThorough time.Duration
	// FlushBytes is how many unflushed bytes end the period early; default 16 MiB.
	FlushBytes int64

	// PagesKept says that nothing that was written can be missing from the files: the last stop was
	// clean, or only the process died. Recover then takes no damage for what a power loss leaves.
	PagesKept bool
	// OnDisk is an offset such that every record that begins below it was on disk before the last
	// stop: damage there is none that a power loss leaves. Negative: nothing is known about it.
	OnDisk record.PhysicalOffset
	// Damage says what Recover does about a damaged record in the middle, and Open about a missing
	// segment.
	Damage Damage
	// Progress is told from time to time how many bytes of all Recover has read. It may be nil.
	Progress func(done, total int64)
	// DamagedDir is where Recover puts copies of what it takes out of the log; default the folder
	// damaged beside Dir.
	DamagedDir string
	// Now is the time in the names of these copies; default time.Now.
	Now func() time.Time

	// OnFlushed is told how far the log is on disk, each time that moves. It runs on the flusher and
	// delays the next flush.
	OnFlushed func(record.PhysicalOffset)
	// OnFlushError is told once that a flush failed. From then on Reserve fails.
	OnFlushError func(error)
	// Notice is told what an operator should know. It may be nil.
	Notice func(msg string, kv ...any)
}

// setDefaults fills in what the caller left out.
func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if len(c.Dirs) == 0 {
		c.Dirs = []string{c.Dir}
	}
	c.Dir = strings.Join(c.Dirs, ",")
	if c.DamagedDir == "" {
		c.DamagedDir = filepath.Join(filepath.Dir(c.Dirs[0]), "damaged")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	orSize := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	orSize(&c.SegmentSize, 1<<30)
	orSize(&c.PopulateWindow, 32<<20)
	orSize(&c.PopulateStep, 1<<20)
	orSize(&c.FlushBytes, 16<<20)
	orTime(&c.FlushInterval, 500*time.Millisecond)
	orTime(&c.FlushThorough, 10*time.Second)
	if c.BulkLeast <= 0 {
		c.BulkLeast = 16 << 10
	}
	if c.FlushLeastPages <= 0 {
		c.FlushLeastPages = 4
	}
	if c.OnFlushed == nil {
		c.OnFlushed = func(record.PhysicalOffset) {}
	}
	if c.OnFlushError == nil {
		c.OnFlushError = func(error) {}
	}
	if c.Progress == nil {
		c.Progress = func(int64, int64) {}
	}
	if c.Notice == nil {
		c.Notice = func(string, ...any) {}
	}
}

// Log is the log.
type Log struct {
	// Set before Open returns, then constant.
	cfg  Config
	size int64 // of a segment, bytes

	// Confined to the appender; set by Truncate.
	app appender

	// Watermarks in bytes. One writer each, any reader. Invariant: flushed <= wrote <= published.
	published   atomic.Int64 // appender
	publishedMS atomic.Int64 // appender; store time of a record below published
	wrote       atomic.Int64 // appender, with a stage the holder of stage.writing: in the file
	flushed     atomic.Int64 // flusher
	flushedMS   atomic.Int64 // flusher; store time of a record below flushed

	segments atomic.Pointer[list] // replaced under mu, read by anybody
	writable atomic.Bool          // between Truncate and Close

	flush   flusher
	prepare preparer
	stage   *stage // nil without Config.Sync

	noPrewriting atomic.Bool // the file system cannot

	// stop ends the goroutines, which running counts.
	stop    chan struct{}
	running sync.WaitGroup

	// Guards replacing segments. Never held across I/O or a callback.
	mu sync.Mutex

	closeOnce sync.Once
	closeErr  error
	closed    atomic.Bool

	// recovered is the first segment that Recover read and Truncate makes durable.
	recovered int64
	// removed are deleted segments whose removal is not durable. Confined to who deletes.
	removed []*segment
	// gap is where the first segment is missing that DamageTruncate gives up, -1 when none is.
	gap int64
}

// Open opens the segments in the directories of cfg. The log can be read, not written, until Recover and Truncate
// have found its end; until then wrote and flushed are the end of the last segment.
//
// An empty last segment is deleted and a short one extended; any other wrong length, and a missing
// segment, is an error that says what to do. Files with other names are left alone.
func Open(cfg Config) (*Log, error) {
	cfg.setDefaults()
	if cfg.SegmentSize < 2*record.BlankSize+record.MinSize {
		return nil, fmt.Errorf("commitlog: open %s: segment size of %d bytes holds no record",
			cfg.Dir, cfg.SegmentSize)
	}
	if err := cfg.makeDirs(); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, size: cfg.SegmentSize, stop: make(chan struct{}), gap: -1}
	if cfg.Sync {
		l.stage = &stage{}
	}
	l.flush.init()
	l.prepare.init()
	segs, err := l.load()
	if err != nil {
		return nil, err
	}
	l.segments.Store(segs)
	l.setMarks(segs.end(l.size))
	l.recovered = segs.end(l.size)
	return l, nil
}

// setMarks says that the log ends at end and that all of it is on disk.
func (l *Log) setMarks(end int64) {
	l.published.Store(end)
	l.wrote.Store(end)
	l.flushed.Store(end)
}

// Wrote returns the end of what can be read, which is in the file.
func (l *Log) Wrote() record.PhysicalOffset { return record.PhysicalOffset(l.wrote.Load()) }

// Flushed returns the end of what is on disk.
func (l *Log) Flushed() record.PhysicalOffset { return record.PhysicalOffset(l.flushed.Load()) }

// FlushedMS returns the store time of a record that is on disk, in milliseconds: never that of one
// that is not. 0 before the first flush.
func (l *Log) FlushedMS() int64 { return l.flushedMS.Load() }

// Min returns the start of the oldest segment; 0 when there is none.
func (l *Log) Min() record.PhysicalOffset {
	return record.PhysicalOffset(l.segments.Load().first)
}

// SegmentSize returns the size of a segment in bytes.
func (l *Log) SegmentSize() int64 { return l.size }

// Region returns the bytes [at, at+size) of the log as a file region.
//
// The segment stays mapped until the caller releases the region, exactly once, on every path, from
// any goroutine. size is in bytes; the range must lie in one segment. It does not block and does
// not touch the bytes. It returns ErrOutOfRange below the oldest segment or past wrote, ErrClosed
// after Close. Cost: no allocation, no system call.
func (l *Log) Region(at record.PhysicalOffset, size int32) (zerocopy.Region, error) {
	if size <= 0 || int64(at)+int64(size) > l.wrote.Load() {
		return zerocopy.Region{}, ErrOutOfRange
	}
	seg := l.segments.Load().find(int64(at), l.size)
	if seg == nil || int64(at)+int64(size) > seg.base+l.size {
		return zerocopy.Region{}, ErrOutOfRange
	}
	r, ok := seg.file.Region(int(int64(at)-seg.base), int(size))
	if !ok {
		if l.closed.Load() {
			return r, ErrClosed
		}
		return r, ErrOutOfRange // deleted from the front meanwhile
	}
	return r, nil
}

// ReadAt copies len(b) bytes from at, which lie in one segment, through the descriptor: it blocks
// on the disk and cannot fault. Errors as Region.
func (l *Log) ReadAt(b []byte, at record.PhysicalOffset) error {
	r, err := l.Region(at, int32(len(b)))
	if err != nil {
		return err
	}
	defer r.Release()
	if _, err := r.Holder.(*mappedfile.File).ReadAt(b, r.Off); err != nil {
		return fmt.Errorf("commitlog: read %d bytes at %d: %w", len(b), at, err)
	}
	return nil
}

// Resident reports whether a range in one segment is in memory; vfs.ErrNotSupported where the
// kernel cannot tell. Cost: one system call.
func (l *Log) Resident(at record.PhysicalOffset, size int32) (bool, error) {
	seg := l.segments.Load().find(int64(at), l.size)
	if seg == nil || int64(at)+int64(size) > seg.base+l.size || !seg.file.Retain() {
		return false, ErrOutOfRange
	}
	defer seg.file.Release()
	return seg.file.Resident(int(int64(at)-seg.base), int(size))
}

// Close flushes, stops the goroutines and closes the segments; regions stay valid. The appender has
// stopped before. A second call returns the first one's error.
func (l *Log) Close() error {
	l.closeOnce.Do(func() {
		l.writable.Store(false)
		close(l.stop)
		l.running.Wait() // the flusher flushes once more
		l.closeErr = l.Err()
		l.closed.Store(true)
		keep := func(err error) {
			if l.closeErr == nil {
				l.closeErr = err
			}
		}
		keep(l.dropPrepared())
		for _, seg := range l.segments.Load().segs {
			if seg != nil {
				keep(seg.file.Close())
			}
		}
	})
	return l.closeErr
}
