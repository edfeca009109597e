// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// Environment is where a run ran. A text is empty when it cannot be told.
type Environment struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`      // that this process may use
	Processors  int    `json:"gomaxprocs"` // of the load generator
	Governor    string `json:"governor"`   // of CPU frequency; "none" where the machine has none
	MemoryBytes int64  `json:"memory_bytes"`
	OS          string `json:"os"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Version     string `json:"version"`  // of the load generator
	Revision    string `json:"revision"` // of its source, with "+changes" when it had some
}

// ReadEnvironment describes this machine and this program.
func ReadEnvironment() Environment {
	e := readEnvironment("/proc", "/sys")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return e
	}
	e.Version = info.Main.Version
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			e.Revision = s.Value + e.Revision
		case s.Key == "vcs.modified" && s.Value == "true":
			e.Revision += "+changes"
		}
	}
	return e
}

func readEnvironment(proc, sys string) Environment {
	return Environment{
		CPU: cpuModel(proc), Cores: runtime.NumCPU(), Processors: runtime.GOMAXPROCS(0),
		Governor: governor(sys), MemoryBytes: memoryBytes(proc),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: firstLine(proc, "sys/kernel/osrelease"),
		Go: runtime.Version(),
	}
}

func firstLine(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

func cpuModel(proc string) string {
	text, err := os.ReadFile(filepath.Join(proc, "cpuinfo"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func governor(sys string) string {
	const dir = "devices/system/cpu/cpu0"
	if g := firstLine(sys, filepath.Join(dir, "cpufreq/scaling_governor")); g != "" {
		return g
	}
	if _, err := os.Stat(filepath.Join(sys, dir)); err == nil {
		return "none"
	}
	return ""
}

func memoryBytes(proc string) int64 {
	text, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return 0
	}
	return statusKB(append([]byte("\n"), text...), "MemTotal:") * 1024
}
