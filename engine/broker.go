// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/filter"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/lag"
	"github.com/skylarkmq/skylark/engine/longpoll"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/engine/registration"
	"github.com/skylarkmq/skylark/engine/stats"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/engine/watermark"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Broker is one running broker.
type Broker struct {
	// Set before Start returns, then constant.
	cfg        Config
	log        *slog.Logger
	started    time.Time
	advertised Advertised
	reserved   net.Listener // keeps the port that the system chose; nil: none

	store   *storage.Store
	topics  *topic.Table
	groups  *group.Configs
	members *group.Members
	locks   *group.Locks
	lag     *lag.Watch
	unseen  unconsumed
	modes   *group.Modes
	offsets *offset.Table
	filters *filter.Manager
	stats   *stats.Manager

	transactions *transaction.Service
	halves       *transaction.Counts

	held     *longpoll.Table
	flushed  *watermark.List[*processor.FlushWait]  // nil under ASYNC_FLUSH
	releases map[*eventloop.Loop][]eventloop.Posted // scratch of releaseFlushed
	workers  *workers
	large    *workers // of one goroutine, for commands over largeCommand
	replies  *workers // each waits for the client that a reply is for
	readers  *workers
	calls    *clientCalls
	register *registration.Registration
	server   *eventloop.Server

	delayed    delayed
	pops       *pops
	count      *counters
	sendShared processor.SendShared
	pullShared processor.PullShared
	cold       processor.Cold
	light      processor.Light

	// Any goroutine.
	permission atomic.Int32
	closing    atomic.Bool
	lookedMS   atomic.Int64 // when consumers were last looked at
	produced   atomic.Int64 // bytes of cold answers on their way from workers to loops
	closeOnce  sync.Once
	closeErr   error
}

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Broker, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, log: cfg.Logger}
	b.delayed.rules = cfg.delayRules()
	b.permission.Store(cfg.BrokerPermission)
	return b, nil
}

// Start opens the store, recovers it, listens, and registers with the name servers. When it
// returns, clients are served; name servers that cannot be reached are tried on in the background.
// It blocks for the recovery. On error everything opened is closed again.
func (b *Broker) Start(ctx context.Context) error {
	b.started = time.Now()
	if err := b.open(); err != nil {
		_ = b.Close(ctx)
		return withChoice(err)
	}
	if err := b.listen(); err != nil {
		_ = b.Close(ctx)
		return err
	}
	b.announce(ctx)
	b.log.Info("broker started", "broker", b.cfg.BrokerName, "addr", b.advertised.Addr,
		"path", b.cfg.StoreRoot, "took", time.Since(b.started).Round(time.Millisecond).String())
	return nil
}

// withChoice adds what an operator can do about a table without a valid copy.
func withChoice(err error) error {
	var damaged *vfs.DamagedError
	if !errors.As(err, &damaged) {
		return err
	}
	return fmt.Errorf("%w; restore one of them, or start with --allow-empty-tables to go on without what "+
		"it held, which sets the damaged ones aside", err)
}

// open locks the directory, before another process's files in it are touched, and loads the tables
// and the store, in the order of RocketMQ's BrokerController.initialize: the
// tables first, because the store asks them what kind of queues a topic has.
func (b *Broker) open() error {
	if err := b.chooseAddress(); err != nil {
		return err
	}
	b.calls = newClientCalls()
	if b.cfg.Lock == nil {
		lock, err := storage.LockDir(b.cfg.StoreRoot)
		if err != nil {
			return err
		}
		b.cfg.Lock = lock
	}
	if err := b.openTables(); err != nil {
		return err
	}
	b.workers = newWorkers(b.cfg.AdminThreads, b.cfg.AdminQueue)
	b.large = newWorkers(1, b.cfg.AdminQueue)
	b.replies = newWorkers(repliesMax, repliesMax)
	b.readers = newWorkers(b.cfg.ColdReaders, b.cfg.ColdQueue)
	b.held = longpoll.New(b.cfg.HoldsMax, time.Now)
	if b.cfg.FlushDiskType == "SYNC_FLUSH" {
		b.releases = make(map[*eventloop.Loop][]eventloop.Posted)
		b.flushed = watermark.New(ms(b.cfg.SyncFlushTimeoutMS), flushWaitsMax, b.releaseFlushed)
	}
	store, err := storage.Open(b.storeConfig())
	if err != nil {
		return err
	}
	b.store = store
	b.boundPositions()
	if b.flushed != nil {
		b.flushed.Advance(int64(store.Info().Flushed))
	}
	b.count = &counters{stats: b.stats, topics: b.topics}
	if err := b.openDelayed(); err != nil {
		return err
	}
	b.wire()
	if err := b.wirePops(); err != nil {
		return err
	}
	b.delayed.start()
	b.pops.start(b.delayed.timers != nil)
	return b.newRegistration()
}

