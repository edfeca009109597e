// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
)

// side is one of the two brokers with its name server.
type side struct {
	name     string
	settings map[string]string // what the report lists
	dir      string            // of its stores, emptied for each load
	names    string            // host:port of the name server
	broker   string            // host:port of the broker
	start    func(ctx context.Context, s *side) error

	processes []*exec.Cmd // running, the broker last
	startTime time.Duration
}

// profileName is the file in the work folder that our broker writes its CPU profile to.
const profileName = "cpu.pb.gz"

// Ports of the sides. Their fast and replication ports lie beside the broker's.
const (
	skylarkNames, skylarkBroker = "127.0.0.1:19676", "127.0.0.1:19711"
	apacheNames, apacheBroker   = "127.0.0.1:19876", "127.0.0.1:19911"
)

func makeSides(ctx context.Context, p plan, work string) ([]*side, error) {
	var sides []*side
	if p.only != "apache" {
		binary, err := filepath.Abs(p.skylark)
		if err != nil {
			return nil, err
		}
		sides = append(sides, skylarkSide(p, binary, work))
	}
	if p.only != "skylark" {
		if ok, missing := apache.Available(); !ok {
			return nil, fmt.Errorf("no %s here, which Apache RocketMQ needs", missing)
		}
		installation, err := apache.Install(ctx, p.project, os.Stderr)
		if err != nil {
			return nil, err
		}
		sides = append(sides, apacheSide(p, installation, work))
	}
	return sides, nil
}

func skylarkSide(p plan, binary, work string) *side {
	s := &side{
		name: "skylark", names: skylarkNames, broker: skylarkBroker, dir: filepath.Join(work, "skylark"),
		settings: map[string]string{"flushDiskType": "ASYNC_FLUSH", "everything else": "default"},
	}
	s.start = func(ctx context.Context, s *side) error {
		args := []string{
			"server", "--data", s.dir, "--name-server-listen", s.names, "--broker-listen", s.broker,
		}
		if p.profile != "" {
			args = append(args, "--cpu-profile", filepath.Join(work, profileName))
		}
		return s.run(exec.CommandContext(ctx, binary, args...), "server.out")
	}
	return s
}

func apacheSide(p plan, installation *apache.Installation, work string) *side {
	s := &side{
		name: "apache", names: apacheNames, broker: apacheBroker, dir: filepath.Join(work, "apache"),
		settings: map[string]string{
			"version": apache.Version, "flushDiskType": "ASYNC_FLUSH", "heap": p.heap,
			"collector": "G1", "everything else": "default",
		},
	}
	s.start = func(ctx context.Context, s *side) error {
		names := installation.Command(ctx, s.dir, "org.apache.rocketmq.namesrv.NamesrvStartup",
			[]string{"-Xms256m", "-Xmx256m"}, []string{"-c", filepath.Join(s.dir, "namesrv.conf")})
		broker := installation.Command(ctx, s.dir, "org.apache.rocketmq.broker.BrokerStartup",
			[]string{"-Xms" + p.heap, "-Xmx" + p.heap, "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g"},
			[]string{"-c", filepath.Join(s.dir, "broker.conf")})
		if err := s.writeApacheConf(); err != nil {
			return err
		}
		if err := s.run(names, "namesrv.out"); err != nil {
			return err
		}
		if err := waitFor(ctx, 60*time.Second, func() error { return dialable(s.names) }); err != nil {
			return err
		}
		return s.run(broker, "broker.out")
	}
	return s
}

func (s *side) writeApacheConf() error {
	names := fmt.Sprintf("listenPort=%s\nbindAddress=127.0.0.1\n", portOf(s.names))
	broker := fmt.Sprintf("brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\n"+
		"brokerIP1=127.0.0.1\nlistenPort=%s\nbindAddress=127.0.0.1\nnamesrvAddr=%s\n"+
		"storePathRootDir=%s\nstorePathCommitLog=%s\nautoCreateTopicEnable=true\nflushDiskType=ASYNC_FLUSH\n",
		portOf(s.broker), s.names, filepath.Join(s.dir, "store"), filepath.Join(s.dir, "store", "commitlog"))
	if err := os.WriteFile(filepath.Join(s.dir, "namesrv.conf"), []byte(names), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "broker.conf"), []byte(broker), 0o644)
}

// up starts the side on an empty store and waits until a client can send. It notes how long that took.
func (s *side) up(ctx context.Context) error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	start := time.Now()
	if err := s.start(ctx, s); err != nil {
		return err
	}
	if err := waitFor(ctx, 2*time.Minute, func() error { return sendOne(s.names, s.broker) }); err != nil {
		s.down()
		return fmt.Errorf("%s did not take a message: %w", s.name, err)
	}
	s.startTime = time.Since(start)
	return nil
}

func (s *side) run(cmd *exec.Cmd, output string) error {
	log, err := os.Create(filepath.Join(s.dir, output))
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, cmd)
	return nil
}

// brokerPID is the process whose CPU counts. Skylark's holds the name server too.
func (s *side) brokerPID() int { return s.processes[len(s.processes)-1].Process.Pid }

// down stops the side and removes its store.
func (s *side) down() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		cmd := s.processes[i]
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
	}
	s.processes = nil
	if err := os.RemoveAll(s.dir); err != nil {
		say("%v", err)
	}
}

// waitFor repeats check until it holds.
func waitFor(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-tick.C:
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
