// SPDX-License-Identifier: Apache-2.0

// Package measure holds what a load run observes: latency histograms, counters with report windows,
// the CPU and memory of a process, and the check of numbered messages.
//
// It knows nothing of connections or commands; perf feeds it. Recorder and Checker say for
// themselves what may be called at once. Times are nanoseconds of one monotonic clock, Clock.
//
//	rec := measure.NewRecorder(&gate)
//	if rec.Begin() {
//		rec.AnsweredLocked(1, 1024, 180_000)
//	}
//	rec.End()
//	fmt.Println(rec.Totals().Messages)
package measure
