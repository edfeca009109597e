// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package vfs

// exiting cannot be told here: a holder is taken to live on.
func exiting(int) bool { return false }
