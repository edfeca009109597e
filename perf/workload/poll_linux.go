// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const haveEpoll = true

const (
	// sysEpollPwait2 has one number on every architecture.
	sysEpollPwait2 = 441
	epollEvents    = 512
	// waitLeast keeps a load of a very high rate from one wake-up for each message.
	waitLeast = 20 * time.Microsecond
)

// epoll is the poller of Linux: level-triggered, one system call for all that is ready, one read
// and one write for each ready socket. Reads and writes never wait, so they skip the scheduler's
// bookkeeping; waiting itself does not.
type epoll struct {
	fd     int
	raw    []syscall.EpollEvent
	events []event
	coarse bool // the kernel has no epoll_pwait2: timeouts are whole milliseconds
}

func newEpoll() (poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("workload: epoll: %w", err)
	}
	return &epoll{fd: fd, raw: make([]syscall.EpollEvent, epollEvents)}, nil
}

func (p *epoll) close() { _ = syscall.Close(p.fd) }

func (p *epoll) wait(d time.Duration) ([]event, error) {
	n, err := p.waitRaw(d)
	if err != nil {
		return nil, err
	}
	p.events = p.events[:0]
	for i := range n {
		e := &p.raw[i]
		p.events = append(p.events, event{
			tag:      e.Fd,
			readable: e.Events&^syscall.EPOLLOUT != 0, // data, the end, or an error
			writable: e.Events&syscall.EPOLLOUT != 0,
		})
	}
	return p.events, nil
}

func (p *epoll) waitRaw(d time.Duration) (int, error) {
	if d <= 0 {
		return p.waitMillis(0)
	}
	if p.coarse {
		return p.waitMillis(int((d + time.Millisecond - 1) / time.Millisecond))
	}
	ts := syscall.NsecToTimespec(int64(max(d, waitLeast)))
	// The kernel writes at most len(raw) events to raw, which lives as long as p; ts is read during
	// the call.
	n, _, errno := syscall.Syscall6(sysEpollPwait2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.raw[0])),
		uintptr(len(p.raw)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case syscall.EINTR:
		return 0, nil
	case syscall.ENOSYS, syscall.EPERM: // an old kernel, or a sandbox that does not know the call
		p.coarse = true
		return p.waitRaw(d)
	}
	return 0, fmt.Errorf("workload: epoll: %w", errno)
}

func (p *epoll) waitMillis(ms int) (int, error) {
	n, err := syscall.EpollWait(p.fd, p.raw, ms)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return 0, fmt.Errorf("workload: epoll: %w", err)
	}
	return max(n, 0), nil
}

// epollSocket owns a descriptor that the runtime's own poller does not know.
type epollSocket struct {
	fd, tag  int32
	poller   *epoll
	watching bool
}

func (p *epoll) adopt(conn *net.TCPConn, tag int32) (socket, error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var failed error
	err = raw.Control(func(own uintptr) {
		n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, own, syscall.F_DUPFD_CLOEXEC, 0)
		if errno != 0 {
			failed = os.NewSyscallError("fcntl", errno)
			return
		}
		fd = int(n)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	s := &epollSocket{fd: int32(fd), tag: tag, poller: p}
	if err := s.control(syscall.EPOLL_CTL_ADD, syscall.EPOLLIN); err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *epollSocket) control(op int, events uint32) error {
	e := syscall.EpollEvent{Events: events, Fd: s.tag}
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(s.poller.fd, op, int(s.fd), &e))
}

func (s *epollSocket) watchWrites(on bool) error {
	if on == s.watching {
		return nil
	}
	s.watching = on
	events := uint32(syscall.EPOLLIN)
	if on {
		events |= syscall.EPOLLOUT
	}
	return s.control(syscall.EPOLL_CTL_MOD, events)
}

func (s *epollSocket) close() { _ = syscall.Close(int(s.fd)) } // leaves the poller by itself

// read takes what the socket has. b is not empty and does not move during the call, which does not
// wait: the descriptor is non-blocking.
func (s *epollSocket) read(b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(s.fd),
			uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			if n == 0 {
				return 0, io.EOF
			}
			return int(n), nil
		case syscall.EAGAIN:
			return 0, errAgain
		case syscall.EINTR:
			continue
		}
		return 0, os.NewSyscallError("recv", errno)
	}
}

// write gives the socket what it has room for. The same holds for b as with read.
func (s *epollSocket) write(b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(s.fd),
			uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
			syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EAGAIN:
			return 0, errAgain
		case syscall.EINTR:
			continue
		}
		return 0, os.NewSyscallError("send", errno)
	}
}

// preciseTimers lets the kernel wake the calling goroutine within a microsecond of its time instead
// of 50, the default slack of a thread's timers, until restore is called. The delay would be part
// of every latency that counts from a due moment. The goroutine keeps its thread meanwhile.
func preciseTimers() (restore func()) {
	const prSetTimerSlack, slackNS = 29, 1000
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, slackNS, 0)
	return func() {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 0, 0) // the default again
		runtime.UnlockOSThread()
	}
}
