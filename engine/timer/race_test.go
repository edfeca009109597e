// SPDX-License-Identifier: Apache-2.0

//go:build race

package timer_test

// raceDetector makes everything larger and slower.
const raceDetector = true
