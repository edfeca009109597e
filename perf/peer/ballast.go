// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"syscall"
)

const (
	// ballastLeave is what servers, load generator and page cache have beside the ballast, in bytes.
	ballastLeave = 6 << 30
	// ballastLeast is the least ballast that is worth it, in bytes.
	ballastLeast = 1 << 30
)

// ballast is memory that nobody uses. A kernel that reclaims idle pages by itself, or gives free memory
// back to a hypervisor, does not let a full page cache stay full: minutes after it was filled there are
// gigabytes free again, and writing into such memory stalls the machine. With most of the memory taken,
// what the servers write fills the rest within seconds and keeps it full.
type ballast struct{ mem []byte }

// newBallast takes all available memory but ballastLeave; nothing on a small machine. size is given
// for tests; 0 decides by the machine.
func newBallast(size int64) (*ballast, error) {
	if size == 0 {
		available, err := memoryBytes("MemAvailable")
		if err != nil {
			return nil, err
		}
		if size = available - ballastLeave; size < ballastLeast {
			return &ballast{}, nil
		}
	}
	say("taking %d MB of memory, so that the page cache stays full", size>>20)
	mem, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("take %d MB of memory: %w; -ballast=false does without", size>>20, err)
	}
	for at := 0; at < len(mem); at += os.Getpagesize() {
		mem[at] = 1
	}
	return &ballast{mem: mem}, nil
}

// drop gives the memory back. A second call does nothing.
func (b *ballast) drop() {
	if b.mem != nil {
		_ = syscall.Munmap(b.mem)
		b.mem = nil
	}
}
