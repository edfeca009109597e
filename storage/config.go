// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Damage is what to do about damage in the middle of the log, see its values in package commitlog.
type Damage = commitlog.Damage

// QueueID names a queue.
type QueueID = consumequeue.ID

// Config says where a store lies and how it works. Start from DefaultConfig. Names in brackets are
// RocketMQ's (MessageStoreConfig). Sizes of files must be those the files were written with.
type Config struct {
	RootDir string // storePathRootDir
	// CommitLogDir is where the log lies; empty: RootDir/commitlog. Several directories stand between
	// commas, and new files go round over them (storePathCommitLog).
	CommitLogDir string
	// CommitLogReadOnly are further directories of the log, between commas, in which no file is made,
	// also when CommitLogDir names them (readOnlyCommitLogStorePaths). RocketMQ looks at it only when
	// CommitLogDir has a comma; here it always counts.
	CommitLogReadOnly string
	FS                vfs.FS // nil: the operating system's; tests use one that loses power

	// Lock is RootDir's lock when the caller has taken it with LockDir; the store gives it up at its
	// Close and when Open fails. Nil: Open takes it.
	Lock *vfs.Lock

	SegmentSize    int64 // bytes of a log file (mappedFileSizeCommitLog)
	QueueFileSize  int64 // bytes of a queue file, in whole units (mappedFileSizeConsumeQueue)
	BatchFileSize  int64 // bytes of a batch queue file (mapperFileSizeBatchConsumeQueue)
	IndexSlots     int32 // slots of an index file (maxHashSlotNum)
	IndexEntries   int32 // entries of an index file (maxIndexNum)
	MaxMessageSize int   // bytes of a body, or of a whole client batch (maxMessageSize)
	QueueFilesOpen int   // queue files mapped at rest at the most; 0: 4096

	// SyncFlush makes messages visible only when they are on disk (flushDiskType SYNC_FLUSH).
	SyncFlush bool
	// BulkLeast is how many bytes a message or client batch has that counts as large, see package
	// commitlog; 0: its default.
	BulkLeast int
	// Prewrite lets zeros be written ahead of the log with SyncFlush: flushes take half the time, and
	// every byte is written twice.
	Prewrite        bool
	FlushInterval   time.Duration // asynchronous flush of the log (flushIntervalCommitLog)
	FlushThorough   time.Duration // flush of fewer pages too (flushCommitLogThoroughInterval)
	FlushLeastPages int           // pages of 4 KiB (flushCommitLogLeastPages)

	QueueFlushInterval   time.Duration // flushIntervalConsumeQueue
	QueueFlushThorough   time.Duration // flushConsumeQueueThoroughInterval, also the checkpoint's
	QueueFlushLeastPages int           // flushConsumeQueueLeastPages

	// BatchTopic says whether a topic's queues are batch queues (its attribute queue.type is BatchCQ);
	// known is false for a topic without a configuration, whose queues stay what they are. It is asked
	// when a queue is made and at the start, from any goroutine. Nil: no topic is known.
	BatchTopic func(topic string) (batch, known bool)

	// DelayLevels are the delays of the levels from 1 on (messageDelayLevel): when queues of
	// SCHEDULE_TOPIC_XXXX are made anew their units tell from them when a message is due. Empty:
	// RocketMQ's default.
	DelayLevels []time.Duration

	// IndexEnable builds the index files (messageIndexEnable).
	IndexEnable bool

	// Limits of one read (maxTransfer...OnMessageInMemory, ...InDisk).
	MaxTransferBytesInMemory, MaxTransferCountInMemory int
	MaxTransferBytesInDisk, MaxTransferCountInDisk     int
	// AccessInMemoryMaxRatio is the share of memory, in percent, that the end of the log is taken to
	// fill in the page cache (accessMessageInMemoryMaxRatio).
	AccessInMemoryMaxRatio int
	// MaxFilterBytes bounds the units looked at by one read, in bytes (maxFilterMessageSize).
	MaxFilterBytes int
	// HotBytes is how far behind the end of the log, as far as it was written since the start, bytes
	// are taken to be in memory without asking the kernel; 0: a quarter of the memory.
	HotBytes int64

	// DiskFullRatio and DiskFreeRatio: above the first share of used space, in percent, messages are
	// refused, below the second they are taken again (diskSpaceWarningLevelRatio and
	// diskSpaceCleanForciblyRatio).
	DiskFullRatio, DiskFreeRatio int
	// BallastBytes is the size of a file in RootDir that is given up first when the disk fills; -1: half
	// a percent of the disk, at most 1 GiB; 0: none.
	BallastBytes int64
	// Retention says when old files are deleted. The zero value is DefaultRetention.
	Retention Retention

	// Damage says what to do about damage in the middle of the log; by default Open refuses it.
	Damage Damage
	// AllowEmpty goes on without the list of deleted topics when every copy of it is damaged: what the
	// log still has of them may then come back. By default Open refuses it.
	AllowEmpty bool

	// Progress is told from time to time how many bytes of the log, at most, recovery has still to
	// read. nil: Notice is told every two seconds.
	Progress func(done, total int64)

	Now func() time.Time // nil: time.Now
	// Steady is the time since some fixed moment, which nobody can set. nil: the runtime's, and none
	// when Now is given: then the wall clock is believed whatever it says.
	Steady func() time.Duration
	// Notice is told what an operator should know: what recovery repaired, what was refused. It may
	// be called from any goroutine and must not block long. nil: nobody is told.
	Notice func(msg string, kv ...any)
	// OnDispatched is called once for each batch after its messages became visible, on the
	// goroutine that made them so: that of Append, or of the flush with SyncFlush. ds is borrowed
	// until it returns. It must be quick; it may read from the store but not append to it.
	OnDispatched func(ds []Dispatched)
	// OnFlushed is called after the log is on disk up to an offset, and, with SyncFlush, after what
	// lies before it became visible. It is called by the flusher and must be quick.
	OnFlushed func(flushed record.PhysicalOffset)
}

