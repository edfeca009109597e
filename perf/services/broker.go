// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/perf/server"
)

// broker is a `skylark server` with its data in one directory.
type broker struct {
	*server.Server
	name      string
	startedIn time.Duration // from the start of the process until it serves
}

func newBroker(skylark, name, dir string) (*broker, error) {
	s, err := server.New(skylark, dir, nil)
	return &broker{Server: s, name: name}, err
}

// start starts the server and waits until it serves.
func (b *broker) start(ctx context.Context) (err error) {
	b.startedIn, err = b.Start(ctx)
	return err
}

func (b *broker) client() (*client.Client, error) { return client.New([]string{b.Names}) }

// makeTopic makes a topic with so many queues.
func (b *broker) makeTopic(ctx context.Context, c *client.Client, name string, queues int) error {
	_, err := admin.New(c).PutTopic(ctx,
		admin.TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues}, admin.Everywhere())
	return err
}

// watch returns what the process needs while it is left alone: CPU in percent of a core, and
// anonymous memory at the end.
func (b *broker) watch(ctx context.Context, d time.Duration) (percent float64, rss int64, err error) {
	before, err := b.Usage()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := wait(ctx, d); err != nil {
		return 0, 0, err
	}
	after, err := b.Usage()
	took := time.Since(began).Seconds()
	return (after.CPUSeconds() - before.CPUSeconds()) / took * 100, after.RSSAnonBytes, err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
