// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

const dataSize = 24 << 20

// seed of the random tests; they print the one they used.
var seedFlag = flag.Uint64("seed", 0, "seed of the random tests, 0 for a new one")

// checkRuns proves that body is the runs of the data file, byte for byte.
func checkRuns(body []byte, runs []run) error {
	at := 0
	for i, r := range runs {
		if len(body) < at+r.size {
			return fmt.Errorf("run %d of %d: %d bytes, want %d more", i, len(runs), len(body)-at, r.size)
		}
		for j := range r.size {
			if got, want := body[at+j], pattern(r.off+j); got != want {
				return fmt.Errorf("run %d of %d (%+v), byte %d is %#x, want %#x",
					i, len(runs), r, j, got, want)
			}
		}
		at += r.size
	}
	if at != len(body) {
		return fmt.Errorf("%d bytes behind the last run", len(body)-at)
	}
	return nil
}

// TestRunSizes walks over the sizes at which the way of sending changes.
func TestRunSizes(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, dataSize)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, data)
		p := h.connect(0)
		for _, size := range []int{
			0, 1, 100, 8<<10 - 1, 8 << 10, 16<<10 - 1, 16 << 10, 64<<10 - 1, 64 << 10, 300_000, 2 << 20,
		} {
			for _, count := range []int{0, 1, 2, 5} {
				var runs, adjacent []run
				for i := range count {
					runs = append(runs, run{off: i * (size + 1), size: size})
					adjacent = append(adjacent, run{off: i * size, size: size})
				}
				for _, rs := range [][]run{runs, adjacent} {
					if err := checkRuns(p.call(codeRegions, runsBody(rs)), rs); err != nil {
						t.Fatalf("%d runs of %d: %v", count, size, err)
					}
				}
			}
		}
	})
}

// TestManyRuns proves that more runs than one writev takes do no harm, small ones and mapped ones.
func TestManyRuns(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, dataSize)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, data)
		p := h.connect(0)
		for _, c := range []struct{ count, size int }{{5000, 100}, {1500, 9 << 10}} {
			runs := make([]run, c.count)
			for i := range runs {
				runs[i] = run{off: i * (c.size + 1), size: c.size}
			}
			if err := checkRuns(p.call(codeRegions, runsBody(runs)), runs); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		}
	})
}

// TestModelMix sends random mixes of region answers, small answers and deferred ones through many
// connections, some of which read through a tiny buffer and some of which hang up in the middle.
func TestModelMix(t *testing.T) {
	t.Parallel()
	data := newDataFile(t, dataSize)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed=%d", seed)
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		for _, loops := range []int{1, 2} {
			cfg.Loops = loops
			h := start(t, cfg, data)
			conns, requests := 24, 60
			if testing.Short() || raceEnabled {
				conns, requests = 12, 25
			}
			var wg sync.WaitGroup
			for i := range conns {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					if err := mix(h, rng, i, requests); err != nil {
						t.Errorf("connection %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			eventually(t, "all regions are released", func() bool { return data.live.Load() == 0 })
			h.stop()
		}
	})
}

// mix is one connection of TestModelMix.
func mix(h *harness, rng *rand.Rand, id, requests int) error {
	conn, err := net.Dial("tcp", h.srv.Addrs()[id%2].String())
	if err != nil {
		return err
	}
	defer conn.Close()
	slow := id%4 == 0
	if slow {
		// Through such a window the kernel moves little, so that much must not be asked for.
		requests = 3
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			return err
		}
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	quitAt := -1
	if id%3 == 0 {
		quitAt = rng.IntN(requests)
	}
	expect := make([][]run, requests)
	codes := make([]int32, requests)
	go func() {
		for i := range requests {
			codes[i], expect[i] = codeRegions, randomRuns(rng)
			if slow {
				expect[i] = expect[i][:min(len(expect[i]), 2)]
				for j := range expect[i] {
					expect[i][j].size = min(expect[i][j].size, 30<<10)
				}
			}
			if i%5 == 4 {
				codes[i] = codeEcho
			}
			if i%7 == 6 {
				codes[i] = codeDefer
			}
		}
		for i := range requests {
			f := frame(codes[i], remoting.Opaque(i), runsBody(expect[i]))
			if _, err := conn.Write(f); err != nil {
				return // the reader has hung up
			}
		}
	}()
	return mixRead(conn, quitAt, requests, codes, expect)
}

func mixRead(conn net.Conn, quitAt, requests int, codes []int32, expect [][]run) error {
	var cmd remoting.Command
	for done := range requests {
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		b := make([]byte, binary.BigEndian.Uint32(head[:]))
		if done == quitAt {
			_, _ = io.ReadFull(conn, b[:len(b)/2])
			return nil
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		if err := cmd.Decode(b); err != nil {
			return err
		}
		i := int(cmd.Opaque)
		if codes[i] != codeRegions {
			if want := runsBody(expect[i]); string(cmd.Body) != string(want) {
				return fmt.Errorf("answer %d: echo differs", i)
			}
			continue
		}
		if err := checkRuns(cmd.Body, expect[i]); err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
	}
	return nil
}

// randomRuns returns 0 to 32 runs of one order of magnitude, some of them adjacent.
func randomRuns(rng *rand.Rand) []run {
	runs := make([]run, rng.IntN(33))
	limit := []int{200, 4 << 10, 20 << 10, 100 << 10}[rng.IntN(4)]
	off := rng.IntN(dataSize / 2)
	for i := range runs {
		if rng.IntN(2) == 0 {
			off = rng.IntN(dataSize / 2)
		}
		runs[i] = run{off: off, size: 1 + rng.IntN(limit)}
		off += runs[i].size
	}
	return runs
}