// Dispatched tells that messages of a queue became visible.
type Dispatched struct {
	Topic     string
	Queue     int32
	From, End record.QueueOffset // the new ones, End excluded
}

// DefaultConfig returns RocketMQ's defaults for a store in root.
func DefaultConfig(root string) Config {
	return Config{
		RootDir:                  root,
		SegmentSize:              1 << 30,
		QueueFileSize:            consumequeue.DefaultFileSize,
		BatchFileSize:            consumequeue.DefaultBatchFileSize,
		IndexSlots:               indexfile.DefaultSlots,
		IndexEntries:             indexfile.DefaultEntries,
		MaxMessageSize:           4 << 20,
		FlushInterval:            500 * time.Millisecond,
		FlushThorough:            10 * time.Second,
		FlushLeastPages:          4,
		Prewrite:                 true,
		QueueFlushInterval:       time.Second,
		QueueFlushThorough:       time.Minute,
		QueueFlushLeastPages:     2,
		IndexEnable:              true,
		MaxTransferBytesInMemory: 262144,
		MaxTransferCountInMemory: 32,
		MaxTransferBytesInDisk:   65536,
		MaxTransferCountInDisk:   8,
		AccessInMemoryMaxRatio:   40,
		MaxFilterBytes:           16000,
		DiskFullRatio:            90,
		DiskFreeRatio:            85,
	}
}

// pathSplitter stands between directories (RocketMQ MixAll.MULTI_PATH_SPLITTER; there a system
// property can change it).
const pathSplitter = ","

// splitPaths reads a list of directories.
func splitPaths(text string) []string {
	var paths []string
	for path := range strings.SplitSeq(text, pathSplitter) {
		if path = strings.TrimSpace(path); path != "" {
			paths = append(paths, filepath.Clean(path))
		}
	}
	return paths
}

// logDirs returns the directories of the log that new files may be made in.
func (c *Config) logDirs() []string {
	readOnly := splitPaths(c.CommitLogReadOnly)
	return slices.DeleteFunc(splitPaths(c.CommitLogDir), func(dir string) bool {
		return slices.Contains(readOnly, dir)
	})
}

// fill sets what the zero value leaves open.
func (c *Config) fill() {
	if c.CommitLogDir == "" {
		c.CommitLogDir = filepath.Join(c.RootDir, "commitlog")
	}
	if c.Now == nil {
		c.Now = time.Now
		if c.Steady == nil {
			begun := time.Now()
			c.Steady = func() time.Duration { return time.Since(begun) }
		}
	}
	if c.Retention.Every == 0 {
		c.Retention = DefaultRetention()
	}
	if len(c.DelayLevels) == 0 {
		c.DelayLevels = defaultDelayLevels()
	}
	if c.BatchTopic == nil {
		c.BatchTopic = func(string) (batch, known bool) { return false, false }
	}
	if c.Notice == nil {
		c.Notice = func(string, ...any) {}
	}
}

// fs returns the file system.
func (c *Config) fs() vfs.FS {
	if c.FS == nil {
		return vfs.OS()
	}
	return c.FS
}

// recordSlack is how much larger than a body a record may be.
const recordSlack = 64 << 10

// recordMax returns the greatest size of one record in bytes.
func (c *Config) recordMax() int { return c.MaxMessageSize + recordSlack }
