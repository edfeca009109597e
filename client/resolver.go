// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Resolver says where the name servers are. It is asked before the first request and every two
// minutes from then on; an error or an empty list leaves the servers known so far in use.
type Resolver interface {
	Resolve(ctx context.Context) ([]string, error)
}

// ResolverFunc is a Resolver that is a function.
type ResolverFunc func(ctx context.Context) ([]string, error)

// Resolve calls f.
func (f ResolverFunc) Resolve(ctx context.Context) ([]string, error) { return f(ctx) }

// addressServerMax bounds the answer of an address server, in bytes.
const addressServerMax = 64 << 10

// httpResolver asks an address server, as RocketMQ's DefaultTopAddressing does.
type httpResolver struct {
	url    string
	client *http.Client
}

// HTTPResolver is a Resolver that asks an address server with GET: the first line of its answer
// holds host:port of each name server, with semicolons between them. addressServer is the whole
// URL, for RocketMQ's own servers http://host:8080/rocketmq/nsaddr. client may be nil: each
// question then has a connection of its own.
func HTTPResolver(addressServer string, client *http.Client) (Resolver, error) {
	u, err := url.Parse(addressServer)
	if err != nil {
		return nil, fmt.Errorf("client: address server: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("client: address server %q is not an http or https URL", addressServer)
	}
	if client == nil {
		client = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		}}
	}
	return &httpResolver{url: addressServer, client: client}, nil
}

// Resolve implements Resolver.
func (r *httpResolver) Resolve(ctx context.Context) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, fmt.Errorf("client: address server: %w", err)
	}
	res, err := r.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: address server: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("client: address server %s answered %s", r.url, res.Status)
	}
	line, err := bufio.NewReader(io.LimitReader(res.Body, addressServerMax)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("client: address server %s: %w", r.url, err)
	}
	return endpointsOf([]string{strings.TrimSpace(line)})
}

// resolve asks the resolver once and takes its list.
func (c *Client) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.callTimeout)
	defer cancel()
	list, err := c.askResolver(ctx)
	if err == nil {
		list, err = endpointsOf(list)
	}
	if err != nil {
		return err
	}
	if c.servers.set(list) {
		c.cfg.logger.Info("name servers changed", "servers", strings.Join(list, ";"))
	}
	return nil
}

// askResolver asks the user's resolver; a panic is an error.
func (c *Client) askResolver(ctx context.Context) (list []string, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.logger.Error("panic in a resolver", "err", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("client: the resolver panicked: %v", v)
		}
	}()
	return c.cfg.resolver.Resolve(ctx)
}

// followResolver asks again every two minutes, and each second while there is no server.
func (c *Client) followResolver() {
	for {
		every := jitter(c.cfg.resolveEvery)
		if len(c.servers.all()) == 0 {
			every = time.Second
		}
		t := time.NewTimer(every)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return
		}
		if err := c.resolve(c.ctx); err != nil && c.ctx.Err() == nil {
			c.cfg.logger.Warn("resolving name servers", "err", err)
		}
	}
}

// sameServers compares two lists without regard to order.
func sameServers(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
