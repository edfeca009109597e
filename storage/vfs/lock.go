// SPDX-License-Identifier: Apache-2.0

//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockText is what RocketMQ writes into the lock file of a store.
const lockText = "lock"

// LockedError says that another process, ours or RocketMQ's, holds a store.
type LockedError struct {
	Path string // of the lock file
	PID  int    // of the holder; 0 when it cannot be told
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("vfs: lock %s: held by %s; stop it, or use another store directory",
		e.Path, holder)
}

// Lock is a held lock. It ends with Close or with the process.
type Lock struct{ f *os.File }

// LockFile takes the exclusive lock of a store on the first byte of path, creating the file. The
// holder is a *LockedError. A killed process holds on until its mappings are taken down: it is
// waited for up to 10 s, any other for a quarter of a second.
//
// It conflicts with the record lock that a JVM takes (fcntl, RocketMQ DefaultMessageStore). On
// Linux it is an open-file-description lock, which also conflicts within a process and stays when
// some other descriptor of the file is closed.
func LockFile(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("vfs: lock %s: %w", path, err)
	}
	if err := lockPatiently(f, path); err != nil {
		_ = f.Close()
		return nil, err
	}
	_, err = f.WriteAt([]byte(lockText), 0)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("vfs: lock %s: %w", path, err)
	}
	return &Lock{f: f}, nil
}

// Close gives the lock up; the file stays. The second call does nothing.
func (l *Lock) Close() error {
	f := l.f
	l.f = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// dyingWait bounds the wait for a holder that is coming to its end, killWait that for one that does
// not look so; dyingLook is the time between two looks.
const (
	dyingWait = 10 * time.Second
	killWait  = 250 * time.Millisecond
	dyingLook = 5 * time.Millisecond
)

// lockPatiently is lockRange that outlasts a dying holder.
func lockPatiently(f *os.File, path string) error {
	tick := time.NewTicker(dyingLook)
	defer tick.Stop()
	for start := time.Now(); ; <-tick.C {
		waited := time.Since(start)
		err := lockRange(f, path)
		var held *LockedError
		if !errors.As(err, &held) || waited > dyingWait {
			return err
		}
		// At first a kill may be on its way and not show yet, or a child that is about to run another
		// program has a copy of a descriptor that was just closed.
		if waited > killWait && (held.PID == 0 || !exiting(held.PID)) {
			return err
		}
	}
}

// lockRange locks byte [0, 1).
func lockRange(f *os.File, path string) error {
	arg := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 1}
	err := eintr(func() error { return unix.FcntlFlock(f.Fd(), lockCommand, &arg) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return &LockedError{Path: path, PID: holder(f, path)}
	}
	return fmt.Errorf("vfs: lock %s: %w", path, err)
}

// holder finds the process that keeps us out: the kernel names the owner of a record lock (a JVM);
// of an open-file-description lock only the abort file beside it can tell.
func holder(f *os.File, path string) int {
	arg := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &arg)
	if err == nil && arg.Type != unix.F_UNLCK && arg.Pid > 0 {
		return int(arg.Pid)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "abort"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
