// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"fmt"

	"github.com/skylarkmq/skylark/storage/mappedfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// readStep is how much the reader fetches at least, in bytes.
const readStep = 1 << 20

// reader gives windows of a segment, read through its descriptor: a bad block is an error, not a
// memory fault, and no page becomes part of a mapping that is appended to later.
type reader struct {
	size  int // of a segment
	file  *mappedfile.File
	buf   []byte // the bytes of file from start on
	start int
}

// at returns the n bytes at pos, which lie in the segment. They are valid until the next call.
func (r *reader) at(file *mappedfile.File, pos, n int) ([]byte, error) {
	if file == r.file && pos >= r.start && pos+n <= r.start+len(r.buf) {
		return r.buf[pos-r.start:][:n], nil
	}
	// The window ends with a page: the next one must not begin in a page that is in the cache only
	// because this one needed its first bytes, see searchIn.
	want := min(max(n, readStep-pos%vfs.PageSize), r.size-pos)
	if cap(r.buf) < want {
		r.buf = make([]byte, want)
	}
	r.buf, r.file, r.start = r.buf[:want], file, pos
	if _, err := file.ReadAt(r.buf, int64(pos)); err != nil {
		r.file = nil
		return nil, fmt.Errorf("commitlog: read %d bytes at %d of %s: %w", want, pos, file.Path(), err)
	}
	return r.buf[:n], nil
}

// search finds the first valid record at or behind offset from, in segment number index or a later
// one. Holes and blocks never written are not read.
func (w *walk) search(index int, from int64) (at int64, i int, found bool, err error) {
	for i = index; i < len(w.segs); i++ {
		seg := w.segs[i]
		if seg == nil {
			continue
		}
		at, found, err := w.searchIn(seg, max(from, seg.base))
		if found || err != nil {
			return at, i, found, err
		}
	}
	return 0, 0, false, nil
}

// searchIn looks for the magic of a record and then for one that says it lies there.
func (w *walk) searchIn(seg *segment, from int64) (at int64, found bool, err error) {
	magic := record.MagicPrefix()
	const lead = record.MagicOffset
	// Read-ahead would fill the page cache with zeros in front of the search, and NextData could not
	// tell them from data any more: the unwritten rest of 1 GiB would all be read.
	defer seg.file.Search(int(from - seg.base))()
	for pos := int(from - seg.base); ; {
		pos = seg.file.NextData(pos)
		rest := w.read.size - pos
		if rest < record.MinSize {
			return 0, false, nil
		}
		b, err := w.read.at(seg.file, pos, min(rest, readStep-pos%vfs.PageSize))
		if err != nil {
			return 0, false, err
		}
		hit := bytes.Index(b[lead:], magic)
		if hit < 0 {
			if rest == len(b) {
				return 0, false, nil
			}
			// A magic may lie across the end, unless zeros follow that were never written. NextData
			// can tell only from a page on that has not been read.
			if pos += len(b); seg.file.NextData(pos) == pos {
				pos -= lead + len(magic) - 1
			}
			continue
		}
		pos += hit
		_, reason, err := w.valid(seg, seg.base+int64(pos))
		if err != nil || reason == "" {
			return seg.base + int64(pos), err == nil, err
		}
		pos++
	}
}
