// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// crashState is what only a graceful end writes: with it put back, a store closed in this process is
// what a killed process leaves. Log, queues and index are memory-mapped, so their bytes survive the
// process either way.
type crashState struct {
	dir   string
	files map[string][]byte // by path below dir; nil: the file did not exist
}

// endOnly lists those files.
func endOnly() []string {
	var list []string
	for _, name := range []string{"consumerOffset.json", "consumerOrderInfo.json"} {
		for _, suffix := range []string{"", ".bak", ".tmp"} {
			list = append(list, filepath.Join("config", name+suffix))
		}
	}
	return append(list, "checkpoint")
}

func takeCrashState(dir string) (crashState, error) {
	s := crashState{dir: dir, files: map[string][]byte{}}
	for _, name := range endOnly() {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		s.files[name] = data
	}
	return s, nil
}

// restore puts the files back and marks the store as not closed.
func (s crashState) restore() error {
	var errs []error
	for name, data := range s.files {
		path := filepath.Join(s.dir, name)
		if data == nil {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, os.WriteFile(path, data, 0o644))
	}
	errs = append(errs, os.WriteFile(filepath.Join(s.dir, "abort"), nil, 0o644))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clienttest: putting back the state before the kill: %w", err)
	}
	return nil
}
