// SPDX-License-Identifier: Apache-2.0

// Command nats is NATS JetStream for `make perf-peer PEERS=nats`: the server as a process of its own,
// and loads comparable to those of the other sides. It is a module of its own, so that neither NATS
// nor what it needs is in Skylark's module graph.
//
//	nats serve -port 19500 -dir DIR
//	nats flight -port 19500 -count 300000    # 4 connections with 64 sends each in flight
//	nats wait -port 19500 -count 100000      # 64 connections that each wait for their answer
//	nats consume -port 19500 -count 300000   # one consumer without acknowledgements
//
// A load prints {"messages":N,"seconds":S}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName = "perf"
	subject    = "perf"
)

// task is one run of a load.
type task struct {
	url   string
	count int
	body  []byte
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) < 2 {
		return errors.New("say serve, flight, wait or consume")
	}
	f := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	port := f.Int("port", 19500, "of the server, on 127.0.0.1")
	dir := f.String("dir", "", "folder of the server's store")
	count := f.Int("count", 100_000, "messages")
	size := f.Int("size", 1024, "bytes of a body")
	if err := f.Parse(os.Args[2:]); err != nil {
		return err
	}
	t := &task{url: fmt.Sprintf("nats://127.0.0.1:%d", *port), count: *count, body: make([]byte, *size)}
	loads := map[string]func(ctx context.Context) error{"flight": t.flight, "wait": t.wait, "consume": t.consume}
	if os.Args[1] == "serve" {
		return serve(ctx, *port, *dir)
	}
	load, ok := loads[os.Args[1]]
	if !ok {
		return fmt.Errorf("%q is not serve, flight, wait or consume", os.Args[1])
	}
	began := time.Now()
	if err := load(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"messages": t.count, "seconds": time.Since(began).Seconds(),
	})
}

// serve runs the server with one stream on the disk until it is told to end.
func serve(ctx context.Context, port int, dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true,
		MaxPayload: 8 << 20, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 40,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return errors.New("the server does not take connections")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: streamName, Subjects: []string{subject}, Storage: jetstream.FileStorage,
		})
	}
	nc.Close()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// each runs one connection's part of the load on n connections at once.
func (t *task) each(n int, part func(js jetstream.JetStream, count int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() {
			nc, err := nats.Connect(t.url)
			if err != nil {
				errs[i] = err
				return
			}
			defer nc.Close()
			js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(64))
			if err == nil {
				err = part(js, t.count/n)
			}
			errs[i] = err
		})
	}
	all.Wait()
	t.count = t.count / n * n
	return errors.Join(errs...)
}

// flight has 4 connections with 64 messages each on their way.
func (t *task) flight(context.Context) error {
	return t.each(4, func(js jetstream.JetStream, count int) error {
		var futures []jetstream.PubAckFuture
		for range count {
			f, err := js.PublishAsync(subject, t.body, jetstream.WithStallWait(time.Minute))
			if err != nil {
				return err
			}
			futures = append(futures, f)
		}
		for _, f := range futures {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return err
			case <-time.After(30 * time.Second):
				return errors.New("no answer within 30 s")
			}
		}
		return nil
	})
}

// wait has 64 connections that each wait for the answer to one message.
func (t *task) wait(ctx context.Context) error {
	return t.each(64, func(js jetstream.JetStream, count int) error {
		for range count {
			if _, err := js.Publish(ctx, subject, t.body); err != nil {
				return err
			}
		}
		return nil
	})
}

// consume reads from the first message on, without acknowledgements, as a pull without a commit.
func (t *task) consume(ctx context.Context) error {
	nc, err := nats.Connect(t.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := js.CreateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return err
	}
	got, done := 0, make(chan struct{})
	reading, err := c.Consume(func(jetstream.Msg) {
		if got++; got == t.count {
			close(done)
		}
	}, jetstream.PullMaxMessages(500))
	if err != nil {
		return err
	}
	defer reading.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Minute):
		return errors.New("not everything came within 5 minutes")
	}
}
