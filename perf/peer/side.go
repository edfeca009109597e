// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
)

// side is one of the two brokers with its name server.
type side struct {
	name     string
	settings map[string]string // what is its own; the rest is common
	dir      string            // of its stores, emptied for each load
	names    string            // host:port of the name server
	broker   string            // host:port of the broker
	// The commands of both servers, which read namesrv.conf and broker.conf in dir.
	nameServer, brokerCommand func(ctx context.Context) *exec.Cmd

	processes []*process // running, the broker last
	startTime time.Duration
}

// profileName is the file in the work folder that our broker writes its CPU profile to.
const profileName = "cpu.pb.gz"

// Ports of the sides. Their fast and replication ports lie beside the broker's.
const (
	skylarkNames, skylarkBroker = "127.0.0.1:19676", "127.0.0.1:19711"
	apacheNames, apacheBroker   = "127.0.0.1:19876", "127.0.0.1:19911"
)

// commonSettings are in broker.conf of both sides, in RocketMQ's keys. A load may change some.
func commonSettings() map[string]string {
	return map[string]string{
		"flushDiskType": "ASYNC_FLUSH", "mappedFileSizeCommitLog": "1073741824",
		"mappedFileSizeConsumeQueue": "6000000", "defaultTopicQueueNums": "8",
		"autoCreateTopicEnable": "true", "messageIndexEnable": "true",
	}
}

func makeSides(ctx context.Context, p plan, work string) ([]*side, *apache.Installation, error) {
	var sides []*side
	if p.only != "apache" {
		binary, err := filepath.Abs(p.skylark)
		if err != nil {
			return nil, nil, err
		}
		sides = append(sides, skylarkSide(p, binary, work))
	}
	if p.only == "skylark" {
		return sides, nil, nil
	}
	if ok, missing := apache.Available(); !ok {
		return nil, nil, fmt.Errorf("no %s here, which Apache RocketMQ needs", missing)
	}
	installation, err := apache.Install(ctx, p.project, os.Stderr)
	if err != nil {
		return nil, nil, err
	}
	return append(sides, apacheSide(p, installation, work)), installation, nil
}

func skylarkSide(p plan, binary, work string) *side {
	dir := filepath.Join(work, "skylark")
	return &side{
		name: "skylark", names: skylarkNames, broker: skylarkBroker, dir: dir,
		settings: map[string]string{"memory": "no heap setting"},
		nameServer: func(ctx context.Context) *exec.Cmd {
			return exec.CommandContext(ctx, binary, "nameserver", "-c", filepath.Join(dir, "namesrv.conf"),
				"--data", filepath.Join(dir, "namesrv"))
		},
		brokerCommand: func(ctx context.Context) *exec.Cmd {
			args := []string{"broker", "-c", filepath.Join(dir, "broker.conf")}
			if p.profile != "" {
				args = append(args, "--cpu-profile", filepath.Join(work, profileName))
			}
			return exec.CommandContext(ctx, binary, args...)
		},
	}
}

func apacheSide(p plan, installation *apache.Installation, work string) *side {
	dir := filepath.Join(work, "apache")
	return &side{
		name: "apache", names: apacheNames, broker: apacheBroker, dir: dir,
		settings: map[string]string{
			"version": apache.Version, "memory": "-Xms and -Xmx " + p.heap + ", direct 2g", "collector": "G1",
		},
		nameServer: func(ctx context.Context) *exec.Cmd {
			return installation.Command(ctx, dir, "org.apache.rocketmq.namesrv.NamesrvStartup",
				[]string{"-Xms256m", "-Xmx256m"}, []string{"-c", filepath.Join(dir, "namesrv.conf")})
		},
		brokerCommand: func(ctx context.Context) *exec.Cmd {
			return installation.Command(ctx, dir, "org.apache.rocketmq.broker.BrokerStartup",
				[]string{"-Xms" + p.heap, "-Xmx" + p.heap, "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g"},
				[]string{"-c", filepath.Join(dir, "broker.conf")})
		},
	}
}

