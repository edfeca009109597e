// SPDX-License-Identifier: Apache-2.0

package zerocopy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/skylarkmq/skylark/zerocopy"
)

type hold struct{ n atomic.Int32 }

func (h *hold) Release() { h.n.Add(1) }

func TestReleaseOnce(t *testing.T) {
	t.Parallel()
	h := &hold{}
	r := zerocopy.Region{FD: -1, Holder: h}
	r.Release()
	r.Release()
	if h.n.Load() != 1 {
		t.Fatalf("released %d times, want 1", h.n.Load())
	}
	b := zerocopy.Bytes([]byte("abc"))
	b.Release()
	if b.FD != -1 || b.Size != 3 || string(b.Mem) != "abc" {
		t.Fatalf("Bytes = %+v", b)
	}
}

// TestMerge proves which neighbours are joined, and that every hold is released exactly once.
func TestMerge(t *testing.T) {
	t.Parallel()
	file := make([]byte, 100)
	part := func(fd int, from, to int, h zerocopy.Holder) zerocopy.Region {
		return zerocopy.Region{
			FD: fd, Off: int64(from), Mem: file[from:to], Size: to - from, Holder: h,
		}
	}
	bare := func(fd int, from, to int, h zerocopy.Holder) zerocopy.Region {
		r := part(fd, from, to, h)
		r.Mem = nil
		return r
	}
	capped := func(fd int, from, to int, h zerocopy.Holder) zerocopy.Region {
		r := part(fd, from, to, h)
		r.Mem = r.Mem[:len(r.Mem):len(r.Mem)]
		return r
	}
	h := make([]hold, 5)
	cases := []struct {
		name  string
		in    []zerocopy.Region
		sizes []int
		mem   []bool
	}{
		{name: "nothing"},
		{
			"adjacent",
			[]zerocopy.Region{part(3, 0, 10, &h[0]), part(3, 10, 30, &h[1])},
			[]int{30},
			[]bool{true},
		},
		{
			"gap",
			[]zerocopy.Region{part(3, 0, 10, &h[0]), part(3, 11, 30, &h[1])},
			[]int{10, 19},
			[]bool{true, true},
		},
		{
			"order",
			[]zerocopy.Region{part(3, 10, 30, &h[0]), part(3, 0, 10, &h[1])},
			[]int{20, 10},
			[]bool{true, true},
		},
		{
			"files",
			[]zerocopy.Region{part(3, 0, 10, &h[0]), part(4, 10, 30, &h[1])},
			[]int{10, 20},
			[]bool{true, true},
		},
		{
			"memory",
			[]zerocopy.Region{part(-1, 0, 10, &h[0]), part(-1, 10, 30, &h[1])},
			[]int{10, 20},
			[]bool{true, true},
		},
		{
			"one mapping",
			[]zerocopy.Region{bare(3, 0, 10, &h[0]), part(3, 10, 30, &h[1])},
			[]int{30},
			[]bool{false},
		},
		{
			"capped mapping",
			[]zerocopy.Region{capped(3, 0, 10, &h[0]), part(3, 10, 30, &h[1])},
			[]int{10, 20},
			[]bool{true, true},
		},
		{"empty ones", []zerocopy.Region{
			part(3, 0, 0, &h[0]), part(3, 0, 10, &h[1]), part(3, 10, 10, &h[2]),
			part(3, 10, 20, nil), part(3, 20, 21, &h[3]), part(3, 90, 91, &h[4]),
		}, []int{21, 1}, []bool{true, true}},
		{
			"first without hold",
			[]zerocopy.Region{part(3, 0, 10, nil), part(3, 10, 30, &h[0])},
			[]int{30},
			[]bool{true},
		},
	}
	for _, c := range cases {
		want := map[*hold]int32{}
		for i := range c.in {
			if p, ok := c.in[i].Holder.(*hold); ok && p != nil {
				p.n.Store(0)
				want[p] = 1
			}
		}
		got := zerocopy.Merge(c.in)
		if len(got) != len(c.sizes) {
			t.Fatalf("%s: %d regions, want %d", c.name, len(got), len(c.sizes))
		}
		for i := range got {
			if got[i].Size != c.sizes[i] || (got[i].Mem != nil) != c.mem[i] {
				t.Errorf("%s: region %d is %+v", c.name, i, got[i])
			}
			if got[i].Mem != nil && len(got[i].Mem) != got[i].Size {
				t.Errorf("%s: region %d: %d bytes of memory", c.name, i, len(got[i].Mem))
			}
		}
		zerocopy.ReleaseAll(got)
		for p, n := range want {
			if p.n.Load() != n {
				t.Errorf("%s: a hold was released %d times", c.name, p.n.Load())
			}
		}
	}
}

func TestReadAt(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	r := zerocopy.Region{FD: int(f.Fd()), Off: 2, Size: 5}
	got, err := io.ReadAll(io.NewSectionReader(&r, 0, 100))
	if err != nil || !bytes.Equal(got, []byte("23456")) {
		t.Fatalf("read %q, %v", got, err)
	}
	r.Size = 20
	if _, err := r.ReadAt(make([]byte, 20), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("short file: %v", err)
	}
	r.Size = 5
	r.Advance(2)
	got, _ = io.ReadAll(io.NewSectionReader(&r, 0, 100))
	if string(got) != "456" {
		t.Fatalf("after Advance: %q", got)
	}
}
