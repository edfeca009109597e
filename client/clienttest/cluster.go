// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/nameserver"
)

// closeWithin bounds the graceful end of a broker or of a client.
const closeWithin = 10 * time.Second

// Cluster is a name server and one or more brokers. Its methods may be called from any goroutine.
type Cluster struct {
	// Constant after New.
	dir       string
	temporary bool // dir is removed by Close
	cfg       config
	nsAddr    string
	brokers   []*Broker

	// Guards what follows. Held while the name server starts and stops.
	mu     sync.Mutex
	names  *nameserver.Server // nil: stopped
	closed bool
}

// New starts a cluster that the caller closes, for examples and programs. When it returns, the
// brokers are registered and the topics and groups asked for can be used.
func New(opts ...Option) (*Cluster, error) {
	c := &Cluster{cfg: config{
		brokers: 1, autoCreate: true, logger: slog.New(slog.DiscardHandler),
	}}
	for _, o := range opts {
		o(&c.cfg)
	}
	if err := c.cfg.check(); err != nil {
		return nil, fmt.Errorf("clienttest: options: %w", err)
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Start is New for a test, which fails when the cluster does not start. The cluster is closed when
// the test ends; an error of that fails the test too.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	c, err := New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Cluster) start() error {
	c.dir = c.cfg.dir
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "skylark-test-")
		if err != nil {
			return fmt.Errorf("clienttest: %w", err)
		}
		c.dir, c.temporary = dir, true
	}
	if err := c.StartNameServer(); err != nil {
		return err
	}
	for i := range c.cfg.brokers {
		b := &Broker{cluster: c, name: "broker-" + string(rune('a'+i))}
		c.brokers = append(c.brokers, b)
		if err := b.Start(); err != nil {
			return err
		}
	}
	return c.create()
}

// NameServer returns the name server's host:port. It stays the same over StopNameServer and
// StartNameServer.
func (c *Cluster) NameServer() string { return c.nsAddr }

// Dir returns the directory that holds the cluster's files, one folder for each server.
func (c *Cluster) Dir() string { return c.dir }

// Brokers returns the brokers in the order of their names. The slice is the caller's.
func (c *Cluster) Brokers() []*Broker { return append([]*Broker(nil), c.brokers...) }

// Broker returns the broker number i, from 0. It panics when there is none.
func (c *Cluster) Broker(i int) *Broker { return c.brokers[i] }

// Client makes a client of the cluster that is closed when the test ends, before the cluster if that
// was made by Start in the same test. Failing to make or to close it fails the test.
func (c *Cluster) Client(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	cl, err := client.New([]string{c.nsAddr}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		if err := cl.Close(ctx); err != nil {
			t.Errorf("clienttest: closing the client: %v", err)
		}
	})
	return cl
}

// Producer makes a client of the cluster and a producer of it, in a group of its own; both are closed
// when the test ends, as Client says.
func (c *Cluster) Producer(t testing.TB, opts ...client.ProducerOption) *client.Producer {
	t.Helper()
	p, err := c.Client(t).NewProducer("clienttest-"+rand.Text(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// StartNameServer starts the name server again after StopNameServer, on the same port. It knows of
// no topic until the brokers register again, which they do within a second or two of noticing.
// Starting one that runs does nothing.
func (c *Cluster) StartNameServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("clienttest: name server: %w", client.ErrClosed)
	}
	if c.names != nil {
		return nil
	}
	cfg := nameserver.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	if c.nsAddr != "" {
		cfg.Listen = c.nsAddr
	}
	cfg.Dir, cfg.Log = filepath.Join(c.dir, "namesrv"), c.cfg.logger
	s, err := nameserver.New(cfg)
	if err != nil {
		return fmt.Errorf("clienttest: name server: %w", err)
	}
	if err := s.Start(); err != nil {
		return fmt.Errorf("clienttest: name server: %w", errors.Join(err, s.Close()))
	}
	c.names, c.nsAddr = s, s.Addr()
	return nil
}

// StopNameServer stops the name server. Brokers and clients go on with what they know. Stopping one
// that does not run does nothing.
func (c *Cluster) StopNameServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.names
	c.names = nil
	if s == nil {
		return nil
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("clienttest: closing the name server: %w", err)
	}
	return nil
}

// Close stops everything and removes the files, unless WithDir said where they are. It is idempotent
// and blocks for a few seconds at most; clients should be closed before.
func (c *Cluster) Close() error {
	errs := make([]error, len(c.brokers))
	var wg sync.WaitGroup
	for i, b := range c.brokers {
		wg.Go(func() { errs[i] = b.end() })
	}
	wg.Wait()
	err := errors.Join(errors.Join(errs...), c.StopNameServer())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.temporary {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	c.closed = true
	return err
}
