// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package workload

import "time"

// pause sleeps with the precision of the runtime's timers.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}
