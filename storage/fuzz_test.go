// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage"
)

// damagedStore makes small stores that died, as copies of one that a fuzzer damages.
type damagedStore struct {
	cfg storage.Config
	m   model
}

// newDamaged writes a store of a few messages of several topics, with queues and index of several files.
func newDamaged(f *testing.F) *damagedStore {
	f.Helper()
	d := &damagedStore{cfg: small(f.TempDir()), m: model{}}
	d.cfg.IndexEntries = 40
	s, err := storage.Open(d.cfg)
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	for i := range 90 {
		id := storage.QueueID{Topic: fmt.Sprintf("T%d", i%2), Queue: int32(i % 3 % 2)}
		text := fmt.Sprintf("%020d %s", i, strings.Repeat("x", i*7))
		send(f, s, draft(id.Topic, id.Queue, text, "A"))
		d.m[id] = append(d.m[id], text)
	}
	s.FlushQueues()
	if _, err := s.Query("T0", "none", 64, 0, 1<<60); err != nil { // the index has caught up
		f.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(d.cfg.RootDir, "..", "dead"), os.DirFS(d.cfg.RootDir)); err != nil {
		f.Fatal(err)
	}
	return d
}

// open gives a copy of the dead store to damage and opens it: every message is there, whatever was done
// to files that are made from the log.
func (d *damagedStore) open(t *testing.T, damage func(root string) error) {
	t.Helper()
	d.openKeys(t, true, damage)
}

// openKeys is open; with found false the keys are looked up and need not be found.
func (d *damagedStore) openKeys(t *testing.T, found bool, damage func(root string) error) {
	t.Helper()
	dead := filepath.Join(d.cfg.RootDir, "..", "dead")
	root := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(root, os.DirFS(dead)); err != nil {
		t.Fatal(err)
	}
	if err := damage(root); err != nil {
		t.Fatal(err)
	}
	cfg := d.cfg
	cfg.RootDir, cfg.CommitLogDir = root, ""
	s := open(t, cfg)
	d.m.checkAll(t, s)
	for id, all := range d.m {
		for i := 0; i < len(all); i += 7 {
			key := "id-" + all[i][:20]
			res, err := s.Query(id.Topic, key, 64, 0, 1<<60)
			if err != nil && found || len(res.Regions) == 0 && found {
				t.Fatalf("key %s of %s: %d found, %v", key, id.Topic, len(res.Regions), err)
			}
			for _, r := range res.Regions {
				r.Release()
			}
		}
	}
}

// overwrite writes data into the n-th of the files that match, at a place that at decides.
func overwrite(pattern string, n uint8, at uint32, data []byte) error {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s: %d files, %w", pattern, len(files), err)
	}
	file, err := os.OpenFile(files[int(n)%len(files)], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	pos := int64(at) % info.Size()
	_, err = file.WriteAt(data[:min(int64(len(data)), info.Size()-pos)], pos)
	return err
}

// FuzzQueueFile overwrites any place of any queue file. Without a checkpoint nothing vouches for it, and
// every message is found in its place.
func FuzzQueueFile(f *testing.F) {
	d := newDamaged(f)
	f.Add(uint8(0), uint32(0), make([]byte, 20))
	f.Add(uint8(1), uint32(40), []byte("\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x50"))
	f.Add(uint8(2), uint32(100), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, n uint8, at uint32, data []byte) {
		d.open(t, func(root string) error {
			if err := os.Remove(filepath.Join(root, "checkpoint")); err != nil {
				return err
			}
			return overwrite(filepath.Join(root, "consumequeue", "*", "*", "*"), n, at, data)
		})
	})
}

// FuzzIndexFile overwrites any place of any index file after a crash. Without a checkpoint all keys are
// found; with one that vouches for the full files they may not be, but no message is hidden and no
// lookup goes wrong.
func FuzzIndexFile(f *testing.F) {
	d := newDamaged(f)
	f.Add(false, uint8(0), uint32(0), make([]byte, 40))
	f.Add(true, uint8(1), uint32(36), []byte("\x7f\xff\xff\xff"))
	f.Add(true, uint8(0), uint32(500), []byte("\x00\x00\x00\x01\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, vouched bool, n uint8, at uint32, data []byte) {
		d.openKeys(t, !vouched, func(root string) error {
			if !vouched {
				if err := os.Remove(filepath.Join(root, "checkpoint")); err != nil {
					return err
				}
			}
			return overwrite(filepath.Join(root, "index", "*"), n, at, data)
		})
	})
}

// FuzzCheckpoint takes any file for the checkpoint. What it says wrongly may cost time, never a
// message: the units of this store are all there.
func FuzzCheckpoint(f *testing.F) {
	d := newDamaged(f)
	good, err := os.ReadFile(filepath.Join(d.cfg.RootDir, "checkpoint"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:48])
	f.Add(make([]byte, 48))
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x7f\xff\xff\xff\xff\xff\xff\xff", 6)))
	f.Add([]byte(strings.Repeat("\xff", 48)))
	f.Fuzz(func(t *testing.T, data []byte) {
		d.open(t, func(root string) error {
			return os.WriteFile(filepath.Join(root, "checkpoint"), data, 0o600)
		})
	})
}

// FuzzQueueEnds takes any file for the list of queue ends, which is a hint.
func FuzzQueueEnds(f *testing.F) {
	d := newDamaged(f)
	f.Add([]byte("100\n5 0 T0\n"))
	f.Add([]byte("0\n9223372036854775807 0 T0\n-5 2147483647 T1\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		d.open(t, func(root string) error {
			return os.WriteFile(filepath.Join(root, "config", "queueEnds"), data, 0o600)
		})
	})
}

// FuzzDeletedTopics takes any file for the list of deleted topics: it is refused with its path, or the
// store opens.
func FuzzDeletedTopics(f *testing.F) {
	d := newDamaged(f)
	f.Add([]byte("\n0 T0\n"))
	f.Add([]byte("\n9223372036854775807 T1\n"))
	f.Add([]byte("\n-1 ..\n5 a/b\n5 \n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(root, os.DirFS(filepath.Join(d.cfg.RootDir, "..", "dead"))); err != nil {
			t.Fatal(err)
		}
		list := filepath.Join(root, "config", "deletedTopics")
		if err := os.WriteFile(list, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := d.cfg
		cfg.RootDir, cfg.CommitLogDir = root, ""
		s, err := storage.Open(cfg)
		if err != nil {
			if !strings.Contains(err.Error(), list) {
				t.Fatal(err)
			}
			return
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
