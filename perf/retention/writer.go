// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// writer appends to one store. One goroutine uses it.
type writer struct {
	store *storage.Store
	sync  bool
	body  []byte
	host  netip.AddrPort
	n     int // messages so far
	es    []storage.Entry
}

func (o *options) writer(s *storage.Store) *writer {
	return &writer{
		store: s, sync: o.sync, body: bytes.Repeat([]byte{'r'}, o.body),
		host: netip.MustParseAddrPort("127.0.0.1:10911"),
	}
}

// prepare makes entries for the next messages, which go round over 64 queues of 8 topics.
func (w *writer) prepare(count int) {
	w.es = slices.Grow(w.es[:0], count)[:count]
	for i := range w.es {
		props := record.AppendProperty(nil, "UNIQ_KEY", fmt.Sprintf("0A0000010000%020X", w.n))
		w.es[i] = storage.Entry{AwaitsFlush: w.sync, Draft: record.Draft{
			Topic: fmt.Appendf(nil, "Topic%d", w.n%64/8), QueueID: int32(w.n % 8),
			BornMS: time.Now().UnixMilli(), BornHost: w.host, StoreHost: w.host, Body: w.body,
			Properties: props,
		}}
		w.n++
	}
}

// append stores what was prepared.
func (w *writer) append() error {
	w.store.Append(w.es)
	for i := range w.es {
		if w.es[i].Err != nil {
			return w.es[i].Err
		}
	}
	if w.sync {
		return w.store.Flush()
	}
	return nil
}

// fill appends until the log has so many bytes, and all of it is on disk.
func (w *writer) fill(ctx context.Context, size int64) error {
	for int64(w.store.Info().Wrote) < size && ctx.Err() == nil {
		w.prepare(64)
		if err := w.append(); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), w.store.Flush())
}

// steady appends at a rate for a while. Every half millisecond it sends what is due in one append.
func (w *writer) steady(ctx context.Context, rate int, length time.Duration) (series, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := openThread()
	defer thread.close()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	var s series
	for began, sent := time.Now(), 0; ; {
		elapsed := time.Since(began)
		if elapsed >= length || ctx.Err() != nil {
			return s, ctx.Err()
		}
		due := int(elapsed.Seconds()*float64(rate)) - sent
		if due <= 0 {
			<-tick.C
			continue
		}
		w.prepare(due)
		ran, queued := thread.busy()
		start := time.Now()
		if err := w.append(); err != nil {
			return s, err
		}
		took := time.Since(start)
		ranThen, queuedThen := thread.busy()
		ran, queued = ranThen-ran, queuedThen-queued
		s.began = append(s.began, start)
		s.took, s.ran = append(s.took, took), append(s.ran, ran)
		s.queued, s.waited = append(s.queued, queued), append(s.waited, max(took-ran-queued, 0))
		sent += due
	}
}

// thread tells how long the calling thread has run, or waited for a processor while it could run.
type thread struct{ file *os.File }

func openThread() thread {
	f, err := os.Open("/proc/thread-self/schedstat")
	if err != nil {
		return thread{} // not Linux: all of an append counts as waiting
	}
	return thread{f}
}

func (t thread) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}

// busy returns both times since the thread began, the first to a tick of the scheduler.
func (t thread) busy() (ran, queued time.Duration) {
	if t.file == nil {
		return 0, 0
	}
	var b [64]byte
	n, _ := t.file.ReadAt(b[:], 0) // at the end of the file it says EOF, and has read
	fields := bytes.Fields(b[:n])
	if len(fields) < 2 {
		return 0, 0
	}
	r, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	q, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(r), time.Duration(q)
}
