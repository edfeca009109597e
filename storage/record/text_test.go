// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/skylarkmq/skylark/storage/record"
)

func TestProperty(t *testing.T) {
	t.Parallel()
	props := []byte("A\x011\x02\x02\x01x\x02B\x01\x02C\x02A\x012\x02D\x01=\x01=\x02E\x019")
	for name, want := range map[string]string{
		"A": "2", "B": "", "C": "", "D": "=\x01=", "E": "9", "": "", "F": "",
	} {
		got, ok := record.Property(props, name)
		if string(got) != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", name, got, ok, want)
		}
	}
	var all []string
	record.EachProperty(props, func(name, value []byte) bool {
		all = append(all, fmt.Sprintf("%s=%s", name, value))
		return string(name) != "D"
	})
	if got, want := strings.Join(all, ","), "A=1,A=2,D==\x01="; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPropertyEdit(t *testing.T) {
	t.Parallel()
	p := record.AppendProperty([]byte("X\x01y"), "A", "1")
	p = record.AppendProperty(p, "B", []byte("2"))
	p = record.AppendProperty(p, "C", "")
	p = record.AppendProperty(p, "", "3")
	if want := "X\x01y\x02A\x011\x02B\x012\x02"; string(p) != want {
		t.Fatalf("got %q, want %q", p, want)
	}
	p = append(p, "junk\x02A\x019"...)
	got := record.DeleteProperty(nil, p, "A")
	if want := "X\x01y\x02B\x012\x02junk\x02"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := record.DeleteProperty(nil, p, "B", "none", "X"); string(got) != "A\x011\x02junk\x02A\x019" {
		t.Errorf("without two: got %q", got)
	}
	if inPlace := record.DeleteProperty(p[:0], p, "A"); !bytes.Equal(inPlace, got) {
		t.Errorf("in place %q, want %q", inPlace, got)
	}
	for text, want := range map[string]bool{"a b": true, "": false, "a\x01": false, "\x02": false} {
		if got := record.ValidProperty(text); got != want {
			t.Errorf("%q: valid %v, want %v", text, got, want)
		}
	}
}

func TestTagsCode(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]int64{
		"": 0, "a": 97, "*": 42, "TagA": 2598919, "TagB": 2598920, "order-created": -392709271,
		"订单": 1129459, "😀": 0xD83D*31 + 0xDE00,
	} {
		if got := record.TagsCode([]byte(tag)); got != want {
			t.Errorf("%q: got %d, want %d", tag, got, want)
		}
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	props := []byte("KEYS\x01order-1\x02TAGS\x01TagA\x02")
	b := record.AppendBatchEntry(nil, 0, []byte("hi"), props)
	want := unhex(t, "0000002f 00000000 00000000 00000000 00000002 6869 0017"+
		"4b455953016f726465722d310254414753015461674102")
	if !bytes.Equal(b, want) || record.BatchEntrySize([]byte("hi"), props) != len(b) {
		t.Fatalf("got %x\nwant %x", b, want)
	}
	b = record.AppendBatchEntry(b, -7, nil, bytes.Repeat([]byte{'p'}, record.MaxProperties))
	r := record.NewBatchReader(b)
	if flag, body, p, ok := r.Next(); flag != 0 || string(body) != "hi" || !ok ||
		!bytes.Equal(p, props) {
		t.Errorf("first: %d %q %q %v", flag, body, p, ok)
	}
	if flag, body, p, ok := r.Next(); flag != -7 || len(body) != 0 || !ok || len(p) != 32767 {
		t.Errorf("second: %d %q %d %v", flag, body, len(p), ok)
	}
	if _, _, _, ok := r.Next(); ok || r.Err() != nil || r.Index() != 2 {
		t.Errorf("end: %v %v %d", ok, r.Err(), r.Index())
	}
	empty := record.NewBatchReader(nil)
	if _, _, _, ok := empty.Next(); ok || empty.Err() != nil {
		t.Errorf("empty: %v %v", ok, empty.Err())
	}
}

