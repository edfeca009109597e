// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the model and crash tests; 0: a random one")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// clock is a clock that stands still.
type clock struct{ ms atomic.Int64 }

func newClock() *clock          { return &clock{} }
func (c *clock) set(ms int64)   { c.ms.Store(ms) }
func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// model is what a store must hold.
type model map[storage.QueueID][]string

// randomEntries returns sends to a few queues, some of them client batches, and the bodies of each.
func randomEntries(r *rand.Rand) (es []storage.Entry, texts [][]string) {
	es = make([]storage.Entry, 1+r.IntN(8))
	texts = make([][]string, len(es))
	for i := range es {
		id := storage.QueueID{Topic: fmt.Sprintf("T%d", r.IntN(3)), Queue: int32(r.IntN(3))}
		n := 1
		if r.IntN(4) == 0 {
			n = 1 + r.IntN(9)
		}
		var body []byte
		for range n {
			text := fmt.Sprintf("%d-%s", r.Uint64(), strings.Repeat("x", r.IntN(1200)))
			texts[i] = append(texts[i], text)
			props := record.AppendProperty(nil, "UNIQ_KEY", text[:16])
			body = record.AppendBatchEntry(body, 0, []byte(text), props)
		}
		switch {
		case id.Topic == batchTopic && r.IntN(2) == 0:
			es[i].Draft = innerDraft(id.Queue, n, body)
		case n == 1:
			es[i].Draft = draft(id.Topic, id.Queue, texts[i][0], "")
		default:
			es[i].Batch, es[i].Draft = true, draft(id.Topic, id.Queue, string(body), "")
		}
	}
	return es, texts
}

// appendRandom sends a random batch to the store and the model, and returns it.
func (m model) appendRandom(t *testing.T, r *rand.Rand, s *storage.Store) []storage.Entry {
	t.Helper()
	es, texts := randomEntries(r)
	s.Append(es)
	for i := range es {
		id := storage.QueueID{Topic: string(es[i].Draft.Topic), Queue: es[i].Draft.QueueID}
		if es[i].Err != nil {
			t.Fatal(es[i].Err)
		}
		if int(es[i].QueueOffset) != len(m[id]) {
			t.Fatalf("queue %s: offset %d, want %d", id, es[i].QueueOffset, len(m[id]))
		}
		m[id] = append(m[id], texts[i]...)
	}
	return es
}

// check compares a queue with the model from a random offset on, or wholly.
func (m model) check(t *testing.T, s *storage.Store, id storage.QueueID, from int) {
	t.Helper()
	want := m[id]
	_, hi, _ := s.QueueBounds([]byte(id.Topic), id.Queue)
	if int(hi) != len(want) {
		t.Fatalf("queue %s ends at %d, want %d", id, hi, len(want))
	}
	var res storage.ReadResult
	for at := from; at < len(want); {
		s.Read(&storage.ReadRequest{
			Topic: []byte(id.Topic), Queue: id.Queue, From: record.QueueOffset(at), MaxMessages: 32,
		}, &res)
		got := bodies(t, &res)
		got = got[min(max(len(got)-int(res.Next)+at, 0), len(got)):] // of an inner batch that began before
		if len(got) == 0 || int(res.Next) != at+len(got) {
			t.Fatalf("queue %s at %d: %s, %d messages, next %d", id, at, res.Status, len(got), res.Next)
		}
		for i, text := range got {
			if text != want[at+i] {
				t.Fatalf("queue %s offset %d holds %.40q, want %.40q", id, at+i, text, want[at+i])
			}
		}
		at += len(got)
	}
}

func (m model) checkAll(t *testing.T, s *storage.Store) {
	t.Helper()
	for id := range m {
		m.check(t, s, id, 0)
	}
}

// TestModelStore runs random appends, reads, restarts and crashes against a map.
func TestModelStore(t *testing.T) {
	t.Parallel()
	r := newRand(t)
	cfg := small(t.TempDir())
	cfg.QueueFilesOpen = 3
	s := open(t, cfg)
	m := model{}
	for range 800 {
		switch op := r.IntN(200); {
		case op < 150:
			m.appendRandom(t, r, s)
		case op < 196:
			for id := range m {
				m.check(t, s, id, r.IntN(len(m[id])+1))
				break
			}
		case op < 198:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			m.checkAll(t, s)
		default:
			cfg = crash(t, cfg)
			s = open(t, cfg)
			m.checkAll(t, s)
		}
	}
	m.checkAll(t, s)
}

// crash copies the directory of a running store, as the death of its process would leave it, and
// returns the configuration of the copy. Holes stay holes.
func crash(t *testing.T, cfg storage.Config) storage.Config {
	t.Helper()
	from, to := cfg.RootDir, t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		return extract(filepath.Join(to, rel), io.LimitReader(in, info.Size()), info.Size())
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RootDir, cfg.CommitLogDir = to, ""
	return cfg
}

