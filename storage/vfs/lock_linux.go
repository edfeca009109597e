// SPDX-License-Identifier: Apache-2.0

package vfs

import "golang.org/x/sys/unix"

// lockCommand takes a lock that belongs to the open file, not to the process.
const lockCommand = unix.F_OFD_SETLK
