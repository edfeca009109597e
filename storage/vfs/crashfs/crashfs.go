// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package crashfs is a file system for tests that can lose power.
//
// It passes everything on to the real files of one directory and remembers what was synced. Crash
// writes an image of what a power loss could leave into another directory: synced pages are there,
// every other page is old or new at random, in one of ten each sector is, and of the renames, creations and removals that no
// SyncDir covers any number of the first ones happened. The live files go on undisturbed, so a test
// takes as many images as it likes, also from within Before.
//
// It holds a copy of every file in memory; use small files.
package crashfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// FS is such a file system. Its methods may be called from any goroutine.
type FS struct {
	// Before, when set, is called ahead of each call that changes or syncs something, with its name
	// (open, allocate, write, zero, truncate, sync, msync, rename, remove, syncdir). An error is
	// returned instead of making the call. Set it before use. It runs outside all locks.
	Before func(op, path string) error

	// Boot names the life of the page cache, see vfs.FS.Life: New makes one up. Who takes an image of
	// a process's death, which loses no page, gives the same name to the file system on that image.
	Boot string

	os   vfs.FS
	root string

	// Guards what follows and the nodes.
	mu   sync.Mutex
	dirs map[string]*dir
}

const (
	// sectorSize is what a disk writes as a whole, in bytes.
	sectorSize = 512
	// torn is the share of pages of which each sector is kept or lost for itself.
	torn = 0.1
)

// dir is the entries of one directory, by full path.
type dir struct {
	durable map[string]*node
	live    map[string]*node
	pending []func(entries map[string]*node) // since the last SyncDir
	removed bool
}

// node is one file: what the disk has of it.
type node struct{ durable []byte }

// New returns a file system for the tree at root, which exists; what is there counts as synced.
func New(root string) (*FS, error) {
	c := &FS{os: vfs.OS(), root: filepath.Clean(root), dirs: map[string]*dir{}}
	c.Boot = fmt.Sprintf("crashfs %d", rand.Uint64())
	err := filepath.WalkDir(c.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		d := c.dir(path)
		d.durable[path] = &node{durable: b}
		d.live[path] = d.durable[path]
		return err
	})
	return c, err
}

// dir returns the directory that path is an entry of.
func (c *FS) dir(path string) *dir {
	name := filepath.Dir(path)
	d := c.dirs[name]
	if d == nil {
		d = &dir{durable: map[string]*node{}, live: map[string]*node{}}
		c.dirs[name] = d
	}
	return d
}

// change applies a directory operation now and keeps it pending until SyncDir.
func (d *dir) change(op func(entries map[string]*node)) {
	op(d.live)
	d.pending = append(d.pending, op)
}

func (c *FS) before(op, path string) error {
	if c.Before == nil {
		return nil
	}
	return c.Before(op, path)
}

// Crash writes what a power loss at this moment could leave to the directory dst. Each unsynced
// page is kept with probability keep.
func (c *FS) Crash(dst string, rng *rand.Rand, keep float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, d := range c.dirs {
		rel, err := filepath.Rel(c.root, name)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		entries := maps.Clone(d.durable)
		n := 0
		for n < len(d.pending) && rng.Float64() < keep {
			d.pending[n](entries)
			n++
		}
		for path, node := range entries {
			image := c.image(d, path, node, rng, keep)
			if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), image, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// image mixes synced and live pages of a file. A file that is gone by now is as last synced.
func (c *FS) image(d *dir, path string, n *node, rng *rand.Rand, keep float64) []byte {
	image := append([]byte(nil), n.durable...)
	var live []byte
	for p, other := range d.live {
		if other == n {
			live = steady(p)
		}
	}
	if len(live) > len(image) && rng.Float64() < keep {
		image = append(image, make([]byte, len(live)-len(image))...)
	}
	for at := 0; at < min(len(live), len(image)); at += vfs.PageSize {
		end, step := min(at+vfs.PageSize, len(image)), vfs.PageSize
		if rng.Float64() < torn {
			step = sectorSize
		}
		for from := at; from < end; from += step {
			if rng.Float64() < keep {
				copy(image[from:min(from+step, end)], live[from:])
			}
		}
	}
	return image
}

// steady reads a file until two readings are equal, so that no page is caught while it is written:
// what a disk takes from memory it takes in moments.
func steady(path string) []byte {
	b, _ := os.ReadFile(path)
	for range 10 {
		again, _ := os.ReadFile(path)
		if bytes.Equal(b, again) {
			break
		}
		b = again
	}
	return b
}

// OpenFile opens a file of the tree.
func (c *FS) OpenFile(path string, flag int, perm os.FileMode) (vfs.File, error) {
	path = filepath.Clean(path)
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := c.before("open", path); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if flag&os.O_WRONLY != 0 {
		flag = flag&^os.O_WRONLY | os.O_RDWR // Sync reads what it keeps
	}
	f, err := c.os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	d := c.dir(path)
	n := d.live[path]
	if n == nil {
		n = &node{}
		d.change(func(entries map[string]*node) { entries[path] = n })
	}
	return &file{File: f, fs: c, node: n}, nil
}

// ReadDir lists a directory.
func (c *FS) ReadDir(path string) ([]fs.DirEntry, error) { return c.os.ReadDir(path) }

// Stat describes a file.
func (c *FS) Stat(path string) (fs.FileInfo, error) { return c.os.Stat(path) }

// MkdirAll creates directories; they are durable at once.
func (c *FS) MkdirAll(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		c.dir(filepath.Join(p, "entry")).removed = false
		if p == c.root || p == filepath.Dir(p) {
			break
		}
	}
	return c.os.MkdirAll(path)
}

// Life returns Boot.
func (c *FS) Life(string) string { return c.Boot }

// Usage reports the space of the real file system.
func (c *FS) Usage(path string) (vfs.Usage, error) { return c.os.Usage(path) }

// Rename renames within one directory.
func (c *FS) Rename(oldpath, newpath string) error {
	oldpath, newpath = filepath.Clean(oldpath), filepath.Clean(newpath)
	if filepath.Dir(oldpath) != filepath.Dir(newpath) {
		return fmt.Errorf("crashfs: rename %s: to another directory, %s", oldpath, newpath)
	}
	if err := c.before("rename", newpath); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.os.Rename(oldpath, newpath); err != nil {
		return err
	}
	c.dir(oldpath).change(func(entries map[string]*node) {
		if n := entries[oldpath]; n != nil {
			entries[newpath] = n
			delete(entries, oldpath)
		}
	})
	return nil
}

// Remove deletes a file or an empty directory. What was in a directory that is gone is gone for sure
// when its parent is synced.
func (c *FS) Remove(path string) error {
	path = filepath.Clean(path)
	if err := c.before("remove", path); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.os.Remove(path); err != nil {
		return err
	}
	if d := c.dirs[path]; d != nil {
		d.removed = true
		return nil
	}
	c.dir(path).change(func(entries map[string]*node) { delete(entries, path) })
	return nil
}

// SyncDir makes all directory operations so far durable.
func (c *FS) SyncDir(path string) error {
	if err := c.before("syncdir", path); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.dir(filepath.Join(path, "entry"))
	d.durable, d.pending = maps.Clone(d.live), nil
	for name, sub := range c.dirs {
		if sub.removed && strings.HasPrefix(name, filepath.Clean(path)+string(filepath.Separator)) {
			sub.durable, sub.pending = map[string]*node{}, nil
		}
	}
	return nil
}
