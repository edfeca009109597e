// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// machineCPU are the counters of /proc/stat over all processors, in seconds. Zero where there is no
// /proc.
type machineCPU struct{ total, idle, stolen float64 }

func readMachineCPU(proc string) (m machineCPU) {
	text, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return m
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const idleAt, waitAt, stealAt, guestAt = 4, 5, 8, 9 // guest time is part of user time
	for i, field := range fields {
		if i == 0 || i >= guestAt {
			continue
		}
		ticks, _ := strconv.ParseFloat(field, 64)
		seconds := ticks / ticksPerSecond
		m.total += seconds
		switch i {
		case idleAt, waitAt:
			m.idle += seconds
		case stealAt:
			m.stolen += seconds
		}
	}
	return m
}

// Machine is the CPU of the whole machine over the measured window, as shares of all its processors.
type Machine struct {
	IdleShare   float64 `json:"idle_share"`   // waiting for a disk included
	StolenShare float64 `json:"stolen_share"` // taken by the hypervisor for other guests
}

func newMachine(before, after machineCPU) *Machine {
	total := after.total - before.total
	if total <= 0 {
		return nil
	}
	return &Machine{
		IdleShare:   (after.idle - before.idle) / total,
		StolenShare: (after.stolen - before.stolen) / total,
	}
}

// kernelKinds are the kernel threads whose work belongs to what a broker stores: prefixes of their
// names, and what is said of them. Workers of several kinds share names; those that write back carry
// "flush", and threads of journals the name of their file system.
func kernelKinds() [][2]string {
	return [][2]string{
		{"kswapd", "kswapd"},
		{"kcompactd", "kcompactd"},
		{"jbd2/", "journal"},
		{"xfsaild", "journal"},
		{"btrfs-", "journal"},
	}
}

// KernelCPU returns the CPU seconds that kernel threads which write back, reclaim or compact pages
// have used since the machine started, by kind: kswapd, kcompactd, journal, write-back, worker (all
// other kernel workers). Empty where threads of the kernel cannot be seen, as in a container.
func KernelCPU() map[string]float64 { return kernelCPU("/proc") }

func kernelCPU(proc string) map[string]float64 {
	const kthreadd = "2" // parent of every kernel thread
	sum := map[string]float64{}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return sum
	}
	for _, e := range entries {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open {
			continue
		}
		fields := bytes.Fields(stat[end+1:])
		if len(fields) < 2 || string(fields[1]) != kthreadd {
			continue
		}
		name := string(stat[open+1 : end])
		kind := kernelKind(name)
		if kind == "" {
			continue
		}
		if user, system, err := parseStat(stat); err == nil {
			sum[kind] += user + system
		}
	}
	return sum
}

func kernelKind(name string) string {
	for _, k := range kernelKinds() {
		if strings.HasPrefix(name, k[0]) {
			return k[1]
		}
	}
	switch {
	case !strings.HasPrefix(name, "kworker"):
		return ""
	case strings.Contains(name, "flush") || strings.Contains(name, "writeback"):
		return "write-back"
	}
	return "worker"
}

// KernelUsed is what each kind used between two KernelCPU, without those that used nothing. A
// worker that ended meanwhile takes its time with it, so a sum can go down: it counts as 0.
func KernelUsed(before, after map[string]float64) map[string]float64 {
	used := map[string]float64{}
	for kind, seconds := range after {
		if d := seconds - before[kind]; d >= 1.0/ticksPerSecond {
			used[kind] = d
		}
	}
	return used
}
