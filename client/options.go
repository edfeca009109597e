// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// Option sets up a Client. Options are checked together by New.
type Option func(*config)

type config struct {
	logger       *slog.Logger
	dial         func(ctx context.Context, network, addr string) (net.Conn, error)
	instanceName string
	callTimeout  time.Duration
	dialTimeout  time.Duration
	writeTimeout time.Duration
	idleTimeout  time.Duration
	routeEvery   time.Duration
	beatEvery    time.Duration
}

func defaultConfig() config {
	return config{
		logger:      slog.New(slog.DiscardHandler),
		callTimeout: 3 * time.Second,
		dialTimeout: 3 * time.Second, writeTimeout: 5 * time.Second, idleTimeout: 120 * time.Second,
		routeEvery: 30 * time.Second, beatEvery: 30 * time.Second,
	}
}

// WithLogger has the client log to l: constant messages with attributes, expected events at debug
// level. The default discards.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithDialer replaces how connections are made. The address is as brokers and the user wrote it.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithInstanceName sets the second part of the client id that brokers show, ip@instance. Default
// is the process id and a random number. It may not hold an @.
func WithInstanceName(name string) Option { return func(c *config) { c.instanceName = name } }

// WithCallTimeout bounds calls whose context has no deadline. The default is 3 s.
func WithCallTimeout(d time.Duration) Option { return func(c *config) { c.callTimeout = d } }

// WithConnTimeouts bounds making a connection and one write to it, and says after how much time
// without traffic it is closed. The defaults are 3 s, 5 s and 120 s.
func WithConnTimeouts(dial, write, idle time.Duration) Option {
	return func(c *config) { c.dialTimeout, c.writeTimeout, c.idleTimeout = dial, write, idle }
}

func (c *config) check() error {
	var errs []error
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

// endpointsOf splits and checks name server addresses; one text may hold several, with semicolons
// between them as in RocketMQ's configuration.
func endpointsOf(texts []string) ([]string, error) {
	var list []string
	var errs []error
	for _, text := range texts {
		for part := range strings.SplitSeq(text, ";") {
			part = strings.TrimSpace(part)
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
