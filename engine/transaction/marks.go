// SPDX-License-Identifier: Apache-2.0

package transaction

// state is what is known of one half message.
type state uint8

const (
	pending state = iota // not decided
	moved                // not decided, but this copy does not count any more: a later one does
	ended                // committed or rolled back
)

// chunkOffsets is how many queue offsets share one block of marks, and keptChunks how many blocks
// behind the position are kept, to know an end that comes twice.
const (
	chunkOffsets = 1 << 16
	keptChunks   = 4
)

// marks is a sparse set of states by queue offset: two bits for each offset, in blocks of 16 KiB
// that exist only where something is marked.
type marks struct {
	chunks map[int64]*chunk
}

type chunk struct {
	done  [chunkOffsets / 64]uint64 // moved or ended
	ended [chunkOffsets / 64]uint64
}

// of returns the state of an offset; pending where nothing is known.
func (m *marks) of(offset int64) state {
	c := m.chunks[offset/chunkOffsets]
	if c == nil {
		return pending
	}
	word, bit := offset%chunkOffsets/64, uint64(1)<<(offset%64)
	switch {
	case c.ended[word]&bit != 0:
		return ended
	case c.done[word]&bit != 0:
		return moved
	}
	return pending
}

// set notes a state.
func (m *marks) set(offset int64, to state) {
	key := offset / chunkOffsets
	c := m.chunks[key]
	if c == nil {
		if to == pending {
			return
		}
		if m.chunks == nil {
			m.chunks = map[int64]*chunk{}
		}
		c = &chunk{}
		m.chunks[key] = c
	}
	word, bit := offset%chunkOffsets/64, uint64(1)<<(offset%64)
	c.done[word] &^= bit
	c.ended[word] &^= bit
	if to != pending {
		c.done[word] |= bit
	}
	if to == ended {
		c.ended[word] |= bit
	}
}

// forget drops the blocks that lie far enough behind a position.
func (m *marks) forget(position int64) {
	for key := range m.chunks {
		if key < position/chunkOffsets-keptChunks {
			delete(m.chunks, key)
		}
	}
}

// known tells whether marks of an offset behind the position are still kept.
func (m *marks) known(offset, position int64) bool {
	return offset/chunkOffsets >= position/chunkOffsets-keptChunks
}
