// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
)

// dialNext is how long a name server has to take a connection before the next one is tried beside
// it.
const dialNext = 200 * time.Millisecond

// nameServers is the list in the order of trying: the one that answered last in front, those that
// failed at the end.
type nameServers struct {
	mu   sync.Mutex
	list []string
}

// set replaces the list, keeping the order of servers that stay; false: nothing changed.
func (s *nameServers) set(list []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sameServers(s.list, list) {
		return false
	}
	var kept, added []string
	for _, a := range s.list {
		if slices.Contains(list, a) {
			kept = append(kept, a)
		}
	}
	for _, a := range list {
		if !slices.Contains(kept, a) && !slices.Contains(added, a) {
			added = append(added, a)
		}
	}
	rand.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] })
	s.list = append(kept, added...)
	return true
}

func (s *nameServers) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// worked moves a server to the front, failed moves it to the end.
func (s *nameServers) worked(addr string) { s.move(addr, true) }
func (s *nameServers) failed(addr string) { s.move(addr, false) }

func (s *nameServers) move(addr string, front bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.list, addr)
	if i < 0 || front && i == 0 {
		return
	}
	s.list = slices.Delete(s.list, i, i+1)
	if front {
		s.list = slices.Insert(s.list, 0, addr)
	} else {
		s.list = append(s.list, addr)
	}
}

// askNameServer asks the first name server that can be reached, beginning with the one that
// answered last. One that does not take a connection soon has the next one dialled beside it; one
// that fails goes to the end of the list.
func (c *Client) askNameServer(ctx context.Context, r *invoke.Request) (*invoke.Response, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	servers := c.servers.all()
	if len(servers) == 0 && c.cfg.resolver != nil {
		if err := c.resolve(ctx); err != nil {
			return nil, fmt.Errorf("client: %w: resolving them: %w", ErrNoNameServer, err)
		}
		servers = c.servers.all()
	}
	errs := []error{ErrNoNameServer}
	for len(servers) > 0 && ctx.Err() == nil {
		addr, failed := c.reach(ctx, servers)
		errs = append(errs, failed...)
		if addr == "" {
			break
		}
		// One that takes connections and does not answer must not use up the time of the others.
		share := time.Until(deadlineOf(ctx)) / time.Duration(len(servers))
		one, done := context.WithTimeout(ctx, share)
		res, err := c.request(one, r.Code.String(), addr, r)
		done()
		if err == nil {
			c.servers.worked(addr)
			return res, nil
		}
		errs = append(errs, err)
		if ctx.Err() == nil {
			c.servers.failed(addr)
		}
		servers = slices.DeleteFunc(servers, func(s string) bool { return s == addr })
	}
	if cause := context.Cause(ctx); cause != nil {
		errs = append(errs, cause)
	}
	return nil, fmt.Errorf("client: asking name servers: %w", errors.Join(errs...))
}

// deadlineOf returns the deadline of a context that went through bounded.
func deadlineOf(ctx context.Context) time.Time {
	d, _ := ctx.Deadline()
	return d
}

// reach returns the first of the servers that has or takes a connection; "" and why when none does.
func (c *Client) reach(ctx context.Context, servers []string) (string, []error) {
	if len(servers) == 1 {
		return servers[0], nil
	}
	type dialled struct {
		addr string
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dialled, len(servers))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // ends the waits of the slower ones, not their dials
	var errs []error
	next, running := 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next < len(servers) || running > 0 {
		select {
		case <-timer.C:
			if next == len(servers) {
				continue
			}
			addr := servers[next]
			next++
			running++
			wg.Go(func() {
				_, err := c.pool.Conn(ctx, addr)
				results <- dialled{addr, err}
			})
			timer.Reset(dialNext)
		case d := <-results:
			running--
			if d.err == nil {
				return d.addr, errs
			}
			errs = append(errs, d.err)
			if ctx.Err() != nil {
				return "", errs
			}
			c.servers.failed(d.addr)
			timer.Reset(0)
		}
	}
	return "", errs
}
