// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine/enginetest"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text     string
		min, max int
		mean     float64
	}{
		{"1024", 1024, 1024, 1024},
		{"100-300", 100, 300, 200},
		{"exp:500", 1, 10_000, 500},
		{"100:70,1000:25,5000:5", 100, 5000, 570},
	} {
		s, err := parseSizes(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		const n = 200_000
		sum, least, most := 0, math.MaxInt, 0
		for range n {
			size := s.draw(r)
			sum += size
			least, most = min(least, size), max(most, size)
		}
		if s.min != tc.min || s.max != tc.max || least < tc.min || most > tc.max {
			t.Errorf("%s: sizes %d to %d, bounds %d to %d", tc.text, least, most, s.min, s.max)
		}
		if got := float64(sum) / n; math.Abs(got-tc.mean) > tc.mean/50 || math.Abs(s.mean-tc.mean) > 1e-6 {
			t.Errorf("%s: mean %.1f, told as %.1f, want %.1f", tc.text, got, s.mean, tc.mean)
		}
	}
	for _, bad := range []string{"", "0", "-5", "5-2", "99999999", "exp:", "exp:0", "10:0", "10:x", "10,,5", "5:NaN"} {
		if _, err := parseSizes(bad); err == nil {
			t.Errorf("sizes %q were accepted", bad)
		}
	}
}

// received sends count messages with cfg and reads them with the client of this module.
func received(t *testing.T, set func(*Produce), count int) []*client.Received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cluster := enginetest.Start(t)
	p := DefaultProduce()
	p.NameServers, p.Topic, p.Count = []string{cluster.NameServer()}, "bodies", int64(count)
	set(&p)
	if res := produce(t, p); res.Messages != int64(count) {
		t.Fatalf("produced %+v", res)
	}
	c, err := client.New([]string{cluster.NameServer()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	reader, err := c.NewReader("", client.WithSubscription("bodies", client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	var list []*client.Received
	for len(list) < count {
		batch, err := reader.Poll(ctx, count)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, batch...)
	}
	return list
}

// TestE2EBodies: what is drawn or read from a file is what any client receives, compressed or not,
// single or in batches, with the properties that were asked for.
func TestE2EBodies(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bodies")
	lines := []string{"first", strings.Repeat("second ", 2000), "third"}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, binaryForm := range []bool{false, true} {
		for _, compress := range []string{"", "zlib", "lz4", "zstd"} {
			t.Run(fmt.Sprintf("compress=%s/binary=%v", compress, binaryForm), func(t *testing.T) {
				t.Parallel()
				list := received(t, func(p *Produce) {
					p.Bodies, p.Compress, p.CompressOver, p.Binary = file, compress, 1000, binaryForm
					p.Properties = []string{"color=blue"}
				}, 300)
				for _, m := range list {
					if !slices.Contains(lines, string(m.Body)) || m.Properties["color"] != "blue" {
						t.Fatalf("received %.40q with %v", m.Body, m.Properties)
					}
				}
			})
		}
	}
	t.Run("drawn in batches", func(t *testing.T) {
		t.Parallel()
		seen := map[int]bool{}
		for _, m := range received(t, func(p *Produce) { p.Sizes, p.Batch = "10-200", 10 }, 600) {
			seen[len(m.Body)] = true
		}
		if len(seen) < 100 {
			t.Errorf("%d different sizes of 191", len(seen))
		}
	})
}

// TestE2ESizesVerified: numbered messages of any size are read back whole.
func TestE2ESizesVerified(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	for _, batch := range []int{1, 7} {
		cfg := testTogether(cluster.NameServer())
		cfg.Produce.Sizes, cfg.Produce.Batch = "60-3000", batch
		cfg.Produce.Duration, cfg.Produce.Count = 0, 2100
		res := together(t, cfg)
		if !res[1].OK || res[1].Verify.Messages != 2100 {
			t.Errorf("batch %d: %s %+v", batch, res[1].Problem, res[1].Verify)
		}
	}
}

func TestCompressible(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	last := math.MaxInt
	for _, share := range []float64{0, 0.5, 1} {
		out, _, err := client.Compress(client.Zlib, 5, makeBody(r, 10_000, share))
		if err != nil {
			t.Fatal(err)
		}
		if len(out) >= last || share == 0 && len(out) < 9000 || share == 1 && len(out) > 500 {
			t.Errorf("share %v: 10000 bytes become %d", share, len(out))
		}
		last = len(out)
	}
}

func TestBodiesFile(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{empty: "no line", "/nowhere": "no such file"} {
		if _, err := readBodies(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}
