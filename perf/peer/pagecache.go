// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// freeMost is how much memory may be free when a round begins, in bytes. What one round writes is
// more, so that nearly all of it goes into pages that were in use a moment before.
const freeMost = 384 << 20

// pageCache keeps the kernel's page cache full with pages of a file of holes, so that whatever is
// written later takes over pages in use, on all sides alike. Memory that has been free for seconds may
// belong to a hypervisor again, and touching it stalls the machine for many milliseconds at a time.
type pageCache struct {
	file  *os.File
	total int64
	buf   []byte
}

// newPageCache makes the file in dir, as large as memory. It stays until the end: removing it would
// empty the cache again.
func newPageCache(dir string) (*pageCache, error) {
	total, err := memoryBytes("MemTotal")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "holes"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(total); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &pageCache{file: f, total: total, buf: make([]byte, 1<<20)}, nil
}

// fill reads the whole file.
func (c *pageCache) fill(ctx context.Context) error {
	say("filling the page cache: %d MB", c.total>>20)
	return c.read(ctx, func() (bool, error) { return false, nil })
}

// topUp reads on from where the last reading ended, until hardly any memory is free: between rounds
// an idle kernel gives pages back.
func (c *pageCache) topUp(ctx context.Context) error {
	return c.read(ctx, func() (bool, error) {
		free, err := memoryBytes("MemFree")
		return free <= freeMost, err
	})
}

// read reads the file once around at most, asking before each 32 MB whether it is enough.
func (c *pageCache) read(ctx context.Context, enough func() (bool, error)) error {
	for left := c.total; left > 0 && ctx.Err() == nil; left -= int64(len(c.buf)) {
		if left/int64(len(c.buf))%32 == 0 {
			if ok, err := enough(); ok || err != nil {
				return err
			}
		}
		_, err := io.ReadFull(c.file, c.buf)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			_, err = c.file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *pageCache) close() {
	if c != nil {
		_ = c.file.Close()
	}
}
