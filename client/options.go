// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Option sets up a Client. Options are checked together by New.
type Option func(*config)

type config struct {
	logger       *slog.Logger
	tls          *tls.Config
	dial         func(ctx context.Context, network, addr string) (net.Conn, error)
	hooks        hooks
	credentials  CredentialsProvider
	namespace    string
	instanceName string
	resolver     Resolver
	env          bool
	zone         []field
	callTimeout  time.Duration
	dialTimeout  time.Duration
	writeTimeout time.Duration
	idleTimeout  time.Duration
	routeEvery   time.Duration
	beatEvery    time.Duration
	resolveEvery time.Duration

	maxMessageSize int     // bytes of a body
	shortBeats     bool    // heartbeats of version 2
	errs           []error // of options
}

func defaultConfig() config {
	return config{
		logger:      slog.New(slog.DiscardHandler),
		callTimeout: 3 * time.Second,
		dialTimeout: 3 * time.Second, writeTimeout: 5 * time.Second, idleTimeout: 120 * time.Second,
		routeEvery: 30 * time.Second, beatEvery: 30 * time.Second, resolveEvery: 120 * time.Second,
		maxMessageSize: defaultMessageSize,
	}
}

// WithLogger has the client log to l: constant messages with attributes, expected events at debug
// level. The default discards.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithHooks has values that implement any of the hook interfaces of this package told of what
// happens. It may be given several times.
func WithHooks(values ...any) Option {
	return func(c *config) {
		for _, v := range values {
			if err := c.hooks.add(v); err != nil {
				c.errs = append(c.errs, err)
			}
		}
	}
}

// WithTLS encrypts connections. The configuration is used as it is, so peers are verified unless it
// says otherwise; without a ServerName the host of the address is verified. The default is plain
// TCP.
func WithTLS(cfg *tls.Config) Option {
	return func(c *config) {
		if cfg == nil {
			c.errs = append(c.errs, errors.New("TLS configuration is nil: leave WithTLS out for plain TCP"))
			return
		}
		c.tls = cfg.Clone()
	}
}

// WithDialer replaces how connections are made. The address is as brokers and the user wrote it.
// With WithTLS the dialer makes the connection that TLS runs on.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithCredentials signs each request. The default signs none.
func WithCredentials(p CredentialsProvider) Option {
	return func(c *config) {
		if p == nil {
			c.errs = append(c.errs, errors.New("credentials provider is nil"))
		}
		c.credentials = p
	}
}

// WithNamespace keeps topics and groups apart from those of other namespaces: topic T is N%T at
// brokers and T for the user. The default is none.
func WithNamespace(name string) Option {
	return func(c *config) {
		if err := protocol.ValidTopic([]byte(name)); err != nil || strings.Contains(name, "%") {
			c.errs = append(c.errs, fmt.Errorf("namespace %q: letters, digits, |, _ and - are allowed",
				name))
		}
		c.namespace = name
	}
}

// WithInstanceName sets the second part of the client id that brokers show, ip@instance. Default
// is the process id and a random number. It may not hold an @.
func WithInstanceName(name string) Option { return func(c *config) { c.instanceName = name } }

// WithResolver has r say where the name servers are; New may then be given none. See HTTPResolver.
func WithResolver(r Resolver) Option {
	return func(c *config) {
		if r == nil {
			c.errs = append(c.errs, errors.New("resolver is nil"))
		}
		c.resolver = r
	}
}

// WithEnv reads what RocketMQ's clients read from the environment: NAMESRV_ADDR when New is given
// no endpoint and there is no resolver, ROCKETMQ_ZONE and ROCKETMQ_ZONE_MODE, which name servers
// filter routes by. Without this option nothing is read.
func WithEnv() Option { return func(c *config) { c.env = true } }

// WithCallTimeout bounds calls whose context has no deadline. The default is 3 s.
func WithCallTimeout(d time.Duration) Option { return func(c *config) { c.callTimeout = d } }

// WithConnTimeouts bounds making a connection and one write to it, and says after how much time
// without traffic it is closed. The defaults are 3 s, 5 s and 120 s.
func WithConnTimeouts(dial, write, idle time.Duration) Option {
	return func(c *config) { c.dialTimeout, c.writeTimeout, c.idleTimeout = dial, write, idle }
}