// TestCrashDerived loses or damages what is made from the log in many ways; every message stays.
func TestCrashDerived(t *testing.T) {
	t.Parallel()
	r := newRand(t)
	for i := range 16 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			cfg := small(t.TempDir())
			s := open(t, cfg)
			m := model{}
			for range 20 + r.IntN(60) {
				m.appendRandom(t, r, s)
			}
			clean := r.IntN(2) == 0
			if clean {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			cfg = crash(t, cfg)
			for range 1 + r.IntN(3) {
				damageDerived(t, r, cfg.RootDir, clean)
			}
			s = open(t, cfg)
			m.checkAll(t, s)
			for range 5 {
				m.appendRandom(t, r, s)
			}
			m.checkAll(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			m.checkAll(t, s)
		})
	}
}

// damageDerived damages queues, index or checkpoint at random. After a clean stop it only does what
// can be noticed without reading the whole log.
func damageDerived(t *testing.T, r *rand.Rand, root string, clean bool) {
	t.Helper()
	op := r.IntN(8)
	t.Logf("damage %d clean %v", op, clean)
	var err error
	switch op {
	case 0:
		err = os.RemoveAll(filepath.Join(root, "consumequeue"))
	case 1:
		err = os.RemoveAll(filepath.Join(root, "index"))
	case 2:
		if !clean { // without it the scan goes over the whole log
			err = os.Remove(filepath.Join(root, "checkpoint"))
			if os.IsNotExist(err) {
				err = nil
			}
		}
	case 3: // one unit lost
		err = eachQueueFile(root, func(f *os.File, size, unit int64) error {
			_, err := f.WriteAt(make([]byte, unit), r.Int64N(size/unit)*unit)
			return err
		})
		if !clean {
			_ = os.Remove(filepath.Join(root, "checkpoint"))
		}
	case 4: // garbage
		err = eachQueueFile(root, func(f *os.File, size, unit int64) error {
			b := make([]byte, unit)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			_, err := f.WriteAt(b, r.Int64N(size/unit)*unit)
			return err
		})
		if !clean {
			_ = os.Remove(filepath.Join(root, "checkpoint"))
		}
	case 5:
		err = os.RemoveAll(filepath.Join(root, "consumequeue", "T1"))
		if !clean {
			_ = os.Remove(filepath.Join(root, "checkpoint"))
		}
	case 6:
		err = os.RemoveAll(filepath.Join(root, "batchconsumequeue"))
	case 7: // queues of the other kind
		err = os.Rename(filepath.Join(root, "batchconsumequeue", batchTopic),
			filepath.Join(root, "consumequeue", batchTopic))
		if os.IsNotExist(err) {
			err = nil
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// eachQueueFile opens the last file of every queue.
func eachQueueFile(root string, f func(f *os.File, size, unit int64) error) error {
	dirs, err := filepath.Glob(filepath.Join(root, "*consumequeue", "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil || len(files) == 0 {
			return err
		}
		file, err := os.OpenFile(filepath.Join(dir, files[len(files)-1].Name()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		info, err := file.Stat()
		if err == nil {
			unit := int64(20)
			if strings.Contains(dir, "batchconsumequeue") {
				unit = 46
			}
			err = f(file, info.Size(), unit)
		}
		if e := file.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestCrashTail damages the end of the log: what was before it stays, and new messages go on.
func TestCrashTail(t *testing.T) {
	t.Parallel()
	r := newRand(t)
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			cfg := small(t.TempDir())
			s := open(t, cfg)
			m := model{}
			for range 10 + r.IntN(80) {
				m.appendRandom(t, r, s)
			}
			last := send(t, s, draft("Last", 0, strings.Repeat("last", 300), "A"))
			cfg = crash(t, cfg)
			name := fmt.Sprintf("%020d", int64(last.At)/cfg.SegmentSize*cfg.SegmentSize)
			pos := int64(last.At) % cfg.SegmentSize
			size := int64(last.End - last.At)
			f, err := os.OpenFile(filepath.Join(cfg.RootDir, "commitlog", name), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			kept := false
			switch r.IntN(4) {
			case 0: // the end never reached the disk
				n := 1 + r.Int64N(size)
				_, err = f.WriteAt(make([]byte, n), pos+size-n)
			case 1: // a bit of the body
				_, err = f.WriteAt([]byte("X"), pos+100+r.Int64N(1000))
			case 2: // a bit of the size
				_, err = f.WriteAt([]byte{byte(1 + r.IntN(255))}, pos+r.Int64N(2))
			case 3: // garbage behind it
				kept = true
				_, err = f.WriteAt([]byte("garbage that is no record"), pos+size)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			m.checkAll(t, s)
			want := record.QueueOffset(0)
			if kept {
				want = 1
			}
			if e := send(t, s, draft("Last", 0, "new", "A")); e.QueueOffset != want {
				t.Fatalf("next offset %d, want %d", e.QueueOffset, want)
			}
			res, err := s.Query("T1", "absent", 32, 0, 1<<60)
			if err != nil {
				t.Fatal(err)
			}
			zerocopy.ReleaseAll(res.Regions)
			s = open(t, crash(t, cfg))
			m.checkAll(t, s)
		})
	}
}
