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

// Machine is the CPU of the whole machine over the measured window, as shares of all its
// processors.
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

// KernelThreads is what threads of the kernel had used at one moment, by thread.
type KernelThreads map[int]kernelThread

type kernelThread struct {
	kind    string
	seconds float64
}

// kernelKind says what a kernel thread does that a broker's pages cause; "" when it is none of
// that. Write-back runs on unbound workers, which say so only while they do it: all their work is
// one kind.
func kernelKind(name string) string {
	for _, k := range [][2]string{
		{"kswapd", "kswapd"},
		{"kcompactd", "kcompactd"},
		{"jbd2/", "journal"},
		{"xfsaild", "journal"},
		{"btrfs-", "journal"},
		{"kworker/u", "unbound-worker"},
		{"kworker/", "worker"},
	} {
		if strings.HasPrefix(name, k[0]) {
			return k[1]
		}
	}
	return ""
}

// KernelCPU reads the threads that write back, reclaim or compact pages, or keep a journal. Empty
// where threads of the kernel cannot be seen, as in a container.
func KernelCPU() KernelThreads { return kernelCPU("/proc") }

func kernelCPU(proc string) KernelThreads {
	const kthreadd = "2" // parent of every kernel thread
	threads := KernelThreads{}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return threads
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
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
		kind := kernelKind(string(stat[open+1 : end]))
		if kind == "" {
			continue
		}
		if user, system, err := parseStat(stat); err == nil {
			threads[pid] = kernelThread{kind, user + system}
		}
	}
	return threads
}

// KernelUsed is the CPU in seconds that each kind used between two readings: kswapd, kcompactd,
// journal, unbound-worker (write-back is theirs), worker. A thread that ended meanwhile takes its
// time with it. Kinds that used nothing are left out.
func KernelUsed(before, after KernelThreads) map[string]float64 {
	used := map[string]float64{}
	for pid, t := range after {
		if d := t.seconds - before[pid].seconds; d > 0 {
			used[t.kind] += d
		}
	}
	return used
}
