// SPDX-License-Identifier: Apache-2.0

package storage

import "time"

// FlushQueues does what the maintainer does from time to time: queues and checkpoint go to disk.
func (s *Store) FlushQueues() { s.flushQueues() }

// CleanNow looks once for old files, as if an operator had asked for it. The cleaner's goroutine
// must be at rest: Retention.Every is longer than the test.
func (s *Store) CleanNow(now time.Time) {
	s.cleaner.manual.Store(1)
	s.cleaner.look(now)
}

// LookNow looks once for old files, as the cleaner does every Retention.Every.
func (s *Store) LookNow(now time.Time) { s.cleaner.look(now) }
