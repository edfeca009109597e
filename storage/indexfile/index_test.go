// SPDX-License-Identifier: Apache-2.0

package indexfile_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// vector returns the files of an archive that Apache RocketMQ wrote, and its settings.
func vector(t *testing.T, name string) (files map[string][]byte, settings map[string]int64) {
	t.Helper()
	f, err := os.Open(filepath.Join("../testdata/vectors", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files, settings = map[string][]byte{}, map[string]int64{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(path.Clean(h.Name), "store/")] = b
	}
	for line := range strings.Lines(string(files["settings.properties"])) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		settings[key], _ = strconv.ParseInt(value, 10, 64)
	}
	return files, settings
}

func under(files map[string][]byte, dir string) (names []string) {
	for name := range files {
		if strings.HasPrefix(name, dir+"/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// eachRecord walks the log files of an archive.
func eachRecord(t *testing.T, files map[string][]byte, fn func(v record.View)) {
	t.Helper()
	for _, name := range under(files, "commitlog") {
		for b := files[name]; ; {
			v, err := record.Parse(b)
			if err != nil {
				break
			}
			fn(v)
			b = b[v.TotalSize():]
		}
	}
}

// TestGoldenIndex indexes RocketMQ's log again and gets RocketMQ's index, byte for byte.
func TestGoldenIndex(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"plain", "base", "many", "multi", "fit", "slow", "v2", "batch", "ipv6",
		"crc", "ext", "compressed",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, settings := vector(t, name)
			want := under(files, "index")
			dir := t.TempDir()
			created := 0
			ix, _, _, err := indexfile.Open(indexfile.Config{
				Dir: dir, Slots: int32(settings["maxHashSlotNum"]),
				Entries: int32(settings["maxIndexNum"]),
				Now: func() time.Time {
					at, err := time.ParseInLocation("20060102150405.000",
						path.Base(want[created])[:14]+"."+path.Base(want[created])[14:], time.Local)
					if err != nil {
						t.Fatal(err)
					}
					created++
					return at
				},
			}, indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
			if err != nil {
				t.Fatal(err)
			}
			eachRecord(t, files, func(v record.View) {
				if err := ix.Put(v, v.PhysicalOffset()); err != nil {
					t.Fatal(err)
				}
			})
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
			if created != len(want) {
				t.Fatalf("%d files made, want %d", created, len(want))
			}
			for _, file := range want {
				got, err := os.ReadFile(filepath.Join(dir, path.Base(file)))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, files[file]) {
					at := 0
					for at < len(got) && at < len(files[file]) && got[at] == files[file][at] {
						at++
					}
					t.Errorf("%s differs at byte %d of %d (%d)", file, at, len(got), len(files[file]))
				}
			}
		})
	}
}

func config(dir string) indexfile.Config {
	return indexfile.Config{Dir: dir, Slots: 7, Entries: 20}
}

// message builds a record with one key.
func message(at record.PhysicalOffset, ms int64, key string) record.View {
	d := record.Draft{
		Topic: []byte("T"), BornHost: netip.MustParseAddrPort("10.0.0.1:1"),
		StoreHost: netip.MustParseAddrPort("10.0.0.2:2"),
	}
	d.Properties = record.AppendProperty(nil, "KEYS", key)
	b := make([]byte, d.Size())
	d.Encode(b, record.Place{Physical: at, StoreMS: ms})
	v, err := record.Parse(b)
	if err != nil {
		panic(err)
	}
	return v
}

func openIndex(
	t *testing.T, cfg indexfile.Config, b indexfile.Bounds,
) (*indexfile.Index, record.PhysicalOffset) {
	t.Helper()
	ix, resume, foreign, err := indexfile.Open(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(foreign) > 0 {
		t.Fatalf("foreign %v", foreign)
	}
	return ix, resume
}

func put(t *testing.T, ix *indexfile.Index, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		at := record.PhysicalOffset(i * 100)
		if err := ix.Put(message(at, int64(i)*1000, fmt.Sprint("k", i%5)), at); err != nil {
			t.Fatal(err)
		}
	}
}

