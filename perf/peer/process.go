// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	tailBytes = 64 << 10 // of each log that goes into the results folder
	tailLines = 30       // of the log of a process that died, shown at once
)

// process is a running server. Its end is seen at once, whoever causes it: a broker that vanished
// in the middle of a load once left no word of how.
type process struct {
	name  string // as "skylark broker"
	cmd   *exec.Cmd
	log   string        // file with its standard output and error
	ended chan struct{} // closed when it has ended
	state *os.ProcessState
	at    time.Time // of its end; like state, to be read once ended is closed
}

// startProcess starts cmd with its output in a file.
func startProcess(name string, cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own copy
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state says more than the error
		p.state, p.at = cmd.ProcessState, time.Now()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// died describes an end that nobody asked for: exit status or signal, memory and CPU it had used,
// the end of its log, and what the kernel says of killed processes. nil while it runs.
func (p *process) died() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	text := fmt.Sprintf("%s (process %d) ended at %s: %s, after %v of user and %v of system time",
		p.name, p.pid(), p.at.Format(time.RFC3339), how(p.state), p.state.UserTime(), p.state.SystemTime())
	if usage, ok := p.state.SysUsage().(*syscall.Rusage); ok {
		text += fmt.Sprintf(", at most %d MB resident", usage.Maxrss>>10)
	}
	if end := lastLines(tailOf(p.log), tailLines); end != "" {
		text += "\nend of its log:\n" + end
	}
	if kernel := kernelWords(); kernel != "" {
		text += "\nthe kernel says:\n" + kernel
	}
	return errors.New(text)
}

// how says what ended a process.
func how(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		text := fmt.Sprintf("signal %d (%v)", int(status.Signal()), status.Signal())
		if status.CoreDump() {
			text += ", with a core dump"
		}
		return text
	}
	return fmt.Sprintf("exit status %d", state.ExitCode())
}

// kernelWords are the last lines of the kernel's log about killed or crashed processes, as far as
// it may be read.
func kernelWords() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text, err := output(ctx, "dmesg")
	if err != nil {
		return ""
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		low := strings.ToLower(line)
		for _, word := range []string{"out of memory", "oom-kill", "killed process", "segfault", "hung task"} {
			if strings.Contains(low, word) {
				found = append(found, strings.TrimRight(line, "\n"))
				break
			}
		}
	}
	return strings.Join(found[max(0, len(found)-10):], "\n")
}

// end asks the process to end and waits; after a minute it is killed.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(60*time.Second, func() { _ = p.cmd.Process.Kill() })
	<-p.ended
	timer.Stop()
}

// tailOf returns the end of a file, "" when it cannot be read.
func tailOf(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	return string(text)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// keepLogs copies the ends of a side's logs into the folder to: what its processes printed, and the
// files that Apache RocketMQ writes below its home folder. An empty name keeps nothing.
func (s *side) keepLogs(to, label string) {
	if to == "" || s.dir == "" {
		return
	}
	names, _ := filepath.Glob(filepath.Join(s.dir, "*.out"))
	more, _ := filepath.Glob(filepath.Join(s.dir, "logs", "rocketmqlogs", "*.log"))
	for _, name := range append(names, more...) {
		text := tailOf(name)
		if text == "" {
			continue
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			say("%v", err)
			return
		}
		kept := label + "-" + s.name + "-" + filepath.Base(name)
		if err := os.WriteFile(filepath.Join(to, kept), []byte(text), 0o644); err != nil {
			say("%v", err)
		}
	}
}

// output runs a program and returns what it prints.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s %v: %w\n%s", name, args, err, text.Bytes())
	}
	return out.Bytes(), nil
}