// writeConf writes both configuration files, with settings of the load over the common ones.
func (s *side) writeConf(settings map[string]string) error {
	names := fmt.Sprintf("listenPort=%s\nbindAddress=127.0.0.1\n", portOf(s.names))
	all := commonSettings()
	maps.Copy(all, settings)
	broker := fmt.Sprintf("brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\n"+
		"brokerIP1=127.0.0.1\nlistenPort=%s\nbindAddress=127.0.0.1\nnamesrvAddr=%s\n"+
		"storePathRootDir=%s\nstorePathCommitLog=%s\n",
		portOf(s.broker), s.names, filepath.Join(s.dir, "store"), filepath.Join(s.dir, "store", "commitlog"))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		broker += key + "=" + all[key] + "\n"
	}
	if err := os.WriteFile(filepath.Join(s.dir, "namesrv.conf"), []byte(names), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "broker.conf"), []byte(broker), 0o644)
}

// up starts the side on an empty store and waits until a client can send. It notes how long that
// took.
func (s *side) up(ctx context.Context, settings map[string]string) error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := s.writeConf(settings); err != nil {
		return err
	}
	return s.start(ctx)
}

// start starts the side on the store it has.
func (s *side) start(ctx context.Context) error {
	begin := time.Now()
	if err := s.run("name server", s.nameServer(ctx), "namesrv.out"); err != nil {
		return err
	}
	if err := s.waitFor(ctx, 60*time.Second, func() error { return dialable(s.names) }); err != nil {
		return err
	}
	if err := s.run("broker", s.brokerCommand(ctx), "broker.out"); err != nil {
		return err
	}
	if err := s.waitFor(ctx, 2*time.Minute, s.ready); err != nil {
		return fmt.Errorf("%s did not take a message: %w", s.name, err)
	}
	s.startTime = time.Since(begin)
	return nil
}

// ready fails unless the side takes a message, by way of its name server.
func (s *side) ready() error { return sendOne(s.names, s.broker) }

func (s *side) run(what string, cmd *exec.Cmd, log string) error {
	p, err := startProcess(s.name+" "+what, cmd, filepath.Join(s.dir, log))
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return nil
}

// alive fails when a server of the side has ended unasked.
func (s *side) alive() error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.died())
	}
	return errors.Join(errs...)
}

// brokerPID is the process whose CPU counts.
func (s *side) brokerPID() int { return s.processes[len(s.processes)-1].pid() }

// pause stops the side's servers where they are; resume lets them go on.
func (s *side) pause() { s.signal(syscall.SIGSTOP) }

func (s *side) resume() { s.signal(syscall.SIGCONT) }

func (s *side) signal(sig syscall.Signal) {
	for _, p := range s.processes {
		_ = p.cmd.Process.Signal(sig) // one that has ended is told of by alive
	}
}

// stop ends the side's servers and keeps its store.
func (s *side) stop() {
	for _, p := range slices.Backward(s.processes) {
		p.end()
	}
	s.processes = nil
}

// down ends the side, keeps the ends of its logs in the folder to, and removes its store.
func (s *side) down(to, label string) {
	if len(s.processes) == 0 {
		return
	}
	if err := s.alive(); err != nil {
		say("%v", err)
	}
	s.stop()
	s.keepLogs(to, label)
	if err := os.RemoveAll(s.dir); err != nil {
		say("%v", err)
	}
}

// cold restarts the side with nothing of its store in the page cache.
func (s *side) cold(ctx context.Context) error {
	s.stop()
	err := filepath.WalkDir(filepath.Join(s.dir, "store"), func(name string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		// Written back first: pages that are dirty stay.
		if _, err := output(ctx, "sync", name); err != nil {
			return err
		}
		_, err = output(ctx, "dd", "if="+name, "iflag=nocache", "count=0", "status=none")
		return err
	})
	if err != nil {
		return fmt.Errorf("drop the store of %s from the page cache: %w", s.name, err)
	}
	return s.start(ctx)
}

// waitFor repeats check until it holds, or a server has ended.
func (s *side) waitFor(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if died := s.alive(); died != nil {
			return died
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
