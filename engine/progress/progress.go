// SPDX-License-Identifier: Apache-2.0

// Package progress remembers how far services have come in delivering messages, between the writes
// of RocketMQ's own progress files.
//
// Those files (delayOffset.json, timercheck) may only say what is on disk, so they are written every
// few seconds, behind a flush of the log. After the death of the process the kernel still has
// everything that was appended, and a broker that went by those files alone would deliver again what
// it had delivered since. This file is written after each batch, without a flush, and each of its
// positions carries a proof: the place and the check sum of the last record that was appended before
// the position was noted. A start believes a position only when the log has that record. Recovery
// keeps no record behind a missing one, so the log then has all that came before.
//
// The file is Skylark's own. A Java broker does not look at it, and what it delivered in the
// meantime makes its own file the more advanced one.
package progress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FileName is the name of the file in the configuration folder.
const FileName = "deliveryProgress"

// Values is what a service notes: its meaning is the service's. All zero means nothing.
type Values [8]int64

// Proof names a record of the log. The zero value proves nothing and is not asked for.
type Proof struct {
	At  record.PhysicalOffset // of the record
	Sum uint32                // over its head; 0: there is no record to look for
}

// headSize is how many bytes of a record the sum covers: all that tells one record of a place from
// another, its time stamps among them.
const headSize = record.MinSize

// ProofOf returns the proof of a stored record.
func ProofOf(v record.View) Proof {
	return Proof{At: v.PhysicalOffset(), Sum: sum(v)}
}

// sum is the check sum of a record's head, never 0.
func sum(v record.View) uint32 {
	return crc32.ChecksumIEEE(v.Bytes()[:headSize]) | 1
}

// Holds reports whether the record that the proof names is still what it was. found is false when
// there is no record at its place.
func (p Proof) Holds(v record.View, found bool) bool {
	return p.Sum == 0 || found && v.PhysicalOffset() == p.At && sum(v) == p.Sum
}

// Layout of a slot: the values, int64 place, uint32 sum, uint32 check sum over what comes before.
const (
	slotSize = 128
	offAt    = 64
	offSum   = 72
	offCRC   = 76
)

// File is the open file. Each slot belongs to one goroutine.
type File struct {
	f vfs.File
}

// Open opens or creates the file in a configuration folder.
func Open(fsys vfs.FS, dir string) (*File, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("progress: open %s: %w", dir, err)
	}
	path := filepath.Join(dir, FileName)
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("progress: open %s: %w", path, err)
	}
	return &File{f: f}, nil
}

// Read returns what a slot holds. ok is false when it was never written or only in part.
func (p *File) Read(slot int) (values Values, proof Proof, ok bool, err error) {
	var b [slotSize]byte
	n, err := p.f.ReadAt(b[:], int64(slot)*slotSize)
	if n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return values, proof, false, nil
		}
		return values, proof, false, fmt.Errorf("progress: read %s: %w", p.f.Name(), err)
	}
	if binary.BigEndian.Uint32(b[offCRC:]) != crc32.ChecksumIEEE(b[:offCRC]) {
		return values, proof, false, nil
	}
	for i := range values {
		values[i] = int64(binary.BigEndian.Uint64(b[8*i:]))
	}
	proof.At = record.PhysicalOffset(binary.BigEndian.Uint64(b[offAt:]))
	proof.Sum = binary.BigEndian.Uint32(b[offSum:])
	return values, proof, values != Values{}, nil
}

// Write replaces a slot. It does not wait for the disk. Cost: one system call.
func (p *File) Write(slot int, values Values, proof Proof) error {
	var b [slotSize]byte
	for i, v := range values {
		binary.BigEndian.PutUint64(b[8*i:], uint64(v))
	}
	binary.BigEndian.PutUint64(b[offAt:], uint64(proof.At))
	binary.BigEndian.PutUint32(b[offSum:], proof.Sum)
	binary.BigEndian.PutUint32(b[offCRC:], crc32.ChecksumIEEE(b[:offCRC]))
	if _, err := p.f.WriteAt(b[:], int64(slot)*slotSize); err != nil {
		return fmt.Errorf("progress: write %s: %w", p.f.Name(), err)
	}
	return nil
}

// Close closes the file.
func (p *File) Close() error { return p.f.Close() }
