// SPDX-License-Identifier: Apache-2.0

//go:build !race

package client_test

const raceDetector = false