// WithHeartbeatV2 leaves the subscriptions out of heartbeats that a broker knows already, as RocketMQ's
// clients do with useHeartbeatV2: it saves traffic where many clients have many subscriptions. Brokers
// say whether they can; those that cannot get all of it each time. The default is no.
func WithHeartbeatV2() Option { return func(c *config) { c.shortBeats = true } }

// WithMaxMessageSize bounds the body of a message before compression, in bytes, up to 64 MiB. What
// arrives may have as much, so those who read large messages set it too; 15 MiB always arrive. Give
// it what brokers have as maxMessageSize, and sends the time they need (WithSendTimeout). The default
// is 4 MiB, RocketMQ's.
func WithMaxMessageSize(bytes int) Option {
	return func(c *config) { c.maxMessageSize = bytes }
}

// frameExtra is what a frame has beside one body at most: header and properties, or what a stored
// record adds to them.
const frameExtra = 1 << 20 // bytes

// maxFrame is the limit of a frame in both directions: RocketMQ's, or what the largest message needs.
func (c *config) maxFrame() int { return max(remoting.MaxFrame, c.maxMessageSize+frameExtra) }

func (c *config) check() error {
	errs := c.errs
	if n := c.maxMessageSize; n < 1 || n > greatestMessage {
		errs = append(errs, fmt.Errorf("max message size of %d bytes, 1 to %d are allowed", n,
			greatestMessage))
	}
	if c.logger == nil {
		errs = append(errs, errors.New("logger is nil"))
	}
	if strings.ContainsRune(c.instanceName, '@') {
		errs = append(errs, fmt.Errorf("instance name %q holds an @", c.instanceName))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"call timeout", c.callTimeout},
		{"dial timeout", c.dialTimeout},
		{"write timeout", c.writeTimeout},
		{"idle timeout", c.idleTimeout},
	} {
		if d.d <= 0 {
			errs = append(errs, fmt.Errorf("%s is %s, must be positive", d.name, d.d))
		}
	}
	return errors.Join(errs...)
}

// readEnv takes what WithEnv asks for and returns the endpoints to use.
func (c *config) readEnv(endpoints []string) []string {
	if !c.env {
		return endpoints
	}
	for _, f := range []field{
		{fieldZoneName, "ROCKETMQ_ZONE"}, {fieldZoneMode, "ROCKETMQ_ZONE_MODE"},
	} {
		if v := os.Getenv(f.value); v != "" {
			c.zone = append(c.zone, field{f.name, v})
		}
	}
	if len(endpoints) == 0 && c.resolver == nil {
		if v := os.Getenv("NAMESRV_ADDR"); v != "" {
			return []string{v}
		}
	}
	return endpoints
}

// dialer makes connections: TLS over what WithDialer gives, or plain TCP. nil: the pool's own.
func (c *config) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.tls == nil {
		return c.dial
	}
	dial := c.dial
	if dial == nil {
		var d net.Dialer
		dial = d.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		cfg := c.tls
		if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
			cfg = cfg.Clone()
			if cfg.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				cfg.ServerName = addr
			}
		}
		tc := tls.Client(nc, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("TLS handshake (check certificates, and that the peer takes TLS): %w",
				err)
		}
		return tc, nil
	}
}

// endpointsOf splits and checks name server addresses; one text may hold several, with semicolons
// between them as in RocketMQ's configuration, and http:// in front as cloud consoles show them.
func endpointsOf(texts []string) ([]string, error) {
	var list []string
	var errs []error
	for _, text := range texts {
		for part := range strings.SplitSeq(text, ";") {
			part = strings.TrimSpace(part)
			if strings.HasPrefix(part, "http://") {
				part = part[strings.LastIndexByte(part, '/')+1:]
			}
			if part == "" {
				continue
			}
			host, port, err := net.SplitHostPort(part)
			if err != nil || host == "" || port == "" {
				errs = append(errs, fmt.Errorf("name server %q is not host:port", part))
				continue
			}
			list = append(list, part)
		}
	}
	if len(list) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no name server given"))
	}
	return list, errors.Join(errs...)
}

func defaultInstanceName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%d#%s", os.Getpid(), hex.EncodeToString(b[:]))
}
