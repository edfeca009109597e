// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
)

// holder is a kind of broker that a store directory is handed to.
type holder struct {
	name string
	run  func(t *testing.T, at target, conf map[string]string) *held
}

// held is a running broker that has the directory.
type held struct {
	stop func() error // and waits for the end
	kill func() error // SIGKILL; nil where that would end other tests too
	text func() string
}

// The brokers that take turns. The one inside the Java program of all tests starts sooner; the others
// are processes of their own.
var (
	skylarkHolder = holder{"skylark", runSkylark}
	insideHolder  = holder{"apache " + apache.Version + " inside", runInside}
)

func apacheHolder(release string) holder {
	return holder{"apache " + release, func(t *testing.T, at target, conf map[string]string) *held {
		return runApache(t, release, at, conf)
	}}
}

// brokerLines are the lines of broker.conf that each kind of broker gets.
func brokerLines(at target, conf map[string]string) map[string]string {
	lines := map[string]string{
		"brokerName": at.BrokerName, "brokerClusterName": "DefaultCluster", "brokerIP1": "127.0.0.1",
		"brokerIP2": "127.0.0.1", "listenPort": strconv.Itoa(port(at.Broker)), "namesrvAddr": at.NameServer,
		"storePathRootDir": at.Dir, "storePathCommitLog": filepath.Join(at.Dir, "commitlog"),
	}
	maps.Copy(lines, conf)
	return lines
}

func runSkylark(t *testing.T, at target, conf map[string]string) *held {
	t.Helper()
	file := filepath.Join(t.TempDir(), "broker.conf")
	writeConf(t, file, brokerLines(at, conf))
	return processHeld(t, start(t, "broker", "-c", file), at)
}

// runApache runs a broker of a release in a process of its own.
func runApache(t *testing.T, release string, at target, conf map[string]string) *held {
	t.Helper()
	project := "older" // has the servers only, of any release
	installation, err := apache.InstallRelease(t.Context(), project, release, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	home := scratch(t)
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	// 4.x does not start without its logging configuration; an empty one keeps it quiet.
	logging := filepath.Join(home, "conf", "logback_broker.xml")
	if err := os.WriteFile(logging, []byte("<configuration/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "broker.conf")
	writeConf(t, file, brokerLines(at, conf))
	p := startCommand(t, installation.Command(context.Background(), home,
		"org.apache.rocketmq.broker.BrokerStartup", []string{
			"-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:TieredStopAtLevel=1", "-Djava.io.tmpdir=" + home,
		}, []string{"-c", file}))
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	h := processHeld(t, p, at)
	h.stop = func() error {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(2 * time.Minute): // it takes its time on a busy machine
			return errors.New("the broker did not end within 2 minutes of SIGTERM")
		}
		var exit *exec.ExitError
		if errors.As(p.err, &exit) && exit.ExitCode() == 128+int(syscall.SIGTERM) {
			return nil // a JVM says so after its shutdown hooks
		}
		return p.err
	}
	return h
}

// processHeld waits until the broker of a process answers.
func processHeld(t *testing.T, p *process, at target) *held {
	t.Helper()
	if err := answers(at, p.done); err != nil {
		t.Fatalf("%v\n%s", err, p.output())
	}
	return &held{
		stop: p.stop, text: p.output,
		kill: func() error {
			err := p.cmd.Process.Kill()
			<-p.done
			return err
		},
	}
}

// answers waits until a broker says how long a queue is.
func answers(at target, ended <-chan struct{}) error {
	return repeat(60*time.Second, func() error {
		select {
		case <-ended:
			return nil // says no more than what it printed; the next call shows that it is gone
		default:
		}
		c, err := dialRaw(at.Broker)
		if err != nil {
			return err
		}
		defer c.close()
		const getMaxOffset = 30
		a, err := c.call(getMaxOffset, map[string]string{"topic": "SELF_TEST_TOPIC", "queueId": "0"}, nil, 5*time.Second)
		if err == nil && a.Code != 0 {
			err = fmt.Errorf("code %d, %s", a.Code, a.Remark)
		}
		return err
	})
}

// runInside runs Apache's broker in the Java program of all tests.
func runInside(t *testing.T, at target, conf map[string]string) *held {
	t.Helper()
	jvm := java(t)
	handle := open(t, jvm, "broker", args{
		"port": port(at.Broker), "dir": at.Dir, "namesrv": at.NameServer, "conf": conf,
	})
	if err := answers(at, nil); err != nil {
		t.Fatal(err)
	}
	return &held{
		stop: func() error { return jvm.do("broker.stop", args{"handle": handle}, nil) },
		text: func() string { return "" },
	}
}

// end ends the holder, by a kill if it is to be one.
func (h *held) end(kill bool) error {
	if !kill {
		return h.stop()
	}
	if h.kill == nil {
		return errors.New("this holder cannot be killed")
	}
	return h.kill()
}
