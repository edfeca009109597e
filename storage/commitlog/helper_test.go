// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
)

// segmentSize is small, so that tests roll often.
const segmentSize = 64 << 10

// unpack puts a CommitLog captured from Apache RocketMQ into a new directory.
func unpack(t testing.TB, name string) (dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for files := tar.NewReader(z); ; {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, head.Name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// notices collects what a log tells its operator.
type notices struct {
	mu   sync.Mutex
	msgs []string
}

func (n *notices) notice(msg string, kv ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.msgs = append(n.msgs, fmt.Sprint(append([]any{msg}, kv...)...))
}

func (n *notices) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.msgs)
}

// found is what a recovery visits: the start and the bytes of each record.
type found struct {
	at   []int64
	data []string
}

// recoverLog opens, recovers and truncates; it does not fail the test.
func recoverLog(cfg commitlog.Config) (l *commitlog.Log, got found, err error) {
	l, err = commitlog.Open(cfg)
	if err != nil {
		return nil, got, err
	}
	end, err := l.Recover(0, true, func(v record.View) error {
		got.at = append(got.at, int64(v.PhysicalOffset()))
		got.data = append(got.data, string(v.Bytes()))
		return nil
	})
	if err == nil {
		err = l.Truncate(end)
	}
	if err != nil {
		_ = l.Close()
		return nil, got, err
	}
	return l, got, nil
}

// open is recoverLog that must succeed; the log is closed with the test.
func open(t testing.TB, cfg commitlog.Config) (*commitlog.Log, found) {
	t.Helper()
	if cfg.SegmentSize == 0 {
		cfg.SegmentSize = segmentSize
	}
	l, got, err := recoverLog(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, got
}

// draft returns a message with a body of n bytes that tells its number.
func draft(number, n int) record.Draft {
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(number + i | 1)
	}
	return record.Draft{
		Topic: []byte("Topic"), QueueID: int32(number % 4), BornMS: 1, Body: body,
		BornHost:   netip.MustParseAddrPort("10.0.0.9:50000"),
		StoreHost:  netip.MustParseAddrPort("10.0.0.1:10911"),
		Properties: fmt.Appendf(nil, "KEYS\x01key-%d\x02TAGS\x01TagA\x02", number),
	}
}

// put appends one record and returns its place and bytes.
func put(l *commitlog.Log, d *record.Draft, number int) (int64, string, error) {
	dst, at, err := l.Reserve(d.Size())
	if err != nil {
		return 0, "", err
	}
	d.Encode(dst, record.Place{Queue: record.QueueOffset(number), Physical: at, StoreMS: 1})
	b := string(dst)
	l.Publish(at+record.PhysicalOffset(len(dst)), int64(1000+number))
	return int64(at), b, nil
}

// fill appends records with bodies of n bytes and returns them.
func fill(t testing.TB, l *commitlog.Log, count, n int) (want found) {
	t.Helper()
	for i := range count {
		d := draft(i, n)
		at, b, err := put(l, &d, i)
		if err != nil {
			t.Fatal(err)
		}
		want.at, want.data = append(want.at, at), append(want.data, b)
	}
	return want
}

func closeLog(t testing.TB, l *commitlog.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// segmentPath returns the path of the segment that holds an offset.
func segmentPath(dir string, at int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d", at/segmentSize*segmentSize))
}

// patch overwrites bytes of the log at an offset.
func patch(t testing.TB, dir string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(segmentPath(dir, at), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at%segmentSize); err != nil {
		t.Fatal(err)
	}
}
