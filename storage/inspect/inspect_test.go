// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/inspect"
	"github.com/skylarkmq/skylark/storage/record"
)

// The archives were written, and some then damaged, by Apache RocketMQ; package storage tests with
// them too.
const archives = "../testdata/vectors"

// unpack lays an archive out and returns the store directory in it.
func unpack(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(archives, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, "store")
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = lay(path, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func lay(path string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

func open(t *testing.T, dir string) *inspect.Dir {
	t.Helper()
	d, err := inspect.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestVerify tells sound stores from damaged ones, and names what is wrong.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		records int64
		end     inspect.EndReason
		kinds   []string
	}{
		{"base", 90, inspect.EndUnused, nil},
		{"batch", 102, inspect.EndUnused, nil},
		{"compressed", 10, inspect.EndUnused, nil},
		{"crc", 122, inspect.EndUnused, nil},
		{"delay", 27, inspect.EndUnused, nil},
		{"ext", 500, inspect.EndUnused, nil},
		{"ipv6", 8, inspect.EndUnused, nil},
		{"lmq", 30, inspect.EndUnused, nil},
		{"transaction", 42, inspect.EndUnused, nil},
		{"first-log-deleted-clean", 64, inspect.EndUnused, nil},
		{"stale-record-after-last-clean", 90, inspect.EndStale, nil},
		{"nommap", 120, inspect.EndTorn, nil},
		{"garbage-after-last-clean", 90, inspect.EndTorn, nil},
		{"cq-deleted-clean", 90, inspect.EndUnused, []string{inspect.NoUnit}},
		{"cq-last-zero-clean", 90, inspect.EndUnused, []string{inspect.NoUnit}},
		{"cq-tail-garbage-clean", 90, inspect.EndUnused, []string{inspect.StrayUnit}},
		{"drop-last-clean", 70, inspect.EndUnused, []string{inspect.StrayUnit}},
		{"middle-body-flip-clean", 90, inspect.EndUnused, []string{inspect.BadSum}},
		{"middle-size-flip-crash", 45, inspect.EndDamage, []string{inspect.Damaged, inspect.StrayUnit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := open(t, unpack(t, c.name)).Verify(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, f := range r.Findings {
				if !slices.Contains(kinds, f.Kind) {
					kinds = append(kinds, f.Kind)
				}
			}
			if r.Records != c.records || r.End.Reason != c.end || !cmp.Equal(kinds, c.kinds) {
				t.Errorf("%d records, end %+v, kinds %v; findings %+v", r.Records, r.End, kinds,
					r.Findings[:min(len(r.Findings), 3)])
			}
			if r.OK() != (len(c.kinds) == 0) {
				t.Errorf("OK is %v with kinds %v", r.OK(), kinds)
			}
		})
	}
}

// TestNothingIsTouched looks at everything, and finds the directory as it was.
func TestNothingIsTouched(t *testing.T) {
	t.Parallel()
	dir := unpack(t, "base-crash")
	before := listing(t, dir)
	d := open(t, dir)
	if _, err := d.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, _, err := d.Stats(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := d.IndexFiles(); err != nil {
		t.Error(err)
	}
	if _, err := d.ConfigFiles(); err != nil {
		t.Error(err)
	}
	if c, err := d.Checkpoint(); err != nil || !c.Abort {
		t.Errorf("%+v %v", c, err)
	}
	if diff := cmp.Diff(before, listing(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			found[path] = info.ModTime().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestStatsAndQueues(t *testing.T) {
	t.Parallel()
	d := open(t, unpack(t, "base"))
	list, _, err := d.Stats(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	queues, err := d.Queues("")
	if err != nil {
		t.Fatal(err)
	}
	var records, messages int64
	for _, s := range list {
		records += s.Records
	}
	for _, q := range queues {
		messages += int64(q.End - q.First)
	}
	if records != 90 || messages != 90 {
		t.Errorf("%d records, %d messages in %d queues", records, messages, len(queues))
	}
	if none, err := d.Queues("nobody"); err != nil || len(none) != 0 {
		t.Errorf("queues of no topic: %v %v", none, err)
	}
	q := queues[0]
	var seen []record.QueueOffset
	err = q.Units(q.First+1, func(at record.QueueOffset, u consumequeue.Unit) error {
		e, err := d.Record(u.At)
		if err != nil || e.View.QueueOffset() != at || string(e.View.Topic()) != q.Topic {
			t.Errorf("unit %d leads to %+v, %v", at, e, err)
		}
		if seen = append(seen, at); len(seen) == 2 {
			return inspect.ErrStop
		}
		return nil
	})
	if err != nil || len(seen) != 2 || seen[0] != q.First+1 {
		t.Errorf("units %v, %v", seen, err)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	d := open(t, unpack(t, "base"))
	var first inspect.Entry
	var keys string
	_, err := d.Records(t.Context(), d.Min(), nil, func(e inspect.Entry) error {
		k, ok := record.Property(e.View.Properties(), "KEYS")
		if !ok {
			return nil
		}
		first, keys = e, string(k)
		return inspect.ErrStop
	})
	if err != nil || keys == "" {
		t.Fatalf("no record with keys: %v", err)
	}
	topic := string(first.View.Topic())
	for _, c := range []struct {
		name string
		f    inspect.Filter
		want bool
	}{
		{"all", inspect.Filter{Queue: -1}, true},
		{"topic", inspect.Filter{Queue: -1, Topic: topic}, true},
		{"another topic", inspect.Filter{Queue: -1, Topic: topic + "x"}, false},
		{"key", inspect.Filter{Queue: -1, Key: strings.Fields(keys)[0]}, true},
		{"part of a key", inspect.Filter{Queue: -1, Key: keys[:1] + "~"}, false},
		{"another queue", inspect.Filter{Queue: first.View.QueueID() + 1}, false},
	} {
		if got := c.f.Match(first.View); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := inspect.Open(dir); !errors.Is(err, inspect.ErrNoStore) || !strings.Contains(err.Error(), dir) {
		t.Errorf("empty directory: %v", err)
	}
	d := open(t, unpack(t, "base"))
	if _, err := d.Record(d.Min() + 7); err == nil {
		t.Error("a record in the middle of one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Verify(ctx, nil); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestConfigFault names the file that is damaged.
func TestConfigFault(t *testing.T) {
	t.Parallel()
	dir := unpack(t, "config")
	d := open(t, dir)
	list, err := d.ConfigFiles()
	if err != nil || len(list) == 0 {
		t.Fatalf("%v %v", list, err)
	}
	for _, c := range list {
		if c.Fault != "" {
			t.Errorf("%s: %s", c.Name, c.Fault)
		}
	}
	path := filepath.Join(dir, "config", list[0].Name)
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err = d.ConfigFiles()
	if err != nil || list[0].Fault == "" {
		t.Errorf("%+v %v", list[0], err)
	}
}
