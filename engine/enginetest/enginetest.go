// SPDX-License-Identifier: Apache-2.0

// Package enginetest runs a name server and a broker in the test's process, on free loopback ports
// and a temporary directory. Everything is real: sockets, files, recovery.
//
//	cluster := enginetest.Start(t)
//	client, err := client.New([]string{cluster.NameServer()})
//
// Only tests import it.
package enginetest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/nameserver"
)

// Option changes the broker's configuration before it starts.
type Option func(*engine.Config)

// closeWithin bounds a graceful close; a slower one fails the test.
const closeWithin = 10 * time.Second

// Cluster is one name server and one broker.
type Cluster struct {
	t      testing.TB
	dir    string
	cfg    engine.Config
	names  *nameserver.Server
	broker *engine.Broker
}

// Start runs a cluster until the test ends. Segments are small (8 MiB), the index is small, the
// fast port is off and logs are discarded unless an option says otherwise.
func Start(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir()}
	c.startNameServer()
	c.cfg = c.brokerConfig()
	for _, option := range options {
		option(&c.cfg)
	}
	c.startBroker()
	t.Cleanup(c.stop)
	return c
}

func (c *Cluster) startNameServer() {
	c.t.Helper()
	cfg := nameserver.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Dir = filepath.Join(c.dir, "namesrv")
	server, err := nameserver.New(cfg)
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		c.t.Fatalf("enginetest: name server: %v", err)
	}
	c.names = server
}

func (c *Cluster) brokerConfig() engine.Config {
	cfg := engine.Default()
	cfg.BrokerName = "broker-a"
	cfg.BindAddress = "127.0.0.1"
	cfg.ListenPort = 0
	cfg.FastPort = -1
	cfg.NameServers = c.names.Addr()
	cfg.StoreRoot = filepath.Join(c.dir, "store")
	cfg.CommitLogFileSize = 8 << 20
	cfg.BallastBytes = 0
	cfg.QueueFileSize = 6000
	cfg.IndexSlots, cfg.IndexEntries = 5000, 20000
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

func (c *Cluster) startBroker() {
	c.t.Helper()
	broker, err := engine.New(c.cfg)
	if err == nil {
		err = broker.Start(context.Background())
	}
	if err != nil {
		c.t.Fatalf("enginetest: broker: %v", err)
	}
	c.broker = broker
	// The next start listens where clients know it.
	c.cfg.ListenPort = int(broker.Addr().Port())
}

// NameServer is the name server's host:port.
func (c *Cluster) NameServer() string { return c.names.Addr() }

// Broker is the broker's host:port.
func (c *Cluster) Broker() string { return c.broker.Addr().String() }

// BrokerName is the broker's name.
func (c *Cluster) BrokerName() string { return c.broker.Name() }

// Engine is the running broker itself.
func (c *Cluster) Engine() *engine.Broker { return c.broker }

// Dir is the store's directory.
func (c *Cluster) Dir() string { return c.cfg.StoreRoot }

// Restart closes the broker gracefully and starts it again on the same store and port.
func (c *Cluster) Restart(options ...Option) {
	c.t.Helper()
	c.closeBroker()
	for _, option := range options {
		option(&c.cfg)
	}
	c.startBroker()
}

func (c *Cluster) closeBroker() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := c.broker.Close(ctx); err != nil {
		c.t.Errorf("enginetest: close broker: %v", err)
	}
}

func (c *Cluster) stop() {
	c.closeBroker()
	if err := c.names.Close(); err != nil {
		c.t.Errorf("enginetest: close name server: %v", err)
	}
}
