// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Layout of the file checkpoint (RocketMQ StoreCheckpoint): six int64, big-endian, described in
// storage/docs/format/checkpoint.md. Releases before 5.5 write five.
const (
	offPhysicMS      = 0
	offLogicsMS      = 8
	offIndexMS       = 16
	offMasterFlushed = 24
	offConfirm       = 32
	offLogicsAt      = 40
	checkpointUsed   = 48
	offOwn           = 504 // LogicsAt again, ours alone: RocketMQ leaves it as it is
	checkpointRead   = 512
	checkpointSize   = 4096
)

// Checkpoint says up to where the files of a store are on disk. Zero means unknown.
type Checkpoint struct {
	PhysicMS int64 // store time of the newest record that is on disk
	LogicsMS int64 // store time of a record up to which every queue is on disk
	IndexMS  int64 // store time of the last record of the newest full index file
	// MasterFlushed and Confirm belong to replication and are kept.
	MasterFlushed, Confirm int64
	// LogicsAt is the start of a record up to which, itself included, every queue is on disk.
	LogicsAt record.PhysicalOffset
	// Own says that Skylark wrote LogicsAt: every queue was on disk up to there. What RocketMQ writes
	// there may be ahead of its queues.
	Own bool
}

// DecodeCheckpoint reads the file's content; what is missing reads as zero.
func DecodeCheckpoint(b []byte) Checkpoint {
	var full [checkpointRead]byte
	copy(full[:], b)
	at := func(off int) int64 { return int64(binary.BigEndian.Uint64(full[off:])) }
	return Checkpoint{
		PhysicMS: at(offPhysicMS), LogicsMS: at(offLogicsMS), IndexMS: at(offIndexMS),
		MasterFlushed: at(offMasterFlushed), Confirm: at(offConfirm),
		LogicsAt: record.PhysicalOffset(at(offLogicsAt)),
		Own:      at(offLogicsAt) > 0 && at(offOwn) == at(offLogicsAt),
	}
}

// Encode writes RocketMQ's fields to the start of b, which must hold 48 bytes.
func (c Checkpoint) Encode(b []byte) {
	put := func(off int, v int64) { binary.BigEndian.PutUint64(b[off:], uint64(v)) }
	put(offPhysicMS, c.PhysicMS)
	put(offLogicsMS, c.LogicsMS)
	put(offIndexMS, c.IndexMS)
	put(offMasterFlushed, c.MasterFlushed)
	put(offConfirm, c.Confirm)
	put(offLogicsAt, int64(c.LogicsAt))
}

// loadCheckpoint reads the file; a missing one is all zeros, and found is false.
func loadCheckpoint(path string) (c Checkpoint, found bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("storage: load checkpoint: %w", err)
	}
	defer func() { _ = f.Close() }()
	var b [checkpointRead]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return c, false, fmt.Errorf("storage: load checkpoint: %w", err)
	}
	return DecodeCheckpoint(b[:n]), true, nil
}

// saveCheckpoint writes the file in place, as RocketMQ does: the fields lie in one disk sector. The
// values are on disk when it returns.
func saveCheckpoint(fsys vfs.FS, path string, c Checkpoint) error {
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("storage: save checkpoint: %w", err)
	}
	defer func() { _ = f.Close() }()
	var b [checkpointSize]byte
	used := b[:checkpointUsed]
	if n, err := f.Size(); err == nil && n < checkpointSize {
		used = b[:] // the length RocketMQ maps
	}
	c.Encode(b[:])
	if _, err := f.WriteAt(used, 0); err != nil {
		return fmt.Errorf("storage: save checkpoint: %w", err)
	}
	if c.Own {
		if _, err := f.WriteAt(b[offLogicsAt:][:8], offOwn); err != nil {
			return fmt.Errorf("storage: save checkpoint: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("storage: save checkpoint: %w", err)
	}
	return nil
}
