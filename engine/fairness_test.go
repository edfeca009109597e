// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// fairWithin bounds the 99th percentile of the others' sends. On a machine with nothing else to do it is
// 20 ms; tests share theirs.
const fairWithin = time.Second

// TestFairness: a client that floods the broker over one connection, into one topic, with the pulls of one
// group, does not starve others: their sends are answered in time.
func TestFairness(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flood func(i int) (remoting.RequestCode, remoting.Header, []byte)
	}{
		{"sends over one connection into one topic", func(int) (remoting.RequestCode, remoting.Header, []byte) {
			return remoting.SendMessageV2, sendRequest("flooded", 0), []byte(strings.Repeat("x", 1000))
		}},
		{"pulls of one group", func(i int) (remoting.RequestCode, remoting.Header, []byte) {
			r := pullRequest("flooded", 0, int64(i%500), "*", 0)
			r.Group = []byte("flooding")
			return remoting.PullMessage, r, nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := enginetest.Start(t)
			p := newPeer(t, cluster.Broker())
			for i := range 600 {
				p.send("flooded", 0, fmt.Sprint("message ", i, strings.Repeat("y", 900)))
			}
			p.send("other", 0, "hello")
			var burst []byte
			for i := range floodBurst {
				code, header, body := c.flood(i)
				e := remoting.Begin(nil, remoting.Head{
					Code: int32(code), Version: remoting.ProtocolVersion, Opaque: remoting.Opaque(i),
				})
				header.AppendFields(&e)
				burst = append(burst, e.End(body)...)
			}
			answered := flood(t, cluster.Broker(), burst)
			latencies := make([]time.Duration, 300)
			for i := range latencies {
				began := time.Now()
				p.send("other", 0, "hello")
				latencies[i] = time.Since(began)
			}
			bytes := answered()
			slices.Sort(latencies)
			p50, p99 := latencies[len(latencies)/2], latencies[len(latencies)*99/100]
			t.Logf("p50 %v, p99 %v beside %d bytes of answers to the flood", p50, p99, bytes)
			if p99 > fairWithin {
				t.Errorf("the 99th percentile of the others is %v, the bound is %v", p99, fairWithin)
			}
			if bytes < 100_000 {
				t.Errorf("%d bytes were answered: that is no flood", bytes)
			}
		})
	}
}

// floodBurst is how many requests a flood writes at once.
const floodBurst = 64

// flood writes bursts over one connection as fast as they are taken, and reads the answers. The returned
// function ends it and tells how many bytes were answered.
func flood(t *testing.T, addr string, burst []byte) (end func() int64) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		for {
			if _, err := conn.Write(burst); err != nil {
				return
			}
		}
	})
	var answered int64
	var early error
	both.Go(func() {
		in := bufio.NewReader(conn)
		for {
			size, err := skipFrame(in)
			if err != nil {
				early = err
				return
			}
			answered += size
		}
	})
	return func() int64 {
		_ = conn.Close()
		both.Wait()
		if !errors.Is(early, net.ErrClosed) {
			t.Errorf("the flood ended early: %v", early)
		}
		return answered
	}
}

// skipFrame reads one frame and tells its size.
func skipFrame(in *bufio.Reader) (int64, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, err
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	_, err := io.CopyN(io.Discard, in, size)
	return size, err
}
