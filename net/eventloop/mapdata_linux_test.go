// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func mapData(t testing.TB, d *dataFile, size int) {
	t.Helper()
	mem, err := unix.Mmap(int(d.f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	d.mem = mem
	t.Cleanup(func() { _ = unix.Munmap(mem) })
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
