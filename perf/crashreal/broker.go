// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/perf/server"
)

// segmentSize is the length of the log files of these brokers in bytes: small, so that many are
// begun and deleted.
const segmentSize = 4 << 20

// broker is a `skylark server` on fixed ports.
type broker struct {
	*server.Server
	skylark string
}

// newBroker is a server whose files are small and whose retention works all day.
func newBroker(skylark, dir, data, flush string) (*broker, error) {
	hours := ""
	for h := range 24 {
		hours += strconv.Itoa(h) + ";"
	}
	s, err := server.New(skylark, dir, map[string]string{
		"brokerName": "victim", "fastListenPort": "-1", "flushDiskType": flush,
		"mappedFileSizeCommitLog": strconv.Itoa(segmentSize), "mappedFileSizeConsumeQueue": "20000",
		"maxMessageSize": "262144", "maxHashSlotNum": "5000", "maxIndexNum": "20000",
		"deleteWhen": hours, "fileReservedTime": "72", "cleanResourceInterval": "100",
		"diskSpaceWarningLevelRatio": "99", "diskSpaceCleanForciblyRatio": "95",
		"diskMaxUsedSpaceRatio": "95", "cleanFileForciblyEnable": "false",
	})
	if err != nil {
		return nil, err
	}
	s.Store = data
	return &broker{s, skylark}, nil
}

// kill sends SIGKILL, if there is a process, and waits for its end.
func (b *broker) kill() { b.End(syscall.SIGKILL) }

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
	v.cmd = exec.CommandContext(ctx, b.skylark, "perf", "verify", "--json", "-n", b.Names,
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
