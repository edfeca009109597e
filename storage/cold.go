// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// defaultMemory is what a machine is taken to have when it does not say (as RocketMQ does).
const defaultMemory = 24 << 30

// cold reports whether a range of the log may have to be read from disk. Bytes near the end that
// this run wrote are known to be in memory; about others the kernel is asked, with one system call;
// where it cannot tell they are taken to be cold.
func (s *Store) cold(at record.PhysicalOffset, size int) bool {
	if at >= max(s.hotFrom, s.log.Wrote()-s.hotBytes) {
		return false
	}
	resident, err := s.log.Resident(at, int32(size))
	return err != nil || !resident
}

// warmStep is how much Warm reads at once, in bytes.
const warmStep = 256 << 10

// Warm brings regions into the page cache by reading them. It blocks for the disk, so it belongs
// into a reader pool and not on an event loop. The regions stay the caller's.
func (s *Store) Warm(rs []zerocopy.Region) error {
	buf := make([]byte, warmStep)
	for i := range rs {
		r := &rs[i]
		for at := 0; at < r.Size; at += warmStep {
			n := min(warmStep, r.Size-at)
			if _, err := r.ReadAt(buf[:n], int64(at)); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("storage: read %d bytes from disk: %w", n, err)
			}
		}
	}
	return nil
}

// memoryBytes returns the memory of the machine.
func memoryBytes() int64 {
	text, err := os.ReadFile("/proc/meminfo")
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
