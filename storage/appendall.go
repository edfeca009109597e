// SPDX-License-Identifier: Apache-2.0

package storage

import "errors"

// ErrNotReached says that an entry of AppendAll was not stored because one before it could not be.
var ErrNotReached = errors.New("storage: an earlier entry of the group was not stored")

// AppendAll is Append for entries that depend on those before them, as what notes that something
// was done depends on the doing: from the first entry that cannot be stored on, none is stored, and
// those behind it get ErrNotReached. It returns how many were stored.
//
// All that is stored is published at once, so no reader and no kill of the process comes between two
// of them, save inside the copying itself; what a power loss leaves is a beginning of them. They survive
// the end of the process, whatever Entry.AwaitsFlush says.
func (s *Store) AppendAll(es []Entry) (stored int) {
	stored, d := s.appendRound(es, true)
	if stored > 0 {
		s.writeOut(es[:stored], true)
		if es[0].Err != nil {
			stored = 0
		}
		s.wakeWorkers()
	}
	s.tell(d)
	return stored
}
