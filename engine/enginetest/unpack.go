// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Unpack extracts a .tar.gz of a store, as RocketMQ left it, into a new folder and returns that.
func Unpack(t testing.TB, archive string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unpack(archive, dir); err != nil {
		t.Fatalf("enginetest: unpack %s: %v", archive, err)
	}
	return dir
}

func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
}
