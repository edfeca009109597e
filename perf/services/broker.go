// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/perf/measure"
)

// broker is a `skylark server` with its data in one directory.
type broker struct {
	name        string
	skylark     string
	dir         string
	names, addr string
	cmd         *exec.Cmd
	errs        bytes.Buffer
	startedIn   time.Duration // from the start of the process until it serves
}

func newBroker(skylark, name, dir string) (*broker, error) {
	b := &broker{name: name, skylark: skylark, dir: dir}
	var err error
	if b.names, err = freeAddr(); err == nil {
		b.addr, err = freeAddr()
	}
	return b, err
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
	b.errs.Reset()
	b.cmd = exec.Command(b.skylark, "server", "--json", "--data", b.dir,
		"--name-server-listen", b.names, "--broker-listen", b.addr)
	b.cmd.Stderr = &b.errs
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		b.cmd = nil
		return err
	}
	var where struct {
		Broker string `json:"broker_listen"`
	}
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		b.end(syscall.SIGKILL)
		return fmt.Errorf("the server does not start: %w\n%s", err, b.errs.String())
	}
	b.startedIn = time.Since(began)
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return nil
}

func (b *broker) pid() int { return b.cmd.Process.Pid }

func (b *broker) usage() (measure.Usage, error) { return measure.ReadUsage(b.pid()) }

// end sends a signal, if there is a process, and waits for its end.
func (b *broker) end(with syscall.Signal) {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(with)
	timer := time.AfterFunc(time.Minute, func() { _ = b.cmd.Process.Kill() })
	_ = b.cmd.Wait()
	timer.Stop()
	b.cmd = nil
}

func (b *broker) client() (*client.Client, error) { return client.New([]string{b.names}) }

// makeTopic makes a topic with so many queues.
func (b *broker) makeTopic(ctx context.Context, c *client.Client, name string, queues int) error {
	_, err := admin.New(c).PutTopic(ctx,
		admin.TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues}, admin.Everywhere())
	return err
}

// watch returns what the process needs while it is left alone: CPU in percent of a core, and
// anonymous memory at the end.
func (b *broker) watch(ctx context.Context, d time.Duration) (percent float64, rss int64, err error) {
	before, err := b.usage()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := wait(ctx, d); err != nil {
		return 0, 0, err
	}
	after, err := b.usage()
	took := time.Since(began).Seconds()
	return (after.CPUSeconds() - before.CPUSeconds()) / took * 100, after.RSSAnonBytes, err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