// flushWaitsMax bounds the sends that wait for the disk at once; more are answered
// FLUSH_DISK_TIMEOUT without waiting.
const flushWaitsMax = 1 << 18

// repliesMax bounds the replies that wait for their requesters, and those that wait for a turn.
const repliesMax = 256

func (b *Broker) chooseAddress() error {
	if b.cfg.ListenPort == 0 {
		// The address is part of message ids, so it must be known before the first connection. The port
		// is kept until listen: in the time that recovery takes, others would be given it.
		l, err := net.Listen("tcp", net.JoinHostPort(b.cfg.BindAddress, "0"))
		if err != nil {
			return fmt.Errorf("engine: listen on %s: %w", b.cfg.BindAddress, err)
		}
		b.reserved, b.cfg.ListenPort = l, l.Addr().(*net.TCPAddr).Port
	}
	a, err := advertise(&b.cfg, b.cfg.ListenPort, hostAddrs())
	if err != nil {
		return err
	}
	b.advertised = a
	if a.Warning != "" {
		b.log.Warn("clients may not reach this broker", "addr", a.Addr, "why", a.Warning)
	}
	return nil
}

// giveBackPort frees the port that chooseAddress reserved, if any.
func (b *Broker) giveBackPort() {
	if b.reserved != nil {
		_ = b.reserved.Close()
		b.reserved = nil
	}
}

// listen opens the main and the fast port. From here on commands come in.
func (b *Broker) listen() error {
	cfg := eventloop.DefaultConfig()
	cfg.Backend, cfg.Loops = b.cfg.NetBackend, b.cfg.EventLoops
	cfg.IdleTimeout = time.Duration(b.cfg.IdleSeconds) * time.Second
	cfg.MaxFrame = max(remoting.MaxFrame, b.cfg.MaxMessageSize+frameSlack)
	cfg.MaxConns, cfg.Congestion = b.cfg.MaxConns, b.cfg.TCPCongestion
	cfg.Notice = b.notice
	addrs := []string{net.JoinHostPort(b.cfg.BindAddress, strconv.Itoa(b.cfg.ListenPort))}
	if fast := b.fastPort(); fast > 0 {
		addrs = append(addrs, net.JoinHostPort(b.cfg.BindAddress, strconv.Itoa(fast)))
	}
	reserved := b.reserved != nil
	b.giveBackPort()
	server, err := eventloop.Listen(cfg, addrs, b.newLoopHandler)
	for range reservedTries {
		if err == nil || !reserved {
			break
		}
		// A child of this process holds the reservation, too, between its fork and its exec.
		<-time.After(reservedPause)
		server, err = eventloop.Listen(cfg, addrs, b.newLoopHandler)
	}
	if err != nil {
		return fmt.Errorf("engine: listen on %v: %w; if another broker runs here stop it, or set "+
			"listenPort (and fastListenPort) to free ports", addrs, err)
	}
	b.server = server
	return nil
}

// How often, and after what pause, a port that was just given back is tried again.
const (
	reservedTries = 50
	reservedPause = 10 * time.Millisecond
)

// frameSlack is how much larger than a body a frame may be: header, properties and lengths.
const frameSlack = 1 << 20

// fastPort is RocketMQ's "VIP" port, two below the main one; 0 when it is off.
func (b *Broker) fastPort() int {
	switch {
	case b.cfg.FastPort < 0:
		return 0
	case b.cfg.FastPort > 0:
		return b.cfg.FastPort
	default:
		return max(b.cfg.ListenPort-2, 0)
	}
}

// Addr is where the broker listens, with the real port.
func (b *Broker) Addr() netip.AddrPort { return b.server.Addrs()[0] }

// Advertised is the address that clients are told, and why.
func (b *Broker) Advertised() Advertised { return b.advertised }

// Name is the broker's name after defaults.
func (b *Broker) Name() string { return b.cfg.BrokerName }

