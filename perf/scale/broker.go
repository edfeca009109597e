// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// broker is a `skylark server`: a name server and a broker in one process, on fixed ports.
type broker struct {
	skylark, dir, conf string
	names, addr        string
	cmd                *exec.Cmd
	errs               *bytes.Buffer
}

// commonSettings are in broker.conf of every dimension, in RocketMQ's keys. Idle connections stay
// for as long as a level takes.
func commonSettings() map[string]string {
	return map[string]string{
		"brokerName": "broker-a", "defaultTopicQueueNums": "8",
		"serverChannelMaxIdleTimeSeconds": "3600",
	}
}

func newBroker(skylark, dir string, settings map[string]string) (*broker, error) {
	b := &broker{skylark: skylark, dir: dir, conf: filepath.Join(dir, "broker.conf")}
	var err error
	if b.names, err = freeAddr(); err == nil {
		b.addr, err = freeAddr()
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	all := commonSettings()
	maps.Copy(all, settings)
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", key, all[key])
	}
	return b, os.WriteFile(b.conf, []byte(text.String()), 0o644)
}

// freeAddr returns a local address that nobody listened on a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts the server and returns how long it took until it serves.
func (b *broker) start(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	b.errs = &bytes.Buffer{}
	b.cmd = exec.CommandContext(ctx, b.skylark, "server", "--json", "--data",
		filepath.Join(b.dir, "data"), "-c", b.conf, "--name-server-listen", b.names,
		"--broker-listen", b.addr)
	b.cmd.Stderr = b.errs
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		b.cmd = nil
		return 0, err
	}
	var where struct {
		Broker string `json:"broker_listen"`
	}
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		b.end(syscall.SIGKILL)
		return 0, fmt.Errorf("the server does not start: %w\n%s", err, b.errs)
	}
	took := time.Since(begin)
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return took, nil
}

// end sends a signal, if there is a process, and waits for its end.
func (b *broker) end(signal syscall.Signal) {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(signal)
	_ = b.cmd.Wait()
	b.cmd = nil
}

func (b *broker) pid() int { return b.cmd.Process.Pid }

// usage is CPU and memory of the process so far.
func (b *broker) usage() (measure.Usage, error) { return measure.ReadUsage(b.pid()) }

// openFiles counts descriptors, sockets included.
func (b *broker) openFiles() (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(b.pid()), "fd"))
	return len(entries), err
}

// mappings counts memory mappings, of which the kernel allows 65 530 by default.
func (b *broker) mappings() (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.pid()), "maps"))
	return bytes.Count(text, []byte("\n")), err
}
