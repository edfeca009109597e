// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for every architecture Go runs on.
const ticksPerSecond = 100

// Usage is what /proc says of a process at one moment.
type Usage struct {
	UserSeconds   float64 // CPU in user mode since the process began
	SystemSeconds float64 // CPU in the kernel
	RSSAnonBytes  int64   // resident anonymous memory: heap and stacks, without file mappings
	RSSFileBytes  int64   // resident file mappings
}

// CPUSeconds is the sum of both modes.
func (u Usage) CPUSeconds() float64 { return u.UserSeconds + u.SystemSeconds }

// ReadUsage reads the usage of process pid. Pass the pid of the broker itself: a shell that started
// it uses no CPU. CPU comes in steps of 10 ms.
func ReadUsage(pid int) (Usage, error) { return readUsage("/proc", pid) }

func readUsage(proc string, pid int) (Usage, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("measure: reading the CPU of process %d: %w", pid, err)
	}
	var u Usage
	if u.UserSeconds, u.SystemSeconds, err = parseStat(stat); err != nil {
		return Usage{}, fmt.Errorf("measure: reading the CPU of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("measure: reading the memory of process %d: %w", pid, err)
	}
	u.RSSAnonBytes = statusKB(status, "RssAnon:") * 1024
	u.RSSFileBytes = statusKB(status, "RssFile:") * 1024
	return u, nil
}

// parseStat takes utime and stime, fields 14 and 15. The command name in field 2 may hold blanks
// and parentheses, so counting starts behind the last closing one.
func parseStat(stat []byte) (user, system float64, err error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("stat has no command name: %q", stat)
	}
	fields := bytes.Fields(stat[end+1:])
	const userAt, systemAt = 14 - 3, 15 - 3
	if len(fields) <= systemAt {
		return 0, 0, fmt.Errorf("stat has %d fields after the name", len(fields))
	}
	u, err := strconv.ParseInt(string(fields[userAt]), 10, 64)
	if err != nil {
		return 0, 0, err
	}
	s, err := strconv.ParseInt(string(fields[systemAt]), 10, 64)
	if err != nil {
		return 0, 0, err
	}
	return float64(u) / ticksPerSecond, float64(s) / ticksPerSecond, nil
}

// statusKB returns the value of one "Name:  123 kB" line, 0 when there is none.
func statusKB(status []byte, name string) int64 {
	_, rest, ok := bytes.Cut(status, []byte("\n"+name))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) == 0 {
		return 0
	}
	kb, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kb
}