// TestBatchRefuses puts one bad entry behind a good one and expects its index.
func TestBatchRefuses(t *testing.T) {
	t.Parallel()
	good := record.AppendBatchEntry(nil, 0, []byte("body"), []byte("A\x01b\x02"))
	put32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], v); return b }
	}
	for name, alter := range map[string]func([]byte) []byte{
		"cut":           func(b []byte) []byte { return b[:len(b)-1] },
		"cut in head":   func(b []byte) []byte { return b[:7] },
		"size 0":        put32(0, 0),
		"size negative": put32(0, 1<<31),
		"size one less": put32(0, uint32(len(good)-1)),
		"size one more": put32(0, uint32(len(good)+1)),
		"body negative": put32(16, 1<<31),
		"body overruns": put32(16, uint32(len(good))),
		"body lies":     put32(16, 3),
		"properties over the limit": func([]byte) []byte {
			return record.AppendBatchEntry(nil, 0, nil, make([]byte, record.MaxProperties+1))
		},
		"properties overrun": func(b []byte) []byte { b[25]++; return b },
	} {
		r := record.NewBatchReader(append(bytes.Clone(good), alter(bytes.Clone(good))...))
		if _, _, _, ok := r.Next(); !ok {
			t.Errorf("%s: the good entry is refused: %v", name, r.Err())
		}
		_, _, _, ok := r.Next()
		var bad *record.BatchError
		if ok || !errors.As(r.Err(), &bad) || bad.Index != 1 || bad.Reason == "" {
			t.Errorf("%s: ok=%v err=%v", name, ok, r.Err())
		}
		if _, _, _, ok := r.Next(); ok {
			t.Errorf("%s: goes on after the error", name)
		}
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(record.AppendBatchEntry(record.AppendBatchEntry(nil, 1, []byte("a"), nil), 2, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := record.NewBatchReader(b)
		var back []byte
		for {
			flag, body, props, ok := r.Next()
			if !ok {
				break
			}
			back = record.AppendBatchEntry(back, flag, body, props)
		}
		if r.Err() == nil && len(back) != len(b) {
			t.Fatalf("accepted %d of %d bytes", len(back), len(b))
		}
	})
}

func TestOffsetID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]struct {
		host string
		at   record.PhysicalOffset
	}{
		"0A00000100002A9F000000000012D687":                         {"10.0.0.1:10911", 1234567},
		"0A00000100002A9F0000000000001000":                         {"10.0.0.1:10911", 4096},
		"FE800000000000000000000000000001000078BF00000000000001B2": {"[fe80::1]:30911", 434},
	} {
		host := netip.MustParseAddrPort(want.host)
		if got := string(record.AppendOffsetID(nil, host, want.at)); got != id {
			t.Errorf("got %s, want %s", got, id)
		}
		for _, s := range []string{id, strings.ToLower(id)} {
			if h, at, err := record.ParseOffsetID(s); h != host || at != want.at || err != nil {
				t.Errorf("%s: %v %d %v", s, h, at, err)
			}
		}
	}
	for _, bad := range []string{
		"", "0A", strings.Repeat("0", 31), strings.Repeat("G", 32), strings.Repeat("0", 57),
		"0A000001FFFF2A9F000000000012D687", "0A00000100002A9FF00000000012D687",
		strings.Repeat("é", 16),
	} {
		if _, _, err := record.ParseOffsetID(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestUniqueIDsConcurrent(t *testing.T) {
	t.Parallel()
	u := record.NewUniqueIDs(netip.MustParseAddr("2001:db8::7"))
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				id := string(u.Append(nil))
				mu.Lock()
				if seen[id] || len(id) != 56 || id != strings.ToUpper(id) {
					t.Errorf("bad or repeated id %s", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// TestHashMore holds the hash, which takes four bytes at once, against Java's definition over UTF-16
// units, whole and continued at every place between two characters.
func TestHashMore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "a", "abc", "abcd", "abcdefgh", "topic#0A0B0C0D0E0F", "häßlich und lang", "abcä", "\U0001F600abcd\U0001F600",
		"bad\xff\xfeutf", strings.Repeat("~", 100),
	} {
		var want int32
		for _, u := range utf16.Encode([]rune(text)) {
			want = 31*want + int32(u)
		}
		for at := range len(text) + 1 {
			if at < len(text) && !utf8.RuneStart(text[at]) {
				continue
			}
			got := record.HashMore(record.HashMore(0, []byte(text[:at])), []byte(text[at:]))
			if got != want {
				t.Errorf("%q cut at %d: %d, want %d", text, at, got, want)
			}
		}
	}
}
