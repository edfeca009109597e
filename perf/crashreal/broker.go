// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// segmentSize is the length of the log files of these brokers in bytes: small, so that many are
// begun and deleted.
const segmentSize = 4 << 20

// broker is a `skylark server` on fixed ports.
type broker struct {
	skylark, conf string
	data          string // where the store lies
	names, addr   string
	cmd           *exec.Cmd
	errs          *bytes.Buffer
}

func newBroker(skylark, dir, data, flush string) (*broker, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b := &broker{skylark: skylark, data: data, conf: filepath.Join(dir, "broker.conf")}
	var err error
	if b.names, err = freeAddr(); err == nil {
		b.addr, err = freeAddr()
	}
	if err != nil {
		return nil, err
	}
	hours := ""
	for h := range 24 {
		hours += strconv.Itoa(h) + ";"
	}
	text := fmt.Sprintf("brokerName=victim\nfastListenPort=-1\nflushDiskType=%s\nmappedFileSizeCommitLog=%d\n"+
		"mappedFileSizeConsumeQueue=20000\nmaxMessageSize=262144\nmaxHashSlotNum=5000\n"+
		"maxIndexNum=20000\ndeleteWhen=%s\nfileReservedTime=72\ncleanResourceInterval=100\n"+
		"diskSpaceWarningLevelRatio=99\ndiskSpaceCleanForciblyRatio=95\ndiskMaxUsedSpaceRatio=95\n"+
		"cleanFileForciblyEnable=false\n", flush, segmentSize, hours)
	return b, os.WriteFile(b.conf, []byte(text), 0o644)
}

// freeAddr returns a local address that nobody listened on a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts the server and waits until it serves.
func (b *broker) start() error {
	b.errs = &bytes.Buffer{}
	b.cmd = exec.Command(b.skylark, "server", "--json", "--data", b.data,
		"-c", b.conf, "--name-server-listen", b.names, "--broker-listen", b.addr)
	b.cmd.Stderr = b.errs
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		b.cmd = nil
		return err
	}
	var where struct {
		Broker string `json:"broker_listen"`
	}
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		b.kill()
		return fmt.Errorf("the server does not start: %w\n%s", err, b.errs)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return nil
}

// kill sends SIGKILL, if there is a process, and waits for its end.
func (b *broker) kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.cmd = nil
}

// checkedTopic is the topic of perf verify.
const checkedTopic = "checked"

// verifier is a running `skylark perf verify`.
type verifier struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func (b *broker) startVerify(ctx context.Context, rate int) (*verifier, error) {
	v := &verifier{done: make(chan error, 1)}
	v.cmd = exec.CommandContext(ctx, b.skylark, "perf", "verify", "--json", "-n", b.names,
		"--topic", checkedTopic, "--queues", "4", "--connections", "4", "--size", "512",
		"--rate", strconv.Itoa(rate), "--timeout-ms", "3000", "--duration", "24h", "--drain", "60s")
	v.cmd.Stdout, v.cmd.Stderr = &v.out, &v.out
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { v.done <- v.cmd.Wait() }()
	return v, nil
}

// finish interrupts it, waits until it has read everything, and returns what it found.
func (v *verifier) finish() (verdict string, messages int, err error) {
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		return "", 0, fmt.Errorf("perf verify ended early: %w\n%s", err, tail(v.out.Bytes()))
	}
	timer := time.NewTimer(2 * time.Minute)
	defer timer.Stop()
	select {
	case err := <-v.done:
		text, n := v.summary()
		if err != nil {
			err = fmt.Errorf("perf verify: %w\n%s", err, tail(v.out.Bytes()))
		}
		return text, n, err
	case <-timer.C:
		return "", 0, errors.New("perf verify does not end within 2 minutes")
	}
}

// stop kills it if it still runs.
func (v *verifier) stop() { _ = v.cmd.Process.Kill() }

// summary picks the verdict out of its last result.
func (v *verifier) summary() (text string, messages int) {
	text = "no result"
	for dec := json.NewDecoder(bytes.NewReader(v.out.Bytes())); ; {
		var r struct {
			Sent   int64           `json:"sent"`
			OK     bool            `json:"ok"`
			Verify json.RawMessage `json:"verify"`
		}
		if dec.Decode(&r) != nil {
			return text, messages
		}
		if len(r.Verify) > 0 {
			var count struct {
				Messages int `json:"messages"`
			}
			if json.Unmarshal(r.Verify, &count) == nil {
				messages = count.Messages
			}
			var compact bytes.Buffer
			if json.Compact(&compact, r.Verify) == nil {
				text = fmt.Sprintf("ok %v %s", r.OK, compact.String())
			}
		}
	}
}

func tail(b []byte) string { return string(b[max(0, len(b)-2000):]) }
