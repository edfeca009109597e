// SPDX-License-Identifier: Apache-2.0

// Command ours puts load on package client for perf/clientpeer, one load for each process, and
// prints what it took as one line of JSON. The program beside it, theirs, does the same with
// Apache's client; the two differ in nothing but the client.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// load is what the command line asks for.
type load struct {
	name       string
	nameServer string
	topic      string
	group      string
	warmup     time.Duration
	duration   time.Duration
	most       int64 // messages of a send load, warm-up included
	count      int64 // messages of a consume load
	size       int   // bytes of a body
	goroutines int
	batch      int // messages in a batch of the caller
}

// figures is what a load took; times and CPU without the warm-up.
type figures struct {
	Messages    int64   `json:"messages"`
	Errors      int64   `json:"errors"`
	WallSeconds float64 `json:"wall_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	MaxRSSBytes int64   `json:"max_rss_bytes"`
	FirstError  string  `json:"first_error,omitempty"`
}

func main() {
	var l load
	flag.StringVar(&l.name, "load", "sync", "sync, async, linger, batch or consume")
	flag.StringVar(&l.nameServer, "namesrv", "127.0.0.1:9876", "name server")
	flag.StringVar(&l.topic, "topic", "ClientPeer", "topic")
	flag.StringVar(&l.group, "group", "clientpeer", "group")
	flag.DurationVar(&l.warmup, "warmup", time.Second, "not counted at the beginning")
	flag.DurationVar(&l.duration, "duration", 5*time.Second, "of a send load")
	flag.Int64Var(&l.most, "most", 1_500_000, "messages of a send load at most")
	flag.Int64Var(&l.count, "count", 300_000, "messages of a consume load")
	flag.IntVar(&l.size, "size", 1024, "bytes of a body")
	flag.IntVar(&l.goroutines, "goroutines", 64, "that send at once")
	flag.IntVar(&l.batch, "batch", 32, "messages of a batch")
	flag.Parse()
	f, err := l.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
	text, err := json.Marshal(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, string(text))
}

func (l load) run() (figures, error) {
	ctx := context.Background()
	c, err := client.New([]string{l.nameServer})
	if err != nil {
		return figures{}, err
	}
	defer c.Close(ctx)
	if l.name == "consume" {
		return l.consume(ctx, c)
	}
	var opts []client.ProducerOption
	if l.name == "linger" {
		opts = append(opts, client.WithLinger(5*time.Millisecond, 64<<10))
	}
	p, err := c.NewProducer(l.group, opts...)
	if err != nil {
		return figures{}, err
	}
	r := newMeter()
	body := make([]byte, l.size)
	message := func() *client.Message { return &client.Message{Topic: l.topic, Body: body} }
	done := func(_ client.SendResult, err error) { r.note(1, err) }
	var send func()
	switch l.name {
	case "sync":
		send = func() {
			_, err := p.Send(ctx, message())
			r.note(1, err)
		}
	case "async", "linger":
		l.goroutines = 1
		send = func() {
			if err := p.SendAsync(ctx, message(), done); err != nil {
				r.note(0, err)
			}
		}
	case "batch":
		send = func() {
			ms := make([]*client.Message, l.batch)
			for i := range ms {
				ms[i] = message()
			}
			_, errs := p.SendBatch(ctx, ms...)
			for _, err := range errs {
				r.note(1, err)
			}
		}
	default:
		return figures{}, fmt.Errorf("no load %q", l.name)
	}
	return r.drive(l, send, func() error { return p.Flush(ctx) })
}

func (l load) consume(ctx context.Context, c *client.Client) (figures, error) {
	k, err := c.NewConsumer(l.group, client.WithSubscription(l.topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		return figures{}, err
	}
	r := newMeter()
	all := make(chan struct{})
	r.begin()
	var once sync.Once
	go func() {
		<-all
		_ = k.Close(ctx)
	}()
	err = k.Run(ctx, func(context.Context, *client.Received) error {
		r.note(1, nil)
		if r.total.Load() >= l.count {
			once.Do(func() { r.finish(); close(all) })
		}
		return nil
	})
	return r.result(), err
}

// meter counts messages and the process's CPU between two moments.
type meter struct {
	total, errors   atomic.Int64
	mu              sync.Mutex
	first           error
	began           time.Time
	beganAt         int64
	beganCPU        float64
	wall, cpu, sent float64
}

func newMeter() *meter { return &meter{} }

func (r *meter) note(n int64, err error) {
	if err != nil {
		r.errors.Add(1)
		r.mu.Lock()
		if r.first == nil {
			r.first = err
		}
		r.mu.Unlock()
		return
	}
	r.total.Add(n)
}

func (r *meter) begin() {
	r.began, r.beganAt, r.beganCPU = time.Now(), r.total.Load(), cpuSeconds()
}

func (r *meter) finish() {
	r.wall = time.Since(r.began).Seconds()
	r.cpu = cpuSeconds() - r.beganCPU
	r.sent = float64(r.total.Load() - r.beganAt)
}

// drive runs a send load: warm-up, then the measured part.
func (r *meter) drive(l load, send func(), flush func() error) (figures, error) {
	var stop atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	full := make(chan struct{})
	var once sync.Once
	per := int64(1)
	if l.name == "batch" {
		per = int64(l.batch)
	}
	for range l.goroutines {
		wg.Go(func() {
			for !stop.Load() {
				if calls.Add(per) > l.most {
					once.Do(func() { close(full) })
					return
				}
				send()
			}
		})
	}
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-full:
		}
	}
	wait(l.warmup)
	r.begin()
	wait(l.duration)
	stop.Store(true)
	wg.Wait()
	err := flush()
	r.finish()
	return r.result(), err
}

func (r *meter) result() figures {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	f := figures{
		Messages: int64(r.sent), Errors: r.errors.Load(), WallSeconds: r.wall, CPUSeconds: r.cpu,
		MaxRSSBytes: u.Maxrss << 10,
	}
	if r.first != nil {
		f.FirstError = r.first.Error()
	}
	return f
}

// cpuSeconds is the time that this process has had from the processors.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
