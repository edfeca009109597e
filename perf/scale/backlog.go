// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/skylarkmq/skylark/perf/measure"
)

// backlogMessages is how long the backlog is that each group reads. It is the same at every level:
// what a group and its connection cost before they are at full speed is then spread over as many
// messages, and levels differ by the number of groups only.
const backlogMessages = 10_000

// deliveries are at least so many for one figure: CPU is counted in steps of 10 ms.
const deliveries = 500_000

// delivery sums up runs that read the backlog.
type delivery struct {
	messages, answers int64
	user, system      float64 // seconds of the broker's CPU
}

func (d *delivery) add(r *measure.Result) {
	d.messages += r.Messages
	d.answers += r.Requests
	d.user += r.Broker.UserSeconds
	d.system += r.Broker.SystemSeconds
}

// micros is the broker's CPU for a message.
func (d *delivery) micros() float64 { return (d.user + d.system) * 1e6 / float64(d.messages) }

// catchUp notes what a message of a backlog costs that so many groups read at once.
func (l *lab) catchUp(ctx context.Context, groups int) error {
	if _, err := l.broker.Perf(ctx, "produce", "--topic", "backlog", "--queues", "8", "--size", "1024",
		"--count", strconv.Itoa(backlogMessages)); err != nil {
		return err
	}
	var least delivery
	for repeat := range l.plan.repeats {
		d, err := l.deliver(ctx, groups)
		if err != nil {
			return err
		}
		if repeat == 0 || d.micros() < least.micros() {
			least = d
		}
	}
	l.readings[catchUpCPU] = least.micros()
	l.readings[catchUser] = least.user * 1e6 / float64(least.messages)
	l.readings[catchAll] = float64(least.messages) / float64(least.answers)
	l.readings[answerCPU] = least.micros() * l.readings[catchAll]
	if l.plan.profile {
		return l.profileDelivery(ctx, groups)
	}
	return nil
}

// deliver has so many groups read the backlog, again and again until enough was delivered.
func (l *lab) deliver(ctx context.Context, groups int) (d delivery, err error) {
	for range max(deliveries/(groups*backlogMessages), 1) {
		r, err := once(ctx, l.broker, catchUpCPU, []string{
			"consume", "--topic", "backlog", "--from", "first", "--until-end", "--connections", "1",
			"--groups", strconv.Itoa(groups),
		})
		if err != nil {
			return d, err
		}
		d.add(r)
	}
	return d, nil
}

// profileDelivery writes a CPU profile of a broker that delivers the backlog and does nothing else.
// The broker has ended after it.
func (l *lab) profileDelivery(ctx context.Context, groups int) error {
	file := filepath.Join(l.broker.Dir, "cpu.pb.gz")
	l.broker.Args = []string{"--cpu-profile", file}
	if _, err := l.restart(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	d, err := l.deliver(ctx, groups)
	if err != nil {
		return err
	}
	l.broker.End(syscall.SIGTERM)
	pprof := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount", "40", file)
	top, err := pprof.Output()
	if err != nil {
		return fmt.Errorf("go tool pprof: %w", err)
	}
	head := fmt.Sprintf("CPU profile of a broker that delivers a backlog of %d messages of 1 KB to "+
		"%d groups and\ndoes nothing else: %d messages in %d answers, user %.3f and system %.3f us a "+
		"message.\n\n",
		backlogMessages, groups, d.messages, d.answers, d.user*1e6/float64(d.messages),
		d.system*1e6/float64(d.messages))
	name := filepath.Join(l.plan.folder, fmt.Sprintf("profile-backlog-%d-groups.txt", groups))
	return os.WriteFile(name, append([]byte(head), top...), 0o644)
}
