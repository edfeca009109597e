// SPDX-License-Identifier: Apache-2.0

// Package nameserver tells clients which brokers serve a topic. It takes the place of RocketMQ's
// name server: the same requests, remarks and JSON dialects, with the rules in package route.
//
// Several name servers share nothing: brokers register with each of them. What brokers register is
// kept in memory only, since they repeat it every 30 s; the key-value configuration and settings
// changed at run time are on disk before their change is answered.
//
//	s, err := nameserver.New(nameserver.DefaultConfig())
//	err = s.Start()
//	defer s.Close()
//
// Queries are answered on the loops, in memory. Three workers take what may block: file writes,
// large registrations (whose decoding would hold up a loop), and notifications to brokers. Each
// has a bounded queue.
package nameserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/nameserver/route"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	notifyTimeout = 300 * time.Millisecond // as the reference waits for NOTIFY_MIN_BROKER_ID_CHANGE
	closeTime     = 2 * time.Second        // for answers under way at the end
)

// errNoHeartbeat closes the connection of a broker that has expired.
var errNoHeartbeat = errors.New("no heartbeat within the broker's timeout")

// Server is one name server. Its exported methods may be called from any goroutine.
type Server struct {
	// Set before Start returns, then constant.
	cfg     Config
	table   *route.Table
	kv      *kvStore
	loops   *eventloop.Server
	pool    *invoke.Pool // to brokers, for notifications
	started time.Time

	files   *worker // writes of files
	bodies  *worker // large registrations
	notices *worker // messages to brokers

	settings atomic.Pointer[Settings] // replaced by the files worker
	sessions atomic.Uint64            // last number given out

	refusedMS atomic.Int64 // when a refused registration was last logged
	refused   atomic.Int64 // and how many were not since

	// Guards what follows. Never held across I/O or calls of other packages but time's.
	mu      sync.Mutex
	closed  bool
	brokers map[route.Session]eventloop.Ref // connections with a registration
	scan    *time.Timer
	armed   bool
}

// New reads the files of a name server. Nothing listens yet; Close must be called all the same.
func New(cfg Config) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	kv, err := openKV(cfg.KVConfigPath)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		table:   route.New(cfg.rules()),
		kv:      kv,
		pool:    invoke.NewPool(invoke.Config{DialTimeout: notifyTimeout}),
		files:   newWorker(),
		bodies:  newWorker(),
		notices: newWorker(),
		brokers: map[route.Session]eventloop.Ref{},
	}
	s.settings.Store(&cfg.Settings)
	return s, nil
}

// Start listens. It is called once.
func (s *Server) Start() error {
	cfg := eventloop.DefaultConfig()
	cfg.Backend = s.cfg.Backend
	cfg.IdleTimeout = time.Duration(s.cfg.IdleSeconds) * time.Second
	cfg.Notice = func(msg string, kv ...any) {
		s.cfg.Log.Warn(msg, kv...) //nolint:sloglint // the loop's messages are constants
	}
	s.started = time.Now()
	loops, err := eventloop.Listen(cfg, []string{s.cfg.Listen},
		func(*eventloop.Loop) eventloop.Handler { return &handler{s} })
	if err != nil {
		return fmt.Errorf("nameserver: start: %w", err)
	}
	s.loops = loops
	set := *s.settings.Load() // GET_NAMESRV_CONFIG tells where it really listens
	addr := loops.Addrs()[0]
	set.BindAddress, set.ListenPort = addr.Addr().String(), int(addr.Port())
	s.settings.Store(&set)
	s.cfg.Log.Info("name server started", "addr", s.Addr(), "path", s.cfg.KVConfigPath)
	return nil
}

// Addr returns the address that clients are told: host:port with the real port.
func (s *Server) Addr() string { return s.loops.Addrs()[0].String() }

// Settings returns the settings in force.
func (s *Server) Settings() Settings { return *s.settings.Load() }

// Close stops listening, ends connections and finishes writes. It takes at most a few seconds, is
// idempotent and returns the first error.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.scan != nil {
		s.scan.Stop()
	}
	s.mu.Unlock()
	s.files.close() // answers go out before the loops end
	s.bodies.close()
	var err error
	if s.loops != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err = s.loops.Close(ctx); err != nil {
			err = fmt.Errorf("nameserver: close: %w", err)
		}
	}
	s.notices.close()
	return errors.Join(err, s.pool.Close())
}

// enter notes that brokers are registered over a connection and has expiry looked after.
func (s *Server) enter(session route.Session, ref eventloop.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brokers[session] = ref
	s.armLocked()
}

func (s *Server) leave(session route.Session) {
	s.mu.Lock()
	delete(s.brokers, session)
	s.mu.Unlock()
}

func (s *Server) armLocked() {
	if s.closed || s.armed {
		return
	}
	s.armed = true
	wait := time.Duration(s.settings.Load().ScanIntervalMS) * time.Millisecond
	if s.scan == nil {
		s.scan = time.AfterFunc(wait, s.expire)
		return
	}
	s.scan.Reset(wait)
}

// expire removes brokers without heartbeats. The timer runs only while there are brokers.
func (s *Server) expire() {
	s.handle(s.table.Expire(time.Now().UnixMilli()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.table.Brokers() > 0 {
		s.armLocked()
	}
}

// handle does what events ask for. It does not block.
func (s *Server) handle(events []route.Event) {
	for _, e := range events {
		if e.Left != nil {
			s.cfg.Log.Info("broker left", "broker", e.Left.Name, "id", e.Left.ID, "addr", e.Left.Addr)
		}
		if e.Expired != 0 {
			s.mu.Lock()
			ref := s.brokers[e.Expired]
			s.mu.Unlock()
			ref.Post(closeTask{})
		}
		if e.MinID != nil {
			change := e.MinID
			s.notices.submit(func() { s.notifyMinID(change) })
		}
	}
}

// closeTask closes the connection of a broker that has expired.
type closeTask struct{}

func (closeTask) Run(c *eventloop.Conn) {
	if c != nil {
		c.CloseWith(errNoHeartbeat)
	}
}

// notifyMinID tells brokers of a name that another one is the smallest now, one way, as the
// reference does.
func (s *Server) notifyMinID(change *route.MinIDChange) {
	ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
	defer cancel()
	header := &protocol.NotifyMinBrokerIDChangeRequest{
		MinBrokerID: change.MinID, BrokerName: change.BrokerName, MinBrokerAddr: change.MinAddr,
		OfflineBrokerAddr: change.OfflineAddr, HABrokerAddr: change.HAAddr,
	}
	var wg sync.WaitGroup
	for _, addr := range change.Targets {
		wg.Go(func() {
			err := s.pool.Oneway(ctx, addr, &invoke.Request{
				Code:   remoting.NotifyMinBrokerIDChange,
				Header: header,
			})
			if err != nil {
				s.cfg.Log.Warn("broker not told of the smallest id", "addr", addr, "err", err)
			}
		})
	}
	wg.Wait()
}
