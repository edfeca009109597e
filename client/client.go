// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Client holds connections, routes and heartbeats for one cluster. It is safe for concurrent use.
// Two clients share nothing. Goroutines: one refreshes routes, one sends heartbeats, and each
// connection has a reader and a writer; Close ends them all.
type Client struct {
	// Constant after New.
	cfg     config
	servers nameServers
	id      string
	ids     *record.UniqueIDs
	pool    *invoke.Pool
	routes  *routeTable
	ctx     context.Context // ends when Close has drained
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	beat    chan struct{} // capacity 1: send heartbeats soon
	tracers atomic.Int32  // made so far
	beats   fullBeats     // which brokers need no subscriptions

	// Guards what follows. Never held across I/O or a callback.
	mu      sync.Mutex
	closed  bool                // nothing new may be made
	ended   bool                // no goroutine may be started
	members map[member]struct{} // producers, consumers and readers
	done    chan struct{}       // closed when Close is through; nil before Close
	failure error               // what Close returns
}

// member is a producer, consumer or reader of a client.
type member interface {
	Close(ctx context.Context) error
	beatInto(h *protocol.HeartbeatData)
}

// asked is a member that serves requests of brokers.
type asked interface {
	// brokerAsks is offered each request of a broker. cmd is borrowed. taken says that the request
	// is this member's and no other is to be asked; res, which may be nil, is the answer. It runs on
	// the connection's reader and must not block: what takes longer goes to a goroutine of the
	// member and is answered with Pool.Respond.
	brokerAsks(addr string, cmd *remoting.Command) (res *invoke.Response, taken bool)
}

// New checks options and makes no connection; Ping does. endpoints are host:port of name servers,
// host names are fine. With WithResolver or WithEnv there may be none.
func New(endpoints []string, opts ...Option) (*Client, error) {
	cfg := defaultConfig()
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	endpoints = cfg.readEnv(endpoints)
	var list []string
	var err error
	if len(endpoints) > 0 || cfg.resolver == nil {
		list, err = endpointsOf(endpoints)
	}
	if err = errors.Join(err, cfg.check()); err != nil {
		return nil, fmt.Errorf("client: options: %w", err)
	}
	if cfg.instanceName == "" {
		cfg.instanceName = defaultInstanceName()
	}
	ip := localIP()
	host := ip.String()
	if ip.Is6() {
		host = "[" + host + "]"
	}
	c := &Client{
		cfg: cfg, id: host + "@" + cfg.instanceName,
		ids: record.NewUniqueIDs(ip), beat: make(chan struct{}, 1), members: map[member]struct{}{},
	}
	c.servers.set(list)
	c.cfg.hooks.panicked = c.hookPanicked
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.routes = newRouteTable(c)
	pool := invoke.Config{
		DialTimeout: cfg.dialTimeout, WriteTimeout: cfg.writeTimeout, IdleTimeout: cfg.idleTimeout,
		Dial: cfg.dialer(), Language: remoting.LanguageGo, MaxFrame: cfg.maxFrame(),
		OnRequest: c.answerBroker, OnClose: c.cfg.hooks.onDisconnect,
	}
	if len(cfg.hooks.connect) > 0 {
		pool.OnOpen = c.cfg.hooks.onConnect
	}
	if cfg.prepares() {
		pool.Prepare = c.prepare
	}
	c.pool = invoke.NewPool(pool)
	c.wg.Go(c.refreshRoutes)
	c.wg.Go(c.sendHeartbeats)
	if cfg.resolver != nil {
		c.wg.Go(c.followResolver)
	}
	return c, nil
}

// localIP returns the first address of this host that others may know it by: an IPv4 one, else an
// IPv6 one, else the loopback address.
func localIP() netip.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return hostIP(nil)
	}
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return hostIP(texts)
}

// hostIP chooses among the prefixes of interfaces.
func hostIP(prefixes []string) netip.Addr {
	best := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	for _, text := range prefixes {
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return p.Addr()
		}
		if best.IsLoopback() {
			best = p.Addr()
		}
	}
	return best
}

// Ping asks each name server until one answers. ErrNoNameServer when none does.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return err
	}
	_, err := c.askNameServer(ctx, &invoke.Request{Code: remoting.GetBrokerClusterInfo})
	return err
}

// Queues returns the queues of a topic that can be read, for Reader.Assign; there is one at least.
// ErrNoRoute when the topic does not exist, ErrNoQueue when none of its queues can be read.
func (c *Client) Queues(ctx context.Context, topic string) ([]Queue, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	rt, err := c.routes.fetch(ctx, topic)
	if err != nil {
		return nil, err
	}
	if len(rt.readable) == 0 {
		return nil, advised(&noQueueError{topic, "read"})
	}
	return append([]Queue(nil), rt.readable...), nil
}

