// SPDX-License-Identifier: Apache-2.0

// Command theirs puts load on Apache's rocketmq-client-go/v2 for perf/clientpeer, one load for each
// process, and prints what it took as one line of JSON. It is the twin of the program ours.
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

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
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
	flag.StringVar(&l.name, "load", "sync", "sync, async, batch or consume")
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
	rlog.SetLogLevel("fatal")
	f, err := l.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "theirs:", err)
		os.Exit(1)
	}
	text, err := json.Marshal(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "theirs:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, string(text))
}

// inFlight bounds the asynchronous sends without an answer, as our producer's buffer does: the
// client itself has no bound.
const inFlight = 10_000

func (l load) run() (figures, error) {
	ctx := context.Background()
	if l.name == "consume" {
		return l.consume()
	}
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{l.nameServer}),
		producer.WithGroupName(l.group))
	if err != nil {
		return figures{}, err
	}
	if err := p.Start(); err != nil {
		return figures{}, err
	}
	defer p.Shutdown()
	r := newMeter()
	body := make([]byte, l.size)
	message := func() *primitive.Message { return primitive.NewMessage(l.topic, body) }
	slots := make(chan struct{}, inFlight)
	done := func(_ context.Context, _ *primitive.SendResult, err error) {
		<-slots
		r.note(1, err)
	}
	var send func()
	switch l.name {
	case "sync":
		send = func() {
			_, err := p.SendSync(ctx, message())
			r.note(1, err)
		}
	case "async":
		l.goroutines = 1
		send = func() {
			slots <- struct{}{}
			if err := p.SendAsync(ctx, done, message()); err != nil {
				<-slots
				r.note(0, err)
			}
		}
	case "batch":
		send = func() {
			ms := make([]*primitive.Message, l.batch)
			for i := range ms {
				ms[i] = message()
			}
			_, err := p.SendSync(ctx, ms...)
			r.note(int64(len(ms)), err)
		}
	default:
		return figures{}, fmt.Errorf("no load %q", l.name)
	}
	return r.drive(l, send, func() error {
		for range inFlight { // every slot free: all are answered
			slots <- struct{}{}
		}
		return nil
	})
}

func (l load) consume() (figures, error) {
	k, err := rocketmq.NewPushConsumer(consumer.WithNameServer([]string{l.nameServer}),
		consumer.WithGroupName(l.group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return figures{}, err
	}
	r := newMeter()
	all := make(chan struct{})
	var once sync.Once
	err = k.Subscribe(l.topic, consumer.MessageSelector{},
		func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			r.note(int64(len(ms)), nil)
			if r.total.Load() >= l.count {
				once.Do(func() { r.finish(); close(all) })
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return figures{}, err
	}
	r.begin()
	if err := k.Start(); err != nil {
		return figures{}, err
	}
	<-all
	_ = k.Shutdown()
	return r.result(), nil
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
