// SPDX-License-Identifier: Apache-2.0

package transaction

import "time"

// StepFor is Step for about so long.
func (s *Service) StepFor(now time.Time, most time.Duration) (next time.Time, more bool) {
	return s.step(now, most)
}
