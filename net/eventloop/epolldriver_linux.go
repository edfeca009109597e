// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// epollBatch is how many sockets one wait reports at most.
	epollBatch = 256
	// rawWaitMS is how long a loop waits without telling Go's scheduler, in milliseconds. Above a
	// thousand wake-ups a second that is nearly every wait. Its processor serves nobody else
	// meanwhile, and the collector may have to wait that long for it, so it must stay short.
	rawWaitMS = 1
	// yieldEvery is how long the loop works without giving way. Once 10 ms have passed the Go
	// runtime's monitor interrupts it, and looks after it every 20 us from then on.
	yieldEvery = 5 * time.Millisecond
	// wakeSlot is the token of the descriptor that wakes a loop.
	wakeSlot = -1
)

// epollDriver is one loop around one epoll.
//
// Reading, writing and a short wait are raw system calls: on a non-blocking socket they return at
// once, and telling the scheduler about each costs more than they do, since it then looks for other
// work and wakes threads that find none. Only after nothing has come for rawWaitMS does the loop
// park like any goroutine, in Go's runtime poller, which watches the epoll as a whole.
type epollDriver struct {
	loop   *Loop
	epfd   int
	events []unix.EpollEvent
	buf    []byte // what the reads of one turn take
	used   int    // bytes of buf that the reads of this turn have filled
	vec    [2]unix.Iovec
	rawMS  int
	ended  bool     // confined to the loop
	gate   *os.File // the gate, see park
	gatefd int
	raw    syscall.RawConn       // of gate
	look   func(fd uintptr) bool // poll for raw.Read, made once
	found  int                   // what look has found

	yielded time.Time // when the scheduler last had its turn

	// asleep is set while the loop waits or is about to. A poster first adds its task and then
	// looks here, the loop first sets it and then looks for tasks, so that one sees the other.
	asleep atomic.Bool

	mu     sync.Mutex // guards what follows: wakefd must not be written to after it was closed
	wakefd int        // eventfd, or -1
}

func newEpollDriver(l *Loop) (*epollDriver, error) {
	d := &epollDriver{
		loop: l, wakefd: -1, rawMS: rawWait(l),
		events: make([]unix.EpollEvent, epollBatch),
		buf:    make([]byte, l.srv.cfg.ReadBuffer),
	}
	var err error
	if d.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err = d.openGate(); err != nil {
		d.release()
		return nil, err
	}
	if d.wakefd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		d.release()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	// Edge-triggered, so that the counter need never be read back to zero.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: wakeSlot}
	if err = unix.EpollCtl(d.epfd, unix.EPOLL_CTL_ADD, d.wakefd, &ev); err != nil {
		d.release()
		return nil, fmt.Errorf("epoll_ctl: %w", err)
	}
	return d, nil
}

// release closes the descriptors, after run has returned.
func (d *epollDriver) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wakefd >= 0 {
		_ = unix.Close(d.wakefd)
		d.wakefd = -1
	}
	if d.gate != nil {
		_ = d.gate.Close()
	}
	if d.epfd >= 0 {
		_ = unix.Close(d.epfd)
		d.epfd = -1
	}
}

// rawWait returns how long the loops may keep their processors: not at all if that would leave none
// for the rest of the program. The number of processors can change while it runs.
func rawWait(l *Loop) int {
	if l.srv.cfg.Loops >= runtime.GOMAXPROCS(0) {
		return 0
	}
	return rawWaitMS
}

func (d *epollDriver) run() {
	for !d.ended {
		n := d.wait()
		for i := range d.events[:n] {
			ev := &d.events[i]
			if ev.Fd == wakeSlot {
				continue
			}
			if c := d.loop.conn(uint32(ev.Fd), uint32(ev.Pad)); c != nil {
				d.ready(c, ev.Events)
			}
			if d.used >= answerEvery || d.used > len(d.buf)/2 {
				d.answer()
			}
		}
		d.answer()
		if d.loop.waiting() {
			d.loop.round()
		}
	}
}

// wait returns the number of events.
//
// Cost: one raw system call when there is something to do within rawWaitMS.
func (d *epollDriver) wait() int {
	if now := time.Now(); now.Sub(d.yielded) > yieldEvery {
		runtime.Gosched()
		d.yielded = now
	}
	d.asleep.Store(true)
	var n int
	switch {
	case d.loop.waiting():
		n = d.poll(0)
	case d.rawMS == 0:
		n = d.park()
	default:
		if n = d.poll(d.rawMS); n == 0 {
			n = d.park()
		}
	}
	d.asleep.Store(false)
	return n
}

// openGate makes the epoll through which Go's runtime poller watches the loop's own.
func (d *epollDriver) openGate() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("set non-blocking: %w", err)
	}
	d.gate, d.gatefd = os.NewFile(uintptr(fd), "gate"), fd
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, d.epfd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	d.look = func(uintptr) bool {
		d.found = d.poll(0)
		return d.found > 0
	}
	d.raw, err = d.gate.SyscallConn()
	return err
}

