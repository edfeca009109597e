// SPDX-License-Identifier: Apache-2.0

//go:build !race

package eventloop_test

const raceEnabled = false
