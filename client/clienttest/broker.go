// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine"
)

// Broker is one broker of a cluster. Its methods may be called from any goroutine.
type Broker struct {
	cluster *Cluster
	name    string

	// Guards what follows. Held while the broker starts and stops.
	mu     sync.Mutex
	engine *engine.Broker // nil: does not run
	port   int            // 0 before the first start
	closed bool
}

// Name returns the broker's name, as "broker-a".
func (b *Broker) Name() string { return b.name }

// Addr returns the broker's host:port, which stays the same over restarts.
func (b *Broker) Addr() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("127.0.0.1:%d", b.port)
}

// Start starts a broker that was stopped or killed, on the same port and store. When it returns, the
// store is recovered and the name server, if it runs, knows the broker. Starting one that runs does
// nothing.
func (b *Broker) Start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("clienttest: %s: %w", b.name, client.ErrClosed)
	}
	if b.engine != nil {
		return nil
	}
	cfg, err := b.config()
	if err != nil {
		return fmt.Errorf("clienttest: %s: %w", b.name, err)
	}
	e, err := engine.New(cfg)
	if err == nil {
		err = e.Start(context.Background())
	}
	if err != nil {
		return fmt.Errorf("clienttest: %s: %w", b.name, err)
	}
	b.engine, b.port = e, int(e.Addr().Port())
	return nil
}

func (b *Broker) config() (engine.Config, error) {
	set := &b.cluster.cfg
	cfg := engine.Default()
	cfg.BrokerName = b.name
	cfg.BindAddress = "127.0.0.1"
	cfg.ListenPort = b.port
	cfg.FastPort = -1
	cfg.NameServers = b.cluster.nsAddr
	cfg.StoreRoot = b.storeDir()
	cfg.Logger = set.logger
	cfg.AutoCreateTopic, cfg.AutoCreateGroup = set.autoCreate, set.autoCreate
	// Small files: the disk that one broker takes, and the time that making them takes.
	cfg.CommitLogFileSize = 8 << 20
	cfg.BallastBytes = 0
	cfg.QueueFileSize = 20 * 1024
	cfg.IndexSlots, cfg.IndexEntries = 5000, 20000
	cfg.EventLoops = 1
	err := set.apply(&cfg)
	return cfg, err
}

func (b *Broker) storeDir() string { return filepath.Join(b.cluster.dir, b.name) }

// Stop ends the broker as an operator would: it leaves the name server, answers what it has and
// writes its tables. Stopping one that does not run does nothing.
func (b *Broker) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closeLocked(ctx)
}

// Restart is Stop and Start.
func (b *Broker) Restart() error {
	if err := b.Stop(); err != nil {
		return err
	}
	return b.Start()
}

// Kill ends the broker as a killed process ends: connections break with requests under way, nobody
// unregisters, and on disk is what a crash of the process leaves - every acknowledged message, and
// consumer offsets as they were last written, which is up to 5 s ago. The next Start recovers.
// Killing one that does not run does nothing.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.engine == nil {
		return nil
	}
	before, err := takeCrashState(b.storeDir())
	if err != nil {
		return fmt.Errorf("clienttest: killing %s: %w", b.name, err)
	}
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0)) // no grace
	defer cancel()
	return errors.Join(b.closeLocked(ctx), before.restore())
}

func (b *Broker) closeLocked(ctx context.Context) error {
	e := b.engine
	b.engine = nil
	if e == nil {
		return nil
	}
	if err := e.Close(ctx); err != nil {
		return fmt.Errorf("clienttest: closing %s: %w", b.name, err)
	}
	return nil
}

// end stops the broker for good.
func (b *Broker) end() error {
	err := b.Stop()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return err
}