// park waits in Go's runtime poller, which gives the processor to others at once; after a blocking
// system call it would do so only when its monitor thread has noticed. The runtime poller does not
// hold the loop's epoll itself, or each packet would wake one of its threads too while the loop is
// awake anyway, but the gate, which holds that epoll and is opened for one report at a time.
//
// Cost: four raw system calls and a change of goroutine.
func (d *epollDriver) park() int {
	d.found = 0
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT}
	if unix.EpollCtl(d.gatefd, unix.EPOLL_CTL_MOD, d.epfd, &ev) == nil {
		_ = d.raw.Read(d.look)
	}
	// The report is taken out of the gate, so that the next one is a new edge.
	var last [1]unix.EpollEvent
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.gatefd),
		uintptr(unsafe.Pointer(&last[0])), 1, 0, 0, 0)
	d.yielded = time.Now()
	d.rawMS = rawWait(d.loop)
	return d.found
}

func (d *epollDriver) poll(ms int) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.epfd),
		uintptr(unsafe.Pointer(&d.events[0])), uintptr(len(d.events)), uintptr(ms), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// ready handles the events of one connection.
//
// Cost: one read; the answer is written at the end of the turn.
func (d *epollDriver) ready(c *Conn, events uint32) {
	l := d.loop
	if events&unix.EPOLLOUT != 0 {
		c.armed = false
		l.flush(c)
		d.watch(c)
	}
	switch {
	case c.Closed():
	case events&unix.EPOLLIN != 0 && !c.paused:
		d.read(c)
	case events&(unix.EPOLLERR|unix.EPOLLHUP) != 0:
		c.ended(socketError(c))
	}
}

// read takes what a connection has. The rest of a long frame goes to where the frame is gathered, and
// only what follows it into the buffer of the turn.
func (d *epollDriver) read(c *Conn) {
	room := d.buf[d.used:]
	own := d.loop.rest(c)
	var n uintptr
	var errno unix.Errno
	if own == nil {
		n, _, errno = unix.RawSyscall(unix.SYS_READ, uintptr(c.fd),
			uintptr(unsafe.Pointer(&room[0])), uintptr(len(room)))
	} else {
		d.vec[0].Base, d.vec[1].Base = &own[0], &room[0]
		d.vec[0].SetLen(len(own))
		d.vec[1].SetLen(len(room))
		n, _, errno = unix.RawSyscall(unix.SYS_READV, uintptr(c.fd),
			uintptr(unsafe.Pointer(&d.vec[0])), uintptr(len(d.vec)))
	}
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case errno != 0:
		c.ended(fmt.Errorf("eventloop: read from %v: %w", c.remote, errno))
	case n == 0:
		c.ended(io.EOF)
	default:
		direct := min(int(n), len(own))
		c.acc = c.acc[:len(c.acc)+direct]
		d.loop.bytesIn.Add(uint64(direct))
		d.used += int(n) - direct
		d.loop.input(c, room[:int(n)-direct])
	}
}

// answerEvery is how many bytes are read before they are handled and answered.
const answerEvery = 128 << 10

// answer ends a turn: first all that is ready is read, then all of it is handled, then all of it is
// answered. Code and data of each step stay in the processor's cache, one append takes the messages
// of many connections, and a peer that waits on many is woken by the first answer and finds the
// others when it looks, in place of being woken for each.
func (d *epollDriver) answer() {
	d.loop.turnDone()
	d.used = 0
	d.loop.finish()
}

// watch makes the epoll look for what the connection waits for.
func (d *epollDriver) watch(c *Conn) {
	var want uint32
	if !c.paused {
		want = unix.EPOLLIN
	}
	if c.armed {
		want |= unix.EPOLLOUT
	}
	if want == c.interest || c.closed {
		return
	}
	c.interest = want
	ev := unix.EpollEvent{Events: want, Fd: int32(c.slot), Pad: int32(c.gen)}
	if err := unix.EpollCtl(d.epfd, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
		c.fail(fmt.Errorf("eventloop: epoll_ctl for %v: %w", c.remote, err))
	}
}

// await implements waiter.
func (d *epollDriver) await(c *Conn) error {
	d.watch(c)
	return nil
}

func (d *epollDriver) flush(c *Conn) error { return d.loop.flushFD(c, d) }

func (d *epollDriver) shut(c *Conn) {
	// Closing takes the descriptor out of the epoll; there is no copy of it.
	_ = unix.Close(c.fd)
	c.fd = -1
	c.out.release(d.loop)
}

func (d *epollDriver) pause(c *Conn, _ bool) { d.watch(c) }

// wake implements driver. A loop that is at work looks for tasks before it waits again.
func (d *epollDriver) wake() {
	if !d.asleep.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wakefd >= 0 {
		one := uint64(1)
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(d.wakefd),
			uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	}
}

// socketError returns why a connection broke, for which the kernel has to be asked.
func socketError(c *Conn) error {
	errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || errno == 0 {
		return io.EOF
	}
	return fmt.Errorf("eventloop: connection to %v: %w", c.remote, unix.Errno(errno))
}
