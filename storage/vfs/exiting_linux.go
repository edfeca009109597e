// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"os"
	"strconv"
)

// exitingFlag is PF_EXITING of the kernel.
const exitingFlag = 0x4

// exiting reports whether a process is on its way out.
func exiting(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// The name in parentheses may hold blanks; state is the first field behind it, flags the seventh.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	state := fields[0][0]
	return err == nil && flags&exitingFlag != 0 || state == 'Z' || state == 'X'
}
