// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMemoryTotal: the least of the machine's memory and the limits of all groups that the process is in.
func TestMemoryTotal(t *testing.T) {
	t.Parallel()
	const machine = "proc/meminfo"
	meminfo := "MemTotal:       16777216 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known": {nil, 24 << 30},
		"no limit":      {map[string]string{machine: meminfo}, 16 << 30},
		"container, version 2": {map[string]string{
			machine: meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, 1 << 30},
		"service, the slice above is the tighter one": {map[string]string{
			machine: meminfo, "proc/self/cgroup": "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max": "max\n",
			"sys/fs/cgroup/a.slice/memory.max":           "2147483648\n",
		}, 2 << 30},
		"version 1": {map[string]string{
			machine: meminfo, "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\n0::/\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "3221225472\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
		}, 3 << 30},
		"a container that sees the host's path": {map[string]string{
			machine: meminfo, "proc/self/cgroup": "4:memory:/not/there\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, 512 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := memoryTotal(root); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
