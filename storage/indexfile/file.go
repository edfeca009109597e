// SPDX-License-Identifier: Apache-2.0

package indexfile

import (
	"encoding/binary"
	"math"
	"os"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// file is one index file. The index's lock guards it.
type file struct {
	path   string
	header Header // of a mapped file: the same as in the mapping
	m      vfs.Mapping
	mem    []byte // nil while it is not mapped
}

// mapFile maps the file, extending it to its size, which RocketMQ does too.
func (f *file) mapFile(fsys vfs.FS, size int64, create bool) error {
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE | os.O_EXCL
	}
	handle, err := fsys.OpenFile(f.path, flag, 0o644)
	if err != nil {
		return err
	}
	length, err := handle.Size()
	if err == nil && length < size {
		err = handle.Truncate(size)
	}
	if err == nil {
		f.m, err = handle.Map(int(size))
	}
	if e := handle.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	f.mem = f.m.Bytes()
	f.header = decodeHeader(f.mem)
	return nil
}

func (f *file) unmap() error {
	if f.mem == nil {
		return nil
	}
	f.mem = nil
	return f.m.Unmap()
}

// put adds one key. The caller has checked that there is room.
func (f *file) put(s shape, keyHash int32, at record.PhysicalOffset, storeMS int64) {
	h := &f.header
	slot := f.mem[s.slot(keyHash):]
	prev := int32(binary.BigEndian.Uint32(slot))
	if prev <= 0 || prev >= h.Count {
		prev = 0
	}
	e := entry{hash: keyHash, at: at, prev: prev}
	if h.BeginMS > 0 {
		e.delta = int32(min(max((storeMS-h.BeginMS)/1000, 0), math.MaxInt32))
	}
	e.encode(f.mem[s.entry(h.Count):])
	binary.BigEndian.PutUint32(slot, uint32(h.Count))
	if h.Count <= 1 {
		h.BeginAt, h.BeginMS = at, storeMS
	}
	if prev == 0 {
		h.SlotsUsed++
	}
	h.Count++
	h.EndAt, h.EndMS = at, storeMS
	h.encode(f.mem)
}

// resume maps the file that a process was writing to when it died: mapped, it is flushed when it is
// full, whoever wrote to it. put may have ended between slot and header, so that the slot names an entry
// that the header does not count, or the file was copied while it was written to: such slots get back
// the newest entry that counts. Cost: a look at every slot.
func (f *file) resume(fsys vfs.FS, s shape) error {
	if err := f.mapFile(fsys, s.size(), false); err != nil {
		return err
	}
	count := f.header.Count
	for slots := f.mem[headerSize:s.entry(0)]; len(slots) > 0; slots = slots[slotSize:] {
		n := int32(binary.BigEndian.Uint32(slots))
		if n < count {
			continue
		}
		for n >= count && n < s.entries {
			prev := decodeEntry(f.mem[s.entry(n):]).prev
			if prev >= n {
				prev = 0 // no chain goes forward
			}
			n = prev
		}
		if n < 0 || n >= count {
			n = 0
		}
		binary.BigEndian.PutUint32(slots, uint32(n))
	}
	return nil
}

// find appends the offsets of the entries with the hash whose time lies in [beginMS, endMS], newest
// first, until dst has limit of them.
func (f *file) find(dst []record.PhysicalOffset, s shape, keyHash int32, limit int, beginMS,
	endMS int64,
) []record.PhysicalOffset {
	h := f.header
	n := int32(binary.BigEndian.Uint32(f.mem[s.slot(keyHash):]))
	if n <= 0 || n >= h.Count || h.Count > s.entries {
		return dst
	}
	for len(dst) < limit {
		e := decodeEntry(f.mem[s.entry(n):])
		if e.delta < 0 {
			break
		}
		storeMS := h.BeginMS + int64(e.delta)*1000
		if e.hash == keyHash && beginMS <= storeMS && storeMS <= endMS {
			dst = append(dst, e.at)
		}
		// Chains only go back; anything else is damage and could go round for ever.
		if e.prev <= 0 || e.prev >= n || storeMS < beginMS {
			break
		}
		n = e.prev
	}
	return dst
}
