// SPDX-License-Identifier: Apache-2.0

package zerocopy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skylarkmq/skylark/zerocopy"
)

// pair returns two ends of a non-blocking stream socket.
func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[0]); _ = unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func file(t *testing.T, data []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

func receive(t *testing.T, fd, n int) []byte {
	t.Helper()
	buf := make([]byte, n)
	got, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:got]
}

func TestSendfile(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	r := zerocopy.Region{FD: int(file(t, []byte("0123456789")).Fd()), Off: 3, Size: 5}
	n, err := zerocopy.Sendfile(a, &r, 100)
	if n != 5 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
	if got := receive(t, b, 100); string(got) != "34567" {
		t.Fatalf("received %q", got)
	}
	if n, err = zerocopy.Sendfile(a, &r, 2); n != 2 || err != nil {
		t.Fatalf("limited: sent %d, %v", n, err)
	}
	r.Off, r.Size = 10, 1
	if _, err = zerocopy.Sendfile(a, &r, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("past the end: %v", err)
	}
}

// TestWritev proves order, the cap of slices and what a full socket answers.
func TestWritev(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	for _, count := range []int{0, 1, 16, 17, 512, 2000} {
		var want []byte
		bufs := make([][]byte, count)
		for i := range bufs {
			bufs[i] = bytes.Repeat([]byte{byte(i)}, i%4)
			want = append(want, bufs[i]...)
		}
		var got []byte
		for len(got) < len(want) {
			n, err := zerocopy.Writev(a, bufs)
			if err != nil || n == 0 {
				t.Fatalf("%d slices: sent %d, %v", count, n, err)
			}
			got = append(got, receive(t, b, n)...)
			for n > 0 || (len(bufs) > 0 && len(bufs[0]) == 0) {
				k := min(n, len(bufs[0]))
				n -= k
				if bufs[0] = bufs[0][k:]; len(bufs[0]) == 0 {
					bufs = bufs[1:]
				}
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d slices: bytes differ", count)
		}
	}
	big := [][]byte{make([]byte, 1<<20)}
	var err error
	for range 100 {
		if _, err = zerocopy.Writev(a, big); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("full socket: %v", err)
	}
}

func TestAllocsSend(t *testing.T) {
	a, b := pair(t)
	r := zerocopy.Region{FD: int(file(t, []byte("0123456789")).Fd()), Size: 10}
	bufs := make([][]byte, 40)
	for i := range bufs {
		bufs[i] = []byte("x")
	}
	in := make([]byte, 1000)
	got := testing.AllocsPerRun(100, func() {
		_, e1 := zerocopy.Sendfile(a, &r, 10)
		_, e2 := zerocopy.Writev(a, bufs)
		_, e3 := zerocopy.Send(a, bufs[0], true)
		if e1 != nil || e2 != nil || e3 != nil {
			t.Fatal(e1, e2, e3)
		}
		for {
			if n, err := unix.Read(b, in); n < len(in) || err != nil {
				break
			}
		}
	})
	if got != 0 {
		t.Fatalf("%v allocations per run, want 0", got)
	}
}
