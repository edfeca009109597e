// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Each golden directory, once Skylark has opened it, added to it and closed it, is read by the real store
// as by ours: recovery and appends leave nothing behind that RocketMQ takes otherwise.
func TestCompatGolden(t *testing.T) {
	t.Parallel()
	names := []string{"base-crash", "many-crash", "v2", "timer-crash", "lmq", "filler-visible"}
	if *compatFull {
		names = nil
		archives, err := filepath.Glob("../../storage/testdata/vectors/*.tar.gz")
		if err != nil || len(archives) == 0 {
			t.Fatalf("no vectors: %v", err)
		}
		for _, archive := range archives {
			names = append(names, strings.TrimSuffix(filepath.Base(archive), ".tar.gz"))
		}
	}
	read, units := 0, 0
	for _, name := range names {
		if slices.Contains([]string{
			"defaults",                                         // takes half a minute: it is 1.4 GB long
			"batchcq",                                          // is kept and not served
			"lmq-poison",                                       // RocketMQ does not load it, before and after
			"ext",                                              // the two stores name an ext unit's tag by different numbers
			"middle-body-flip-crash", "middle-size-flip-crash", // need --recover=skip
			"middle-body-flip-clean", "foreign-file-clean", // RocketMQ takes the one record, and not the other's file
		}, name) {
			continue
		}
		if !t.Run(name, func(t *testing.T) { units += addedTo(t, name) }) {
			continue
		}
		read++
	}
	summarizeCompat(t, fmt.Sprintf("%s: %d golden directories, added to by Skylark, read the same by both: %d units",
		t.Name(), read, units))
}

// addedTo opens a golden directory with our store, adds messages, and compares. It returns the units.
func addedTo(t *testing.T, name string) int {
	t.Helper()
	dir := enginetest.Unpack(t, filepath.Join("../../storage/testdata/vectors", name+".tar.gz"))
	conf := properties(t, filepath.Join(dir, "settings.properties"))
	dir = filepath.Join(dir, "store")
	if conf["maxMessageSize"] == "" {
		conf["maxMessageSize"] = "16384" // the files of these are small
	}
	s, err := storage.Open(storeConfig(dir, conf))
	if err != nil {
		t.Fatal(err)
	}
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	for i := range 5 {
		for _, topic := range []string{"Bulk0", "Added"} {
			text := record.AppendProperty(nil, "KEYS", fmt.Appendf(nil, "added%d", i))
			text = record.AppendProperty(text, "UNIQ_KEY", fmt.Appendf(nil, "ADDED%s%027d", topic, i))
			e := []storage.Entry{{Draft: record.Draft{
				Topic: []byte(topic), BornHost: host, StoreHost: host, BornMS: 1, Body: []byte("added"), Properties: text,
			}}}
			if s.Append(e); e[0].Err != nil {
				t.Fatal(e[0].Err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return sameForBoth(t, dir, conf, false)
}

// properties reads a file of lines key=value.
func properties(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok {
			out[key] = value
		}
	}
	return out
}
