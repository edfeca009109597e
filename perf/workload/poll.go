// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// poller waits for many sockets at once on behalf of one goroutine, which alone calls it and the
// sockets it made.
type poller interface {
	// adopt takes a fresh connection over; tag comes back with its events. On an error the
	// connection is closed.
	adopt(conn *net.TCPConn, tag int32) (socket, error)
	// wait blocks for at most d, not at all when d is 0 or less, and returns what is ready. The slice
	// is valid until the next call. Nothing ready is no error.
	wait(d time.Duration) ([]event, error)
	close()
}

// event says that a socket can be read, which is also how it tells of its end, or can be written to
// again.
type event struct {
	tag      int32
	readable bool
	writable bool
}

// socket is one connection. Neither read nor write waits for the peer: errAgain says that there is
// nothing to read, or no room.
type socket interface {
	read(b []byte) (int, error)
	write(b []byte) (int, error)
	// watchWrites asks for an event when a socket that had no room has some again.
	watchWrites(on bool) error
	close()
}

var errAgain = errors.New("would block")

// Drivers of Produce: how a goroutine waits for its sockets.
const (
	driverEpoll = "epoll" // Linux
	driverNet   = "net"   // a reading goroutine for each connection; anywhere
)

func newPoller(driver string) (poller, error) {
	if driver == driverNet || driver == "" && !haveEpoll {
		return newNetPoller(), nil
	}
	return newEpoll()
}

func dialBroker(ctx context.Context, addr string) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: 3 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("workload: connecting to broker %s: %w", addr, err)
	}
	return conn.(*net.TCPConn), nil // what dialling "tcp" gives
}