func find(t *testing.T, ix *indexfile.Index, q indexfile.Query) []record.PhysicalOffset {
	t.Helper()
	got, err := ix.Find(q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestFind walks chains through several files, newest first, within the time asked for.
func TestFind(t *testing.T) {
	t.Parallel()
	ix, _ := openIndex(t, config(t.TempDir()), indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
	put(t, ix, 1, 100)
	all := find(t, ix, indexfile.Query{Topic: "T", Key: "k3", Max: 64, EndMS: 1 << 40})
	if len(all) != 20 || all[0] != 9800 || all[19] != 300 {
		t.Fatalf("found %v", all)
	}
	some := find(t, ix, indexfile.Query{Topic: "T", Key: "k3", Max: 64, BeginMS: 20_000, EndMS: 40_000})
	if !slices.Equal(some, []record.PhysicalOffset{3800, 3300, 2800, 2300}) {
		t.Fatalf("found %v", some)
	}
	q := indexfile.Query{Topic: "T", Key: "k3", Max: 3, EndMS: 1 << 40}
	if few := find(t, ix, q); len(few) != 3 {
		t.Fatalf("found %v", few)
	}
	q.Tags = true
	if none := find(t, ix, q); none != nil {
		t.Fatalf("found %v", none)
	}
	if n, err := ix.DeleteBelow(3000); n != 1 || err != nil {
		t.Fatalf("deleted %d, %v", n, err)
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenTrust keeps what can be trusted and says where to go on, so that nothing is missing.
func TestOpenTrust(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		b      indexfile.Bounds
		resume record.PhysicalOffset
		files  int
	}{
		"clean":          {indexfile.Bounds{Clean: true, LogEnd: 1 << 40}, 9900, 6},
		"clean, log cut": {indexfile.Bounds{Clean: true, LogEnd: 9000}, 7600, 4},
		"crash":          {indexfile.Bounds{SafeMS: 57_000, LogEnd: 1 << 40}, 5700, 3},
		"crash, unknown": {indexfile.Bounds{LogMin: 500, LogEnd: 1 << 40}, 500, 0},
		"log gone":       {indexfile.Bounds{Clean: true, LogMin: 20_000, LogEnd: 1 << 40}, 20_000, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t.TempDir())
			safe := int64(0)
			cfg.OnFull = func(ms int64) error { safe = ms; return nil }
			ix, _ := openIndex(t, cfg, indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
			put(t, ix, 1, 100)
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
			if safe != 95_000 {
				t.Fatalf("last full file ends at %d", safe)
			}
			ix, resume := openIndex(t, cfg, c.b)
			if resume != c.resume || len(ix.Files()) != c.files {
				t.Fatalf("resume %d with %d files, want %+v", resume, len(ix.Files()), c)
			}
			put(t, ix, int(resume/100), 100)
			q := indexfile.Query{Topic: "T", Key: "k3", Max: 64, EndMS: 1 << 40}
			if got := find(t, ix, q); len(got) < 20 && c.b.LogMin == 0 {
				t.Fatalf("found %v", got)
			}
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOpenRefusesOtherShape names the configuration keys.
func TestOpenRefusesOtherShape(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	ix, _ := openIndex(t, cfg, indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
	put(t, ix, 1, 5)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Slots = 8
	_, _, _, err := indexfile.Open(cfg, indexfile.Bounds{})
	if err == nil || !strings.Contains(err.Error(), "maxHashSlotNum") {
		t.Fatalf("error %v", err)
	}
}

// TestAllocsPut holds indexing at zero allocations.
func TestAllocsPut(t *testing.T) {
	cfg := indexfile.Config{Dir: t.TempDir(), Slots: 100, Entries: 100_000}
	ix, _ := openIndex(t, cfg, indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
	v := message(100, 1000, "some keys here")
	at := record.PhysicalOffset(100)
	n := testing.AllocsPerRun(1000, func() {
		at += 100
		if err := ix.Put(v, at); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
}
