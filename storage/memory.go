// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// defaultMemory is what a machine is taken to have when it does not say (as RocketMQ does).
const defaultMemory = 24 << 30

// MemoryTotal returns the memory that this process can have, in bytes: that of the machine, or less where
// a cgroup, of either version, limits it. 24 GiB where nothing is known, as in RocketMQ, whose JVM counts
// the same way (StoreUtil.TOTAL_PHYSICAL_MEMORY_SIZE).
func MemoryTotal() int64 { return memoryTotal("/") }

// memoryTotal is MemoryTotal for a system whose files lie below root.
func memoryTotal(root string) int64 {
	total := machineMemory(filepath.Join(root, "proc/meminfo"))
	lines, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	mount := filepath.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(string(lines) + "0::/\n") { // at least the root, which a container sees
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, file := mount, "memory.max"
		if parts[1] == "memory" { // version 1
			dir, file = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		// Each group above limits too.
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			if limit := memoryLimit(filepath.Join(dir, path, file)); limit > 0 {
				total = min(total, limit)
			}
			if path == "/" {
				break
			}
		}
	}
	return total
}

// memoryLimit reads one limit; 0: there is none.
func memoryLimit(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return limit
}

// machineMemory returns the memory of the machine.
func machineMemory(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return defaultMemory
	}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "MemTotal:" {
			if kib, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return defaultMemory
}
