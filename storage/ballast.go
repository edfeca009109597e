// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/storage/vfs"
)

const (
	// ballastFile is ours alone; RocketMQ does not look at it.
	ballastFile = "ballast"
	// ballastShare and ballastMax are the default size: one part in so many of the disk, and at the most.
	ballastShare = 200
	ballastMax   = 1 << 30
	// ballastAgain is how long it stays away at least once it was given up.
	ballastAgain = time.Minute
)

// ballast is a file whose blocks are of no use but to be given up when somebody else fills the disk:
// the log, queues and tables can then be written on for a while, during which an operator can act. It
// is given up when a write finds no space, or when less than its own size is free; and it is made
// again a minute later at the earliest, once the disk would be used up to DiskFreeRatio at the most
// with it, and at least as much again would be free.
type ballast struct {
	store *Store
	size  int64 // bytes; 0: there is none

	// Guards what follows. Held across its I/O.
	mu    sync.Mutex
	there bool
	never bool      // it cannot be had on this file system
	gone  time.Time // when it was given up
}

// newBallast finds out the size. An error of the disk means no ballast.
func newBallast(s *Store) *ballast {
	b := &ballast{store: s, size: s.cfg.BallastBytes}
	if b.size < 0 {
		b.size = 0
		if u, err := s.cfg.fs().Usage(s.cfg.RootDir); err == nil {
			b.size = min(u.Total/ballastShare, ballastMax)
		}
	}
	path := s.path(ballastFile)
	switch info, err := s.cfg.fs().Stat(path); {
	case err != nil:
	case info.Size() == b.size && b.size > 0:
		b.there = true
	default: // of another size, or half made
		_ = s.cfg.fs().Remove(path)
	}
	return b
}

// look gives the file up or makes it again, as the disk demands.
func (b *ballast) look() {
	if b.size == 0 {
		return
	}
	u, err := b.store.cfg.fs().Usage(b.store.cfg.RootDir)
	if err != nil || u.Total <= 0 {
		return
	}
	b.mu.Lock()
	there, gone, never := b.there, b.gone, b.never
	b.mu.Unlock()
	with := u
	with.Free, with.Avail = u.Free-b.size, u.Avail-b.size
	switch {
	case there && u.Avail < b.size:
		b.giveUp(errors.New("somebody else fills the disk"))
	case !there && !never && b.store.cfg.Now().Sub(gone) > ballastAgain && with.Avail > b.size &&
		with.UsedRatio()*100 <= float64(b.store.cfg.DiskFreeRatio):
		b.restore()
	}
}

// giveUp removes the file and reports whether that made room. The reason is told.
func (b *ballast) giveUp(why error) bool {
	if b.size == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.there {
		return false
	}
	b.there, b.gone = false, b.store.cfg.Now()
	path := b.store.path(ballastFile)
	if err := b.store.cfg.fs().Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.store.cfg.Notice("ballast file cannot be given up", "path", path, "err", err)
		return false
	}
	b.store.cfg.Notice("disk is full: the ballast file was given up, make room before the rest is used up",
		"path", path, "bytes", b.size, "err", why)
	return true
}

// restore makes the file. Where space cannot be allocated without writing it, it is left out.
func (b *ballast) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	fsys, path := b.store.cfg.fs(), b.store.path(ballastFile)
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		err = errors.Join(f.Allocate(b.size), f.Close())
	}
	if err == nil {
		if b.there = true; !b.gone.IsZero() {
			b.store.cfg.Notice("disk has space again, the ballast file is back", "path", path, "bytes", b.size)
		}
		return
	}
	b.gone = b.store.cfg.Now()
	_ = fsys.Remove(path)
	if errors.Is(err, vfs.ErrNotSupported) {
		b.never = true
		return
	}
	b.store.cfg.Notice("ballast file cannot be made", "path", path, "bytes", b.size, "err", err)
}

// held returns the bytes that can be given up.
func (b *ballast) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.there {
		return b.size
	}
	return 0
}
