// SPDX-License-Identifier: Apache-2.0

//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Names beside a configuration file. RocketMQ reads the first and ignores the second.
const (
	backupSuffix = ".bak"
	tempSuffix   = ".tmp"
)

// WriteFileAtomic replaces a configuration file; the content is durable on return. The previous
// content stays as path.bak, as RocketMQ's ConfigManager leaves it. Directories are created.
//
// After a crash at any point the file or its backup is whole, and LoadJSONFile finds it: the new
// content is on disk under a temporary name before the old one is touched. An empty old file does
// not replace the backup. One caller at a time per path.
func WriteFileAtomic(path string, data []byte) error { return WriteFileAtomicIn(OS(), path, data) }

// WriteFileAtomicIn is WriteFileAtomic in a given file system.
func WriteFileAtomicIn(fsys FS, path string, data []byte) error {
	if err := writeFileAtomic(fsys, path, data); err != nil {
		return fmt.Errorf("vfs: write %s: %w", path, err)
	}
	return nil
}

func writeFileAtomic(fsys FS, path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	if err := writeSynced(fsys, path+tempSuffix, data); err != nil {
		return err
	}
	info, err := fsys.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && info.Size() > 0 {
		// The name of the new content must be durable before the old name goes, or a crash could
		// leave neither beside an old backup.
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
		if err := fsys.Rename(path, path+backupSuffix); err != nil {
			return err
		}
	}
	if err := fsys.Rename(path+tempSuffix, path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// ReplaceFileIn replaces a file, which needs no backup: at no moment is there neither the old content nor
// the new one under its name, whatever ends the call, so a file whose presence says something is never
// away. The content is durable on return. Directories are created. One caller at a time per path.
func ReplaceFileIn(fsys FS, path string, data []byte) error {
	err := fsys.MkdirAll(filepath.Dir(path))
	if err == nil {
		err = writeSynced(fsys, path+tempSuffix, data)
	}
	if err == nil {
		err = fsys.Rename(path+tempSuffix, path)
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("vfs: write %s: %w", path, err)
	}
	return nil
}

// writeSynced writes a whole file and waits for the disk.
func writeSynced(fsys FS, path string, data []byte) error {
	f, err := fsys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// DamagedError says that copies of a configuration file exist and none can be read. Nothing was
// changed. SetAside moves them out of the way for a start with empty state.
type DamagedError struct {
	Path   string
	Copies []DamagedCopy
}

// DamagedCopy is one of them.
type DamagedCopy struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "vfs: load %s: no copy is valid", e.Path)
	for _, c := range e.Copies {
		fmt.Fprintf(&b, "; %s: %v", c.Path, c.Err)
	}
	return b.String()
}

// Unwrap gives the causes to errors.Is and errors.As.
func (e *DamagedError) Unwrap() []error {
	errs := make([]error, len(e.Copies))
	for i, c := range e.Copies {
		errs[i] = c.Err
	}
	return errs
}

// errEmpty is the damage of a file that a power loss cut to nothing.
var errEmpty = errors.New("file is empty")

// LoadJSONFile reads a configuration file with decode, which refuses what it does not understand
// (also bytes behind the end) and replaces all state of an earlier call. If the file is missing or
// damaged it takes the newer valid one of path.tmp and path.bak, renames damaged ones to
// name.damaged-<milliseconds>, and completes an interrupted write.
//
// source is the path it read: not path itself when it had to fall back, which the caller reports,
// and empty when no copy exists, or only a damaged path.tmp. A *DamagedError means that some exist but none is valid.
func LoadJSONFile(path string, decode func([]byte) error) (source string, err error) {
	return LoadJSONFileIn(OS(), path, decode)
}

// LoadJSONFileIn is LoadJSONFile in a given file system.
func LoadJSONFileIn(fsys FS, path string, decode func([]byte) error) (source string, err error) {
	var damaged []DamagedCopy
	for _, p := range candidates(fsys, path) {
		data, err := readFile(fsys, p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("vfs: load %s: %w", p, err)
		}
		if len(data) == 0 {
			err = errEmpty
		} else {
			err = decode(data)
		}
		if err == nil {
			return p, settle(fsys, path, p, damaged)
		}
		damaged = append(damaged, DamagedCopy{Path: p, Err: err})
	}
	if len(damaged) == 0 {
		return "", nil
	}
	if len(damaged) == 1 && damaged[0].Path == path+tempSuffix {
		// The first write of all never ended; nobody was promised its content.
		return "", setAside(fsys, damaged[0].Path)
	}
	return "", &DamagedError{Path: path, Copies: damaged}
}

// Table is a configuration file for LoadTable.
type Table struct {
	FS   FS // nil: the operating system's
	Path string
	What string // is in it, for the log
	// AllowEmpty goes on without the file when every copy of it is damaged.
	AllowEmpty bool
	Notice     func(msg string, kv ...any) // may be nil
}

// LoadTable reads a configuration file as LoadJSONFile does, and says in the log when it had to take
// another copy. loaded is false when there is none. When there are some and none is valid it returns a
// *DamagedError, or, with AllowEmpty, says so, sets them aside, and loaded is false; what decode left
// behind is then to be thrown away.
func LoadTable(t Table, decode func([]byte) error) (loaded bool, err error) {
	if t.FS == nil {
		t.FS = OS()
	}
	notice := t.Notice
	if notice == nil {
		notice = func(string, ...any) {}
	}
	source, err := LoadJSONFileIn(t.FS, t.Path, decode)
	var damaged *DamagedError
	switch {
	case t.AllowEmpty && errors.As(err, &damaged):
		notice("starting without "+t.What+", every copy of the file is damaged", "path", t.Path, "err", err)
		return false, setAsideAll(t.FS, t.Path)
	case err != nil:
		return false, err
	case source != "" && source != t.Path:
		notice(t.What+" read from a copy, the file is damaged or missing", "path", t.Path, "from", source)
	}
	return source != "", nil
}

// candidates returns the copies in the order of trust: the file itself, then the newer of the
// other two. The time decides, since a Java broker may have gone on beside an old temporary file.
func candidates(fsys FS, path string) []string {
	temp, errTemp := fsys.Stat(path + tempSuffix)
	backup, errBackup := fsys.Stat(path + backupSuffix)
	if errTemp == nil && errBackup == nil && temp.ModTime().Before(backup.ModTime()) {
		return []string{path, path + backupSuffix, path + tempSuffix}
	}
	return []string{path, path + tempSuffix, path + backupSuffix}
}

// settle puts damaged copies aside and finishes what a crash interrupted.
func settle(fsys FS, path, source string, damaged []DamagedCopy) error {
	for _, c := range damaged {
		if err := setAside(fsys, c.Path); err != nil {
			return fmt.Errorf("vfs: set %s aside: %w", c.Path, err)
		}
	}
	var err error
	switch source {
	case path + tempSuffix:
		err = fsys.Rename(source, path)
	case path:
		// A write that never ended; nobody was promised its content.
		if err = fsys.Remove(path + tempSuffix); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	default:
		return nil
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("vfs: load %s: %w", source, err)
	}
	return nil
}

// SetAside renames every copy of a configuration file to name.damaged-<milliseconds>, so that the
// next load finds none.
func SetAside(path string) error { return setAsideAll(OS(), path) }

func setAsideAll(fsys FS, path string) error {
	for _, p := range []string{path, path + tempSuffix, path + backupSuffix} {
		if err := setAside(fsys, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("vfs: set %s aside: %w", p, err)
		}
	}
	return nil
}

func setAside(fsys FS, path string) error {
	to := fmt.Sprintf("%s.damaged-%d", path, time.Now().UnixMilli())
	if err := fsys.Rename(path, to); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

func readFile(fsys FS, path string) ([]byte, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if int64(n) == size {
		return data, nil
	}
	return nil, err
}
