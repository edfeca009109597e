// SPDX-License-Identifier: Apache-2.0

// Package server runs `skylark server` as a process of its own for programs that measure it: start
// on a folder, usage, loads by `skylark perf`, end by a signal. It is for one goroutine.
//
//	s, err := server.New("bin/skylark", dir, map[string]string{"flushDiskType": "SYNC_FLUSH"})
//	_, err = s.Start(ctx)
//	defer s.End(syscall.SIGKILL)
//	results, err := s.Perf(ctx, "produce", "--topic", "t", "--count", "1000")
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/skylarkmq/skylark/perf/report"
)

// Server is a name server and a broker in one process, on ports that stay the same.
type Server struct {
	Names, Addr string   // host:port of the name server and of the broker
	Dir         string   // of the configuration
	Store       string   // the store; the folder data in Dir unless it is set before Start
	Args        []string // further arguments of the next Start; none unless it is set

	skylark, conf string
	cmd           *exec.Cmd
	errs          *bytes.Buffer
}

// New writes the configuration of a server into dir, with settings in RocketMQ's keys, and picks
// free ports. Nothing runs yet. skylark is the path of the binary.
func New(skylark, dir string, settings map[string]string) (*Server, error) {
	s := &Server{
		skylark: skylark, Dir: dir, Store: filepath.Join(dir, "data"),
		conf: filepath.Join(dir, "broker.conf"),
	}
	var err error
	if s.Names, err = freeAddr(); err == nil {
		s.Addr, err = freeAddr()
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", key, settings[key])
	}
	return s, os.WriteFile(s.conf, []byte(text.String()), 0o644)
}

// freeAddr returns a local address that nobody listened on a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Start starts the server on what the folder holds, and returns how long it took until it serves.
func (s *Server) Start(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	s.errs = &bytes.Buffer{}
	s.cmd = exec.CommandContext(ctx, s.skylark, append([]string{
		"server", "--json", "--data", s.Store, "-c", s.conf, "--name-server-listen", s.Names,
		"--broker-listen", s.Addr,
	}, s.Args...)...)
	s.cmd.Stderr = s.errs
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.cmd = nil
		return 0, err
	}
	var where struct {
		Broker string `json:"broker_listen"`
	}
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		s.End(syscall.SIGKILL)
		return 0, fmt.Errorf("the server does not start: %w\n%s", err, s.errs)
	}
	took := time.Since(begin)
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return took, nil
}

// End sends a signal, if there is a process, and waits for its end; after a minute it is killed.
func (s *Server) End(signal syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(signal)
	timer := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	timer.Stop()
	s.cmd = nil
}

// PID is the running process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Usage is CPU and memory of the process so far.
func (s *Server) Usage() (measure.Usage, error) { return measure.ReadUsage(s.PID()) }

// OpenFiles counts descriptors, sockets included.
func (s *Server) OpenFiles() (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.PID()), "fd"))
	return len(entries), err
}

// Mappings counts memory mappings, of which the kernel allows 65 530 by default.
func (s *Server) Mappings() (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID()), "maps"))
	return bytes.Count(text, []byte("\n")), err
}

// Perf runs `skylark perf` against the server, which measures its process, and returns the
// results, at least one. A run that ends with a failure is an error with what it printed, beside the
// results that it has all the same.
func (s *Server) Perf(ctx context.Context, args ...string) ([]*measure.Result, error) {
	line := append([]string{"perf"}, args...)
	line = append(line, "-n", s.Names, "--broker-pid", strconv.Itoa(s.PID()), "--json")
	cmd := exec.CommandContext(ctx, s.skylark, line...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	runs, unread := report.Parse(out.Bytes())
	switch {
	case err == nil && unread == nil && len(runs) > 0:
		return runs, nil
	case err == nil:
		err = errors.Join(unread, errors.New("no result"))
	}
	command := strings.Join(line, " ")
	return runs, fmt.Errorf("%s %.300s: %w\n%.2000s", filepath.Base(s.skylark), command, err,
		text.String()+out.String())
}
