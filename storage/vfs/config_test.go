// SPDX-License-Identifier: Apache-2.0

package vfs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

func version(n int) []byte { return fmt.Appendf(nil, `{"version":%d}`, n) }

// load returns the version a configuration file has; -1 when there is none.
func load(t *testing.T, path string) (got int, source string, err error) {
	t.Helper()
	v := struct{ Version int }{-1}
	source, err = vfs.LoadJSONFile(path, func(b []byte) error {
		v.Version = -1
		return json.Unmarshal(b, &v)
	})
	return v.Version, source, err
}

func TestWriteFileAtomic(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config", "topics.json")
	if got, source, err := load(t, path); got != -1 || source != "" || err != nil {
		t.Fatalf("no file: %d %q %v", got, source, err)
	}
	for n := range 3 {
		if err := vfs.WriteFileAtomic(path, version(n)); err != nil {
			t.Fatal(err)
		}
		if got, source, err := load(t, path); got != n || source != path || err != nil {
			t.Fatalf("version %d: %d %q %v", n, got, source, err)
		}
	}
	if b, err := os.ReadFile(path + ".bak"); string(b) != string(version(1)) || err != nil {
		t.Errorf("backup %s %v", b, err)
	}
	if names := list(t, filepath.Dir(path)); names != "topics.json topics.json.bak" {
		t.Errorf("left behind: %s", names)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return strings.Join(names, " ")
}

// TestLoadDamaged is every damage to the file, with and without a valid backup, and to both.
func TestLoadDamaged(t *testing.T) {
	t.Parallel()
	good := version(7)
	damages := map[string][]byte{
		"empty": {}, "half": good[:len(good)/2], "zeros": make([]byte, len(good)),
		"tail": append(append([]byte{}, good...), good...), "text": []byte("no JSON"),
	}
	for name, damage := range damages {
		for _, backup := range []string{"valid", "missing", "damaged"} {
			t.Run("damage="+name+"/backup="+backup, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "x.json")
				write(t, path, damage)
				switch backup {
				case "valid":
					write(t, path+".bak", good)
				case "damaged":
					write(t, path+".bak", damage)
				}
				got, source, err := load(t, path)
				if backup == "valid" {
					if got != 7 || source != path+".bak" || err != nil {
						t.Fatalf("%d %q %v", got, source, err)
					}
					checkAside(t, path, damage)
					return
				}
				var bad *vfs.DamagedError
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), path) {
					t.Fatalf("%d %q %v", got, source, err)
				}
				if b, err := os.ReadFile(path); string(b) != string(damage) || err != nil {
					t.Errorf("the damaged file was changed: %q %v", b, err)
				}
				if err := vfs.SetAside(path); err != nil {
					t.Fatal(err)
				}
				if got, source, err := load(t, path); got != -1 || source != "" || err != nil {
					t.Errorf("after setting aside: %d %q %v", got, source, err)
				}
			})
		}
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkAside expects the damaged content under a new name.
func checkAside(t *testing.T, path string, damage []byte) {
	t.Helper()
	matches, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(matches) != 1 {
		t.Fatalf("set aside: %v %v", matches, err)
	}
	if b, err := os.ReadFile(matches[0]); string(b) != string(damage) || err != nil {
		t.Errorf("set aside %q %v", b, err)
	}
	if err := vfs.WriteFileAtomic(path, version(8)); err != nil {
		t.Fatal(err)
	}
	if got, source, err := load(t, path); got != 8 || source != path || err != nil {
		t.Errorf("written again: %d %q %v", got, source, err)
	}
}

// TestLoadNewest takes the newer of the two other copies when the file itself is missing.
func TestLoadNewest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, newest := range []string{".bak", ".tmp"} {
		path := filepath.Join(t.TempDir(), "x.json")
		for i, suffix := range []string{".bak", ".tmp"} {
			write(t, path+suffix, version(i))
			at := now.Add(-time.Hour)
			if suffix == newest {
				at = now
			}
			if err := os.Chtimes(path+suffix, at, at); err != nil {
				t.Fatal(err)
			}
		}
		_, source, err := load(t, path)
		if source != path+newest || err != nil {
			t.Errorf("newest %s: %q %v", newest, source, err)
		}
	}
}

// TestCrashWriteFileAtomic loses power before each step of each write. What was written before
// the interrupted write is there, or what the interrupted one writes.
func TestCrashWriteFileAtomic(t *testing.T) {
	t.Parallel()
	root, images := t.TempDir(), t.TempDir()
	fsys, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	writing, crashes := -1, 0
	fsys.Before = func(op, _ string) error {
		for _, keep := range []float64{0, 0.5, 1} {
			dst := filepath.Join(images, fmt.Sprint(crashes))
			crashes++
			if err := fsys.Crash(dst, rng, keep); err != nil {
				t.Error(err)
			}
			if err := os.MkdirAll(filepath.Join(dst, "config"), 0o755); err != nil {
				t.Error(err)
			}
			got, _, err := load(t, filepath.Join(dst, "config", "x.json"))
			if err != nil || (got != writing && got != writing-1) {
				t.Errorf("before %s of write %d keep=%v: version %d, %v",
					op, writing, keep, got, err)
			}
		}
		return nil
	}
	path := filepath.Join(root, "config", "x.json")
	for writing = range 6 {
		if err := vfs.WriteFileAtomicIn(fsys, path, version(writing)); err != nil {
			t.Fatal(err)
		}
	}
	if crashes < 60 {
		t.Errorf("only %d crashes", crashes)
	}
}
