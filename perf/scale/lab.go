// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/server"
)

// readings are the figures of one level by name.
type readings map[string]float64

// lab is one broker with what this program does to it.
type lab struct {
	plan     plan
	broker   *server.Server
	control  *server.Server // has nothing to serve but the load that is compared; nil before the first
	settings map[string]string
	pool     *invoke.Pool
	readings readings
}

// commonSettings are in broker.conf of every dimension, in RocketMQ's keys. Idle connections stay
// for as long as a level takes.
func commonSettings() map[string]string {
	return map[string]string{
		"brokerName": "broker-a", "defaultTopicQueueNums": "8",
		"serverChannelMaxIdleTimeSeconds": "3600",
	}
}

// referenceTopic carries the load whose cost for each message is watched. It has eight queues
// whatever stands beside it.
const referenceTopic = "reference"

func newLab(ctx context.Context, p plan, settings map[string]string) (*lab, error) {
	dir, err := os.MkdirTemp(p.work, "level-*")
	if err != nil {
		return nil, err
	}
	all := commonSettings()
	maps.Copy(all, settings)
	b, err := server.New(p.skylark, dir, all)
	if err != nil {
		return nil, err
	}
	if _, err := b.Start(ctx); err != nil {
		return nil, err
	}
	l := &lab{plan: p, broker: b, settings: all, readings: readings{}}
	l.connect()
	return l, nil
}

func (l *lab) connect() {
	l.pool = invoke.NewPool(invoke.Config{IdleTimeout: -1, Language: remoting.LanguageGo})
}

func (l *lab) close() {
	_ = l.pool.Close()
	for _, s := range []*server.Server{l.broker, l.control} {
		if s != nil {
			s.End(syscall.SIGKILL)
			_ = os.RemoveAll(s.Dir)
		}
	}
}

// restart ends the broker by a signal and starts it on what it has stored. Connections are gone.
func (l *lab) restart(ctx context.Context, signal syscall.Signal) (seconds float64, err error) {
	_ = l.pool.Close()
	l.broker.End(signal)
	took, err := l.broker.Start(ctx)
	l.connect()
	return took.Seconds(), err
}

// call asks the broker and fails on any answer but success.
func (l *lab) call(
	ctx context.Context, c *invoke.Conn, code remoting.RequestCode, h remoting.Header, body []byte,
) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := c.Call(ctx, &invoke.Request{Code: code, Header: h, Body: body})
	if err != nil {
		return err
	}
	return r.Err()
}

// quietly is how long the broker may take until what a level has set up is on the disk.
const quietly = 2 * time.Minute

// rest waits until the broker has flushed and forgotten what the set-up left to do, and notes what
// it holds then: memory, descriptors, mappings, and the CPU it takes, in percent of a core.
func (l *lab) rest(ctx context.Context) error {
	const (
		look   = 3 * time.Second
		atRest = 1 // percent of a core
	)
	for begun := time.Now(); ; {
		before, err := l.broker.Usage()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
		after, err := l.broker.Usage()
		if err != nil {
			return err
		}
		l.readings[idleCPU] = (after.CPUSeconds() - before.CPUSeconds()) / look.Seconds() * 100
		l.readings[memoryKB] = float64(after.RSSAnonBytes) / 1e3
		if l.readings[idleCPU] <= atRest || time.Since(begun) > quietly {
			break
		}
	}
	files, err := l.broker.OpenFiles()
	if err != nil {
		return err
	}
	mapped, err := l.broker.Mappings()
	l.readings[openFiles] = float64(files)
	l.readings[mappings] = float64(mapped)
	return err
}

// sendLoad is the reference load: 1 KB single sends by four connections with 64 in flight.
func (l *lab) sendLoad(more ...string) []string {
	return append([]string{
		"produce", "--topic", referenceTopic, "--queues", "8", "--connections", "4",
		"--in-flight", "64", "--size", "1024", "--count", strconv.Itoa(l.plan.messages),
	}, more...)
}

// send notes the broker's CPU for a message of the reference load, and how that compares to a broker
// which has nothing else: both take the load in turn, since a machine that others use has not one
// speed. The cheapest run of each counts.
func (l *lab) send(ctx context.Context) error {
	if l.control == nil {
		dir, err := os.MkdirTemp(l.plan.work, "control-*")
		if err != nil {
			return err
		}
		if l.control, err = server.New(l.plan.skylark, dir, l.settings); err != nil {
			return err
		}
		if _, err = l.control.Start(ctx); err != nil {
			return err
		}
	}
	var least [2]float64
	for repeat := range l.plan.repeats {
		for i, s := range []*server.Server{l.broker, l.control} {
			us, err := microsOf(ctx, s, sendCPU, l.sendLoad())
			if err != nil {
				return err
			}
			if repeat == 0 || us < least[i] {
				least[i] = us
			}
		}
	}
	l.readings[sendCPU] = least[0]
	l.readings[besideEmpty] = least[0] / least[1]
	return nil
}

// cheapest repeats a load and notes the least CPU for a message.
func (l *lab) cheapest(ctx context.Context, name string, args []string) error {
	least := math.Inf(1)
	for range l.plan.repeats {
		us, err := microsOf(ctx, l.broker, name, args)
		if err != nil {
			return err
		}
		least = min(least, us)
	}
	l.readings[name] = least
	return nil
}

// microsOf runs a load once and returns the server's CPU for a message.
func microsOf(ctx context.Context, s *server.Server, name string, args []string) (float64, error) {
	r, err := once(ctx, s, name, args)
	if err != nil {
		return 0, err
	}
	return r.Broker.CPUMicrosPerMessage, nil
}

// once runs a load once, of which no message may fail.
func once(ctx context.Context, s *server.Server, name string, args []string) (*measure.Result, error) {
	runs, err := s.Perf(ctx, args...)
	if err != nil {
		return nil, err
	}
	r := runs[len(runs)-1]
	if r.Messages == 0 || r.SendFailed+r.ResponseFailed > 0 {
		return nil, fmt.Errorf("%s: %d messages answered, %d failed: %v", name, r.Messages,
			r.SendFailed+r.ResponseFailed, r.Errors)
	}
	return r, nil
}