// StoreInfo describes the store, for the start line and tests.
func (b *Broker) StoreInfo() storage.Info { return b.store.Info() }

// readable and writable are the broker's own permission (brokerPermission).
func (b *Broker) readable() bool { return b.permission.Load()&4 != 0 }
func (b *Broker) writable() bool { return b.permission.Load()&2 != 0 }

// notice is how leaves and the store speak to the operator.
func (b *Broker) notice(msg string, kv ...any) {
	b.log.Warn(msg, kv...) //nolint:sloglint // the message is a constant where it is said
}

// releasesSpareMax bounds the answers for which memory is kept from flush to flush.
const releasesSpareMax = 8192

// releaseFlushed posts the answers of sends that the disk has caught up with: each loop once.
func (b *Broker) releaseFlushed(released []watermark.Released[*processor.FlushWait]) {
	late := false
	for _, r := range released {
		if !r.Reached && !late {
			// FLUSH_DISK_TIMEOUT says that the message is stored: so the process may die now.
			late = true
			_ = b.store.WriteOut() // the store has told of a failure
		}
		loop := r.Waiter.Loop()
		b.releases[loop] = append(b.releases[loop], r.Waiter.Released(r.Reached))
	}
	for loop, posted := range b.releases {
		loop.Post(posted)
		clear(posted)
		if b.releases[loop] = posted[:0]; cap(posted) > releasesSpareMax {
			delete(b.releases, loop)
		}
	}
}

// Close stops the broker, in RocketMQ's order: it leaves the name servers, so that clients look
// elsewhere; stops taking commands and finishes those it has; persists the tables; closes the
// store last. What was acknowledged is on disk when it returns. ctx bounds the draining, not the
// final flush. Idempotent; returns the first error.
func (b *Broker) Close(ctx context.Context) error {
	b.closeOnce.Do(func() { b.closeErr = b.shutdown(ctx) })
	return b.closeErr
}

func (b *Broker) shutdown(ctx context.Context) error {
	b.closing.Store(true)
	b.giveBackPort()
	var errs []error
	if b.register != nil {
		// A name server that is away forgets this broker by itself; it does not hold up the end.
		if err := b.register.Unregister(ctx); err != nil {
			b.log.Warn("not unregistered everywhere", "err", err)
		}
		errs = append(errs, b.register.Close())
	}
	if b.locks != nil {
		errs = append(errs, b.locks.Close()) // before the connections are closed, which would end them
	}
	if b.held != nil {
		b.held.Close()
		b.pops.wakeAll()
	}
	if b.server != nil {
		b.awaitFlush(ctx)
		errs = append(errs, b.drain(ctx))
	}
	if b.workers != nil {
		b.workers.close()
		b.large.close()
		b.replies.close()
		b.readers.close()
	}
	if b.members != nil {
		b.members.Close()
	}
	if b.transactions != nil {
		b.transactions.Close()
	}
	errs = append(errs, b.halves.Close())
	errs = append(errs, b.pops.close())
	if b.offsets != nil {
		errs = append(errs, b.offsets.Close())
	}
	errs = append(errs, b.delayed.close())
	if b.filters != nil {
		errs = append(errs, b.filters.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	} else if b.cfg.Lock != nil {
		errs = append(errs, b.cfg.Lock.Close())
	}
	if b.flushed != nil {
		b.flushed.Close()
	}
	return errors.Join(errs...)
}

// drainWithin bounds how long the end waits for clients to read their answers: one that does not must
// not take the time that the store needs to close.
const drainWithin = 2 * time.Second

// drain closes the ports and connections. Clients that do not read are no error.
func (b *Broker) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainWithin)
	defer cancel()
	err := b.server.Close(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		b.log.Warn("connections closed before their clients had read everything", "err", err)
		return nil
	}
	return err
}

// awaitFlush lets the sends that wait for the disk be answered before their connections end.
func (b *Broker) awaitFlush(ctx context.Context) {
	if b.flushed == nil {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Second)
	for b.flushed.Len() > 0 {
		select {
		case <-tick.C:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// configDir is where the tables' files lie.
func (b *Broker) configDir() string { return filepath.Join(b.cfg.StoreRoot, "config") }

// HeldPulls is the number of pulls that wait for messages.
func (b *Broker) HeldPulls() int { return b.held.Len() }
