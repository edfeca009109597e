// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"syscall"
	"time"
)

// pause sleeps with the precision of the kernel, about 60 microseconds. The runtime's own timers
// wake an idle process in whole milliseconds, which would send a rate of 10 000/s in clumps of ten.
// The sleeping goroutine keeps its thread and, for a while, its processor: see paceProcessors.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // woken early by a signal: the caller looks at the clock again
}
