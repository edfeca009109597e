// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

func measureConnections(ctx context.Context, l *lab, level int) error {
	conns, err := l.producers(ctx, level)
	if err != nil {
		return err
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	if level > windowSize { // fewer would have several heartbeats in one read
		if err := l.costOf(ctx, beatCPU, 20_000, func(w *window, i int) error {
			i %= len(conns)
			return w.do(ctx, conns[i], &invoke.Request{Code: remoting.HeartBeat, Body: producerBeat(i)})
		}); err != nil {
			return err
		}
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	// The idle ones go: both together would be more descriptors than many systems allow.
	_ = l.pool.Close()
	l.connect()
	return l.cheapest(ctx, spreadCPU, []string{
		"produce", "--topic", referenceTopic, "--queues", "8", "--connections", strconv.Itoa(level),
		"--in-flight", "64", "--size", "1024", "--rate", "3000", "--timeout-ms", "20000",
		"--warmup", "2s", "--duration", "3s",
	})
}

// queuesOfTopic is how many queues a topic of the dimension queues has at most.
const queuesOfTopic = 1000

func measureQueues(ctx context.Context, l *lab, level int) error {
	topics := (level + queuesOfTopic - 1) / queuesOfTopic
	each := min(level, queuesOfTopic)
	if err := l.makeTopics(ctx, "many", max(topics, 2), each); err != nil {
		return err
	}
	if err := l.fillQueues(ctx, "many", topics, each); err != nil {
		return err
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	if err := l.cheapest(ctx, allCPU, []string{
		"produce", "--topic", "many", "--topics", strconv.Itoa(max(topics, 2)), "--connections", "4",
		"--in-flight", "64", "--size", "1024", "--count", strconv.Itoa(max(l.plan.messages, level)),
	}); err != nil {
		return err
	}
	if err := l.starts(ctx); err != nil {
		return err
	}
	u, err := l.broker.Usage()
	l.readings[againKB] = float64(u.RSSAnonBytes) / 1e3
	return err
}

func measureTopics(ctx context.Context, l *lab, level int) error {
	if err := l.makeTopics(ctx, "many", level, 8); err != nil {
		return err
	}
	const more = 5
	begin := time.Now()
	for i := range more {
		if err := l.makeTopic(ctx, fmt.Sprintf("one-more-%d", i), 8); err != nil {
			return err
		}
	}
	l.readings[createMS] = time.Since(begin).Seconds() * 1e3 / more
	if err := l.rest(ctx); err != nil {
		return err
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	return l.starts(ctx)
}

func measureGroups(ctx context.Context, l *lab, level int) error {
	if err := l.makeTopic(ctx, referenceTopic, 8); err != nil {
		return err
	}
	if err := l.consumers(ctx, level); err != nil {
		return err
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	c, err := l.pool.Conn(ctx, l.broker.Addr)
	if err != nil {
		return err
	}
	if err := l.costOf(ctx, membersCPU, 20_000, func(w *window, i int) error {
		h := &protocol.ConsumerListRequest{Group: groupName(i % level)}
		return w.do(ctx, c, &invoke.Request{Code: remoting.GetConsumerListByGroup, Header: h})
	}); err != nil {
		return err
	}
	if err := l.live(ctx, level); err != nil {
		return err
	}
	return l.catchUp(ctx, level)
}

// live notes the CPU for each delivery while so many groups wait for what is sent: 20 000
// deliveries a second at every level.
func (l *lab) live(ctx context.Context, groups int) error {
	least := -1.0
	for range min(l.plan.repeats, 3) {
		runs, err := l.broker.Perf(ctx, "mixed", "--topic", "live", "--queues", "1", "--size", "1024",
			"--rate", strconv.Itoa(20_000/groups), "--connections", "1", "--hot-groups",
			strconv.Itoa(groups), "--lagging-groups", "0", "--consumer-connections", "1",
			"--warmup", "1s", "--duration", "3s")
		if err != nil {
			return err
		}
		if len(runs) != 2 || runs[1].Messages == 0 {
			return fmt.Errorf("%d groups received nothing of what was sent", groups)
		}
		us := runs[0].Broker.CPUSeconds * 1e6 / float64(runs[1].Messages)
		if least < 0 || us < least {
			least = us
		}
	}
	l.readings[liveCPU] = least
	return nil
}

// segmentBytes is the length of a log file of the dimension segments.
const segmentBytes = 16 << 20

func measureSegments(ctx context.Context, l *lab, level int) error {
	const record = 1024 + 160 // about what a message of this size takes in the log
	messages := (level*segmentBytes - segmentBytes/2) / record
	if _, err := l.broker.Perf(ctx, "produce", "--topic", "backlog", "--queues", "8", "--size", "1024",
		"--connections", "4", "--count", strconv.Itoa(messages)); err != nil {
		return err
	}
	if err := l.starts(ctx); err != nil {
		return err
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	// As many messages at each level: the short log is read more often.
	if err := l.cheapest(ctx, readCPU, []string{
		"consume", "--topic", "backlog", "--from", "first", "--until-end", "--connections", "1",
		"--groups", strconv.Itoa(max(60/level, 1)),
	}); err != nil {
		return err
	}
	return l.send(ctx)
}

func measurePulls(ctx context.Context, l *lab, level int) error {
	h, err := l.hold(ctx, level)
	if err != nil {
		return err
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	if err := h.sendBeside(ctx); err != nil {
		return err
	}
	if early := h.answered.Load(); early > 0 {
		return fmt.Errorf("%d of %d pulls did not wait", early, level)
	}
	if level < 1000 {
		return nil // its CPU is below what is counted
	}
	return h.wake(ctx)
}

func measureProperties(ctx context.Context, l *lab, level int) error {
	messages := strconv.Itoa(max(l.plan.messages/(1+level/200), 5000))
	size := []string{"--size", "128", "--count", messages}
	if err := l.cheapest(ctx, sendCPU,
		l.sendLoad(append(size, "--property-size", strconv.Itoa(level))...)); err != nil {
		return err
	}
	if err := l.cheapest(ctx, readCPU, []string{
		"consume", "--topic", referenceTopic, "--from", "first", "--until-end", "--connections", "1",
		"--groups", "4",
	}); err != nil {
		return err
	}
	const one = 16
	if level < one {
		return nil
	}
	for i := range level / one {
		size = append(size, "--property", fmt.Sprintf("p%04d=%s", i, strings.Repeat("x", one-7)))
	}
	return l.cheapest(ctx, manyCPU, l.sendLoad(size...))
}

// starts notes how long the broker takes to serve again after a kill, and after a graceful end,
// and what CPU that is.
func (l *lab) starts(ctx context.Context) error {
	for _, s := range []struct {
		signal       syscall.Signal
		seconds, cpu string
	}{{syscall.SIGKILL, startKilled, startKilledCPU}, {syscall.SIGTERM, startClean, startCleanCPU}} {
		var err error
		if l.readings[s.seconds], err = l.restart(ctx, s.signal); err != nil {
			return err
		}
		u, err := l.broker.Usage()
		if err != nil {
			return err
		}
		l.readings[s.cpu] = u.CPUSeconds()
	}
	return nil
}
