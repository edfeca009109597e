// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package vfs

import "golang.org/x/sys/unix"

// lockCommand takes a record lock, which does not exclude a second store in the same process.
const lockCommand = unix.F_SETLK
