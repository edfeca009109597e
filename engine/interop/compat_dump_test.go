// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// storeDump is all that a store serves, whoever opened it. The lines are those of the Java program's
// store.dump.
type storeDump struct {
	Min      int64    `json:"min"`
	Max      int64    `json:"max"`
	Queues   []string `json:"queues"`
	Messages []string `json:"messages"`
}

// sameForBoth opens copies of a store with the real store and with ours and compares everything: the
// log's bounds, each queue's, each unit, each record's bytes, and what the index finds. crashed says that
// the store's last holder was killed: RocketMQ then indexes only the last file of the log anew, so that
// its index may find less than ours. It returns the number of messages.
func sameForBoth(t *testing.T, dir string, conf map[string]string, crashed bool) int {
	t.Helper()
	theirDir, ourDir := copyStore(t, dir), copyStore(t, dir)
	theirs := must[storeDump](t, java(t), "store.dump", args{"dir": theirDir, "conf": conf})
	ours := dumpOurs(t, ourDir, conf)
	if ours.Min != theirs.Min || ours.Max != theirs.Max {
		t.Errorf("our log is [%d, %d), theirs [%d, %d)", ours.Min, ours.Max, theirs.Min, theirs.Max)
	}
	// Queues that never had a message are files for one of the two only.
	empty := func(line string) bool { return strings.HasSuffix(line, " 0 0") }
	sameLines(t, "queue", slices.DeleteFunc(ours.Queues, empty), slices.DeleteFunc(theirs.Queues, empty))
	for _, m := range ours.Messages {
		f := strings.Fields(m)
		if len(f) != 9 || f[7] != f[8] {
			t.Errorf("we cannot read it, or not find it by each of its keys: %s", m)
		}
	}
	if crashed {
		forget := func(list []string) {
			for i, m := range list {
				list[i] = m[:strings.LastIndexByte(m, ' ')]
			}
		}
		forget(ours.Messages)
		forget(theirs.Messages)
	}
	sameLines(t, "message", ours.Messages, theirs.Messages)
	return len(ours.Messages)
}

func sameLines(t *testing.T, what string, ours, theirs []string) {
	t.Helper()
	slices.Sort(ours)
	slices.Sort(theirs)
	faults := 0
	report := func(format, line string) {
		if faults++; faults <= 5 {
			t.Errorf(format, what, line)
		}
	}
	for len(ours)+len(theirs) > 0 {
		switch {
		case len(theirs) == 0 || len(ours) > 0 && ours[0] < theirs[0]:
			report("only we have the %s %s", ours[0])
			ours = ours[1:]
		case len(ours) == 0 || theirs[0] < ours[0]:
			report("only they have the %s %s", theirs[0])
			theirs = theirs[1:]
		default:
			ours, theirs = ours[1:], theirs[1:]
		}
	}
	if faults > 5 {
		t.Errorf("%d more", faults-5)
	}
}

// copyStore copies a directory that nobody holds, with its holes.
func copyStore(t *testing.T, dir string) string {
	t.Helper()
	to := scratch(t)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		return copyFile(path, filepath.Join(to, name))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	const seekData, seekHole = 3, 4 // of lseek on Linux
	for at := int64(0); ; {
		begin, err := in.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) { // nothing but a hole is left
			size, err := in.Seek(0, io.SeekEnd)
			return errors.Join(err, out.Truncate(size))
		}
		if err != nil {
			return err
		}
		if at, err = in.Seek(begin, seekHole); err != nil {
			return err
		}
		_, err = io.Copy(io.NewOffsetWriter(out, begin), io.NewSectionReader(in, begin, at-begin))
		if err != nil {
			return err
		}
	}
}

// storeConfig is our store's configuration for the lines of broker.conf.
func storeConfig(dir string, conf map[string]string) storage.Config {
	cfg := storage.DefaultConfig(dir)
	number := func(key string, otherwise int64) int64 {
		if n, err := strconv.ParseInt(conf[key], 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	cfg.SegmentSize = number("mappedFileSizeCommitLog", cfg.SegmentSize)
	cfg.QueueFileSize = number("mappedFileSizeConsumeQueue", cfg.QueueFileSize)
	cfg.IndexSlots = int32(number("maxHashSlotNum", int64(cfg.IndexSlots)))
	cfg.IndexEntries = int32(number("maxIndexNum", int64(cfg.IndexEntries)))
	cfg.MaxMessageSize = int(number("maxMessageSize", int64(cfg.MaxMessageSize)))
	return cfg
}

// dumpOurs is store.dump of the Java program with our store.
func dumpOurs(t *testing.T, dir string, conf map[string]string) storeDump {
	t.Helper()
	s, err := storage.Open(storeConfig(dir, conf))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	info := s.Info()
	d := storeDump{Min: int64(info.Min), Max: int64(info.Wrote)}
	for _, topic := range s.Topics() {
		for _, id := range s.Queues(topic) {
			lowest, end, _ := s.QueueBounds([]byte(topic), id)
			d.Queues = append(d.Queues, fmt.Sprint(topic, " ", id, " ", lowest, " ", end))
			for at := max(lowest, 0); at < end; at++ {
				head := fmt.Sprint(topic, " ", id, " ", at, " ")
				u, ok := s.Unit([]byte(topic), id, at)
				if !ok {
					d.Messages = append(d.Messages, head+"no unit")
					continue
				}
				d.Messages = append(d.Messages, head+dumpRecord(t, s, u))
			}
		}
	}
	return d
}

func dumpRecord(t *testing.T, s *storage.Store, u consumequeue.Unit) string {
	t.Helper()
	head := fmt.Sprint(u.At, " ", u.Size, " ", u.TagsCode, " ")
	r, err := s.RecordAt(u.At)
	if err != nil {
		return head + "no record"
	}
	defer r.Release()
	v, err := record.Parse(r.Mem)
	if err != nil {
		return head + "damaged record"
	}
	unique, _ := record.Property(v.Properties(), "UNIQ_KEY")
	keys, _ := record.Property(v.Properties(), "KEYS")
	all := strings.Fields(string(keys))
	if len(unique) > 0 {
		all = append(all, string(unique))
	}
	found := 0
	for _, key := range all {
		res, err := s.Query(string(v.Topic()), key, 1000, 0, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		hit := false
		for i := range res.Regions {
			w, err := record.Parse(res.Regions[i].Mem)
			hit = hit || err == nil && w.PhysicalOffset() == u.At
			res.Regions[i].Release()
		}
		if hit {
			found++
		}
	}
	sum := sha256.Sum256(r.Mem)
	return fmt.Sprint(head, hex.EncodeToString(sum[:8]), " ", len(all), " ", found)
}
