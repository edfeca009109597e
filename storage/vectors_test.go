// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
)

// The archives below testdata/vectors were written, and some then damaged, by Apache RocketMQ 5.5.0
// (two by 5.3.3). expected.txt.gz is what 5.5.0 reads from them after its own recovery.

type expected struct {
	loaded   bool
	min, max int64
	messages []message
	queues   map[string][2]int64 // topic/queue to min and max offset
}

type message struct {
	topic    string
	queue    int32
	at       record.QueueOffset
	physical record.PhysicalOffset
	size     int32
	tags     int64
	sum      string
}

func loadExpected(t *testing.T) map[string]*expected {
	t.Helper()
	f, err := os.Open("testdata/vectors/expected.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*expected{}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		w := strings.Split(lines.Text(), " ")
		e := all[w[1]]
		if e == nil {
			e = &expected{queues: map[string][2]int64{}}
			all[w[1]] = e
		}
		n := func(i int) int64 {
			v, err := strconv.ParseInt(w[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		switch w[0] {
		case "store":
			e.loaded, e.min, e.max = w[2] == "1", n(3), n(4)
		case "queue":
			e.queues[w[2]+"/"+w[3]] = [2]int64{n(5), n(6)}
		case "message":
			e.messages = append(e.messages, message{
				topic: w[2], queue: int32(n(3)), at: record.QueueOffset(n(4)),
				physical: record.PhysicalOffset(n(5)), size: int32(n(6)), tags: n(7), sum: w[8],
			})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// unpack extracts a vector, keeping holes, and returns the store's configuration.
func unpack(t *testing.T, name string) storage.Config {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(filepath.Join("testdata/vectors", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = extract(path, r, h.Size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return settings(t, dir)
}

func extract(path string, r io.Reader, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := out.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	var zeros [64 << 10]byte
	for at := int64(0); ; {
		n, err := io.ReadFull(r, buf)
		if n > 0 && string(buf[:n]) != string(zeros[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if err != nil {
			break
		}
	}
	return out.Close()
}

func settings(t *testing.T, dir string) storage.Config {
	t.Helper()
	cfg := storage.DefaultConfig(filepath.Join(dir, "store"))
	text, err := os.ReadFile(filepath.Join(dir, "settings.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			continue
		}
		switch key {
		case "mappedFileSizeCommitLog":
			cfg.SegmentSize = n
		case "mappedFileSizeConsumeQueue":
			cfg.QueueFileSize = n
		case "mapperFileSizeBatchConsumeQueue":
			cfg.BatchFileSize = n
			cfg.BatchTopic = func(topic string) (batch, known bool) { return topic == "BatchTopic", true }
		case "maxHashSlotNum":
			cfg.IndexSlots = int32(n)
		case "maxIndexNum":
			cfg.IndexEntries = int32(n)
		}
	}
	if cfg.SegmentSize < 8<<20 {
		cfg.MaxMessageSize = int(cfg.SegmentSize / 2)
	}
	return cfg
}

func vectorNames(t *testing.T) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(loadExpected(t)))
}

// savedMessages says how many messages must be readable where RocketMQ loses some.
func savedMessages() map[string]int {
	return map[string]int{
		"one-queue-deleted-clean": 90, "cq-tail-cut-clean": 90, "many-cq-deleted-clean": 150,
		"cq-deleted-crash": 90, "one-queue-deleted-crash": 90, "many-cq-deleted-crash": 150,
		"cq-last-zero-clean": 90, "cq-entry-zero-clean": 90, "cq-entry-zero-crash": 90,
		"cq-first-file-deleted-clean": 90, "foreign-file-clean": 90, "file-short-clean": 89,
		"batchcq": 240, "lmq-poison": 30, "middle-body-flip-crash": 89, "middle-size-flip-crash": 89,
	}
}

// TestGoldenVectors opens every directory and finds at least what RocketMQ finds, at the same
// places and with the same bytes, by queue offset and by key; then again after a clean stop.
func TestGoldenVectors(t *testing.T) {
	t.Parallel()
	all := loadExpected(t)
	for _, name := range vectorNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := unpack(t, name)
			cfg.Notice = func(msg string, kv ...any) { t.Log(append([]any{msg}, kv...)...) }
			e := all[name]
			if name == "middle-body-flip-crash" || name == "middle-size-flip-crash" {
				_, err := storage.Open(cfg)
				var damage *commitlog.CorruptionError
				if !errors.As(err, &damage) || damage.Offset != 118071 {
					t.Fatalf("open: %v, want damage at 118071", err)
				}
				cfg.Damage = commitlog.DamageSkip
			}
			for _, round := range []string{"first", "second"} {
				s, err := storage.Open(cfg)
				if err != nil {
					t.Fatalf("%s open: %v", round, err)
				}
				n := checkVector(t, s, name, e)
				if want := savedMessages()[name]; n < want {
					t.Errorf("%s open: %d messages can be read, want %d", round, n, want)
				}
				if err := s.Close(); err != nil {
					t.Fatalf("%s close: %v", round, err)
				}
			}
		})
	}
}

// checkVector compares the store with what is expected and returns how many messages it serves.
func checkVector(t *testing.T, s *storage.Store, name string, e *expected) int {
	t.Helper()
	info := s.Info()
	if !strings.HasPrefix(name, "stale-record") && int64(info.Wrote) < e.max {
		t.Errorf("log ends at %d, RocketMQ says %d", info.Wrote, e.max)
	}
	failures := 0
	for _, m := range e.messages {
		if err := checkMessage(s, m); err != nil {
			if failures++; failures < 5 {
				t.Errorf("%s/%d offset %d: %v", m.topic, m.queue, m.at, err)
			}
		}
	}
	if failures > 0 {
		t.Errorf("%d of %d messages differ", failures, len(e.messages))
	}
	served := 0
	for _, topic := range s.Topics() {
		for _, id := range s.Queues(topic) {
			served += readAll(t, s, topic, id)
		}
	}
	return served
}

func checkMessage(s *storage.Store, m message) error {
	u, ok := s.Unit([]byte(m.topic), m.queue, m.at)
	if !ok {
		lo, hi, _ := s.QueueBounds([]byte(m.topic), m.queue)
		return fmt.Errorf("no unit in [%d, %d)", lo, hi)
	}
	if u.Ext() {
		u.TagsCode = m.tags // RocketMQ's dump shows the tag of the extension record
	}
	if u.At != m.physical || u.Size != m.size || u.TagsCode != m.tags {
		return fmt.Errorf("unit %+v, want %+v", u, m)
	}
	r, err := s.RecordAt(u.At)
	if err != nil {
		return err
	}
	defer r.Release()
	sum := sha256.Sum256(r.Mem)
	if got := hex.EncodeToString(sum[:4]); got != m.sum {
		return fmt.Errorf("record hash %s, want %s", got, m.sum)
	}
	return nil
}

// readAll pulls a whole queue as a consumer does, and checks each record and its keys.
func readAll(t *testing.T, s *storage.Store, topic string, queue int32) int {
	t.Helper()
	lo, hi, _ := s.QueueBounds([]byte(topic), queue)
	n := 0
	var res storage.ReadResult
	for from := lo; from < hi; from = res.Next {
		s.Read(&storage.ReadRequest{Topic: []byte(topic), Queue: queue, From: from, MaxMessages: 32}, &res)
		if res.Status != storage.Found && res.Status != storage.NoMatchedMessage || res.Next <= from {
			t.Fatalf("read %s/%d at %d: %s, next %d", topic, queue, from, res.Status, res.Next)
		}
		for i := range res.Regions {
			b := res.Regions[i].Mem
			for len(b) > 0 {
				v, err := record.Parse(b)
				if err != nil {
					t.Fatalf("read %s/%d at %d: %v", topic, queue, from, err)
				}
				b = b[v.TotalSize():]
				n++
				if string(v.Topic()) == topic {
					checkKeys(t, s, v)
				}
			}
			res.Regions[i].Release()
		}
	}
	return n
}

// checkKeys looks the record up by unique id and keys.
func checkKeys(t *testing.T, s *storage.Store, v record.View) {
	t.Helper()
	unique, _ := record.Property(v.Properties(), "UNIQ_KEY")
	keys, _ := record.Property(v.Properties(), "KEYS")
	for _, key := range append(strings.Split(string(keys), " "), string(unique)) {
		if key == "" {
			continue
		}
		res, err := s.Query(string(v.Topic()), key, 64, 0, time.Now().AddDate(100, 0, 0).UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		found := len(res.Regions) == 64
		for i := range res.Regions {
			w, _ := record.Parse(res.Regions[i].Mem)
			found = found || w.PhysicalOffset() == v.PhysicalOffset()
			res.Regions[i].Release()
		}
		if !found {
			t.Errorf("key %q of %s does not find offset %d", key, v.Topic(), v.PhysicalOffset())
		}
	}
}