// Close drains all producers and readers of c, unregisters, closes connections and waits for
// goroutines. It may be called again and concurrently; every call returns the same error: what
// could not be finished before the first one's ctx ended. A later call whose own ctx ends earlier
// returns the error of that.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		done := c.done
		c.mu.Unlock()
		if err := awaitClose(ctx, "client", done); err != nil {
			return err
		}
		return c.failure
	}
	c.closed = true
	c.done = make(chan struct{})
	c.mu.Unlock()
	members := c.currentMembers()
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = m.Close(ctx) })
	}
	wg.Wait()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.cancel()
	_ = c.pool.Close()
	c.wg.Wait()
	c.failure = errors.Join(errs...)
	close(c.done)
	return c.failure
}

// awaitClose waits as long as ctx allows for a close that another call has begun.
func awaitClose(ctx context.Context, what string, done <-chan struct{}) error {
	select {
	case <-done: // also when ctx has ended
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("client: closing %s: %w", what, context.Cause(ctx))
	}
}

// start runs do on a goroutine that Close waits for; false: the client is closed.
func (c *Client) start(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.wg.Go(do)
	return true
}

func (c *Client) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("client: %w", ErrClosed)
	}
	return nil
}

// join enters a member; leave takes it out.
func (c *Client) join(m member) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("client: %w", ErrClosed)
	}
	if err := c.admitLocked(m); err != nil {
		return err
	}
	c.members[m] = struct{}{}
	return nil
}

func (c *Client) leave(m member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, m)
}

// bounded gives a context without a deadline the call timeout.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.callTimeout)
}

// request asks addr and tells the hooks. An answer that the peer goes away is followed by one more
// try over a new connection, in the rest of the time.
func (c *Client) request(
	ctx context.Context, op, addr string, r *invoke.Request,
) (*invoke.Response, error) {
	from := time.Now()
	res, err := c.once(ctx, addr, r)
	if err == nil && res.Code == remoting.GoAway {
		res, err = c.once(ctx, addr, r)
	}
	c.tellHooks(op, addr, r, from, res, err)
	return res, err
}

// tellHooks tells the hooks how a request ended.
func (c *Client) tellHooks(
	op, addr string, r *invoke.Request, from time.Time, res *invoke.Response, err error,
) {
	if len(c.cfg.hooks.request) == 0 {
		return
	}
	if err == nil {
		err = brokerError(op, "", addr, res.Code, res.Remark)
	}
	c.cfg.hooks.onRequest(op, addr, bodySize(r), time.Since(from), err)
}

func bodySize(r *invoke.Request) int {
	n := len(r.Body)
	for _, b := range r.Bodies {
		n += len(b)
	}
	return n
}

// once asks addr; a connection whose peer goes away is not used again.
func (c *Client) once(
	ctx context.Context, addr string, r *invoke.Request,
) (*invoke.Response, error) {
	conn, err := c.pool.Conn(ctx, addr)
	if err != nil {
		return nil, err
	}
	return c.over(ctx, conn, r)
}

// over asks over one connection.
func (c *Client) over(
	ctx context.Context, conn *invoke.Conn, r *invoke.Request,
) (*invoke.Response, error) {
	from := time.Now()
	res, err := conn.Call(ctx, r)
	if err == nil && res.Code == remoting.GoAway || unanswered(conn, time.Since(from), err) {
		c.pool.Retire(conn)
	}
	return res, err
}

// silence is how long a call must have waited for its end to say something of the connection.
const silence = 100 * time.Millisecond

// unanswered reports whether a call ran out of time on a connection from which nothing came meanwhile,
// the first quarter aside, in which the answer to an earlier call may have been on its way. Such a
// connection may be half open, so the next call makes another (RocketMQ's
// NettyRemotingClient.invokeSync closes it).
func unanswered(conn *invoke.Conn, took time.Duration, err error) bool {
	return err != nil && took >= silence && errors.Is(err, context.DeadlineExceeded) &&
		conn.Silent() >= took-took/4
}

// call asks a broker and turns other answers than success into a *BrokerError.
func (c *Client) call(
	ctx context.Context, op, broker, addr string, r *invoke.Request,
) (*invoke.Response, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	res, err := c.request(ctx, op, addr, r)
	if err != nil {
		where := broker
		if where == "" { // a name server
			where = addr
		}
		return nil, fmt.Errorf("client: %s at %s: %w", op, where, err)
	}
	return res, brokerError(op, broker, addr, res.Code, res.Remark)
}

// answerBroker offers what a broker asks to the members, and refuses what none takes. Changed group
// membership (40) expects no answer.
func (c *Client) answerBroker(addr string, cmd *remoting.Command) *invoke.Response {
	for _, m := range c.currentMembers() {
		if a, ok := m.(asked); ok {
			if res, taken := a.brokerAsks(addr, cmd); taken {
				return res
			}
		}
	}
	code := cmd.Request()
	if code == remoting.NotifyConsumerIDsChanged {
		return nil
	}
	c.cfg.logger.Debug("broker asks what this client does not serve",
		"addr", addr, "code", code.String())
	return &invoke.Response{
		Code: remoting.RequestCodeNotSupported, Remark: "request code " + code.String() +
			" is not supported by this client",
	}
}

func (c *Client) currentMembers() []member {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := make([]member, 0, len(c.members))
	for m := range c.members {
		members = append(members, m)
	}
	return members
}

// jitter spreads a period by 10 % either way.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
