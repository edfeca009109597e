// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package eventloop_test

import "testing"

func mapData(testing.TB, *dataFile, int) {}

func descriptors(*testing.T) int { return 0 }
