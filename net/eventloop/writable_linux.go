// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writableBatch is how many sockets one wait reports at most.
const writableBatch = 128

// writable tells a loop which of its sockets take bytes again. It is an epoll of its own, because
// gnet's reports writability to nobody but gnet; Go's runtime poller waits for it, so that it costs
// no thread. A socket is armed for one report at a time, and is known by slot and generation, never
// by its descriptor, which may mean another connection by the time the report is read.
type writable struct {
	loop *Loop
	epfd int
	file *os.File // owns epfd
	done chan struct{}
}

func newWritable(l *Loop) (*writable, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(epfd, true); err != nil {
		_ = unix.Close(epfd)
		return nil, fmt.Errorf("set non-blocking: %w", err)
	}
	w := &writable{
		loop: l, epfd: epfd, file: os.NewFile(uintptr(epfd), "epoll"), done: make(chan struct{}),
	}
	return w, nil
}

// await implements waiter.
func (w *writable) await(c *Conn) error {
	op := unix.EPOLL_CTL_MOD
	if !c.watched {
		op, c.watched = unix.EPOLL_CTL_ADD, true
	}
	ev := unix.EpollEvent{
		Events: unix.EPOLLOUT | unix.EPOLLONESHOT, Fd: int32(c.slot), Pad: int32(c.gen),
	}
	if err := unix.EpollCtl(w.epfd, op, c.fd, &ev); err != nil {
		return fmt.Errorf("eventloop: epoll_ctl for %v: %w", c.remote, err)
	}
	return nil
}

// forget ends the watch, before the descriptor is closed.
func (w *writable) forget(c *Conn) {
	if c.watched {
		c.watched = false
		_ = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_DEL, c.fd, nil)
	}
}

// run reports writable sockets to the loop, one post for each wait, until close.
func (w *writable) run() {
	defer close(w.done)
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, writableBatch)
	posts := make([]Posted, 0, writableBatch)
	for {
		n := 0
		var waitErr error
		err := raw.Read(func(fd uintptr) bool {
			n, waitErr = unix.EpollWait(int(fd), events, 0)
			if waitErr == unix.EINTR {
				n, waitErr = 0, nil
			}
			return n > 0 || waitErr != nil
		})
		if err != nil || waitErr != nil {
			return
		}
		posts = posts[:0]
		for i := range events[:n] {
			ref := Ref{loop: w.loop, slot: uint32(events[i].Fd), gen: uint32(events[i].Pad)}
			posts = append(posts, Posted{To: ref, Task: flushWritable})
		}
		w.loop.Post(posts)
	}
}

// close ends run and waits for it.
func (w *writable) close() {
	_ = w.file.Close()
	<-w.done
}
