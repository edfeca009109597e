// SPDX-License-Identifier: Apache-2.0

package timer

// Settle waits for a checkpoint that is being written: a test that lets the service die must not
// have it written into the next life.
func (s *Service) Settle() {
	if s.saving != nil {
		s.settled(<-s.saving)
	}
}
