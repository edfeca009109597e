// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// socketsMax bounds the work of a look at the sockets: a process with more open files is not looked
// at, since each look reads a link for each of them.
const socketsMax = 4096

// socketQueues sums, over the TCP sockets of a process (its folder below /proc), the bytes received
// and not read, and those written and not acknowledged. Zero where they cannot be seen.
func socketQueues(process string) (unread, unsent int64) {
	fds, err := os.ReadDir(filepath.Join(process, "fd"))
	if err != nil || len(fds) > socketsMax {
		return 0, 0
	}
	own := map[string]bool{}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(process, "fd", fd.Name()))
		if err != nil {
			continue
		}
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(process, "net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			rx, tx, ok := queuesOf(line, own)
			if ok {
				unread += rx
				unsent += tx
			}
		}
	}
	return unread, unsent
}

// queuesOf reads one line of /proc/net/tcp; false unless it is an established socket in own.
func queuesOf(line string, own map[string]bool) (rx, tx int64, ok bool) {
	const stateAt, queuesAt, inodeAt, established = 3, 4, 9, "01"
	fields := strings.Fields(line)
	if len(fields) <= inodeAt || fields[stateAt] != established || !own[fields[inodeAt]] {
		return 0, 0, false
	}
	txText, rxText, found := strings.Cut(fields[queuesAt], ":")
	if !found {
		return 0, 0, false
	}
	tx, err := strconv.ParseInt(txText, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	if rx, err = strconv.ParseInt(rxText, 16, 64); err != nil {
		return 0, 0, false
	}
	return rx, tx, true
}
