// SPDX-License-Identifier: Apache-2.0

//go:build !race

package timer_test

const raceDetector = false
