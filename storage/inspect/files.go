// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/indexfile"
)

// Checkpoint is the file checkpoint, and what lies beside it.
type Checkpoint struct {
	storage.Checkpoint
	// Abort says that the file abort is there: the store is open, or was not closed.
	Abort bool
	// Opener is the process that the file abort names, 0 if none.
	Opener int
}

// Checkpoint reads the file checkpoint. fs.ErrNotExist when there is none.
func (d *Dir) Checkpoint() (c Checkpoint, err error) {
	if text, err := os.ReadFile(filepath.Join(d.root, "abort")); err == nil {
		c.Abort = true
		_, _ = fmt.Sscan(string(text), &c.Opener)
	}
	b, err := os.ReadFile(filepath.Join(d.root, "checkpoint"))
	if err != nil {
		return c, fmt.Errorf("inspect: %w", err)
	}
	c.Checkpoint = storage.DecodeCheckpoint(b)
	return c, nil
}

// IndexFile is one index file.
type IndexFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	indexfile.Header
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
}

// IndexFiles lists the index files, oldest first.
func (d *Dir) IndexFiles() ([]IndexFile, error) {
	files, err := numbered(filepath.Join(d.root, "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	list := make([]IndexFile, 0, len(files))
	for _, n := range files {
		f, err := os.Open(n.path)
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		h, err := indexfile.ReadHeader(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("inspect: %s: %w", n.path, err)
		}
		list = append(list, IndexFile{
			Name: filepath.Base(n.path), Size: n.size, Header: h,
			Begin: time.UnixMilli(h.BeginMS), End: time.UnixMilli(h.EndMS),
		})
	}
	return list, nil
}

// ConfigFile is one file of the folder config.
type ConfigFile struct {
	Name     string    `json:"name"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	// Fault says why it cannot be read as JSON; empty for a sound one.
	Fault string `json:"fault,omitempty"`
	// Text is the content as it is.
	Text []byte `json:"-"`
}

// configLimit bounds what is read of one file, in bytes.
const configLimit = 256 << 20

// bareKeys are numbers as member names, which RocketMQ writes.
var bareKeys = regexp.MustCompile(`([{,]\s*)(-?\d+)(\s*:)`)

// ConfigFiles lists the JSON files in the folder config with their backups, and tells which are not
// sound.
func (d *Dir) ConfigFiles() ([]ConfigFile, error) {
	dir := filepath.Join(d.root, "config")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var list []ConfigFile
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(strings.TrimSuffix(name, ".bak"), ".json") {
			continue
		}
		c, err := readConfig(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		list = append(list, c)
	}
	return list, nil
}

func readConfig(path string) (c ConfigFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return c, err
	}
	c = ConfigFile{Name: filepath.Base(path), Size: info.Size(), Modified: info.ModTime()}
	if c.Text, err = io.ReadAll(io.LimitReader(f, configLimit)); err != nil {
		return c, err
	}
	if len(c.Text) == 0 {
		c.Fault = "the file is empty"
		return c, nil
	}
	var v any
	if err := json.Unmarshal(bareKeys.ReplaceAll(c.Text, []byte(`$1"$2"$3`)), &v); err != nil {
		c.Fault = err.Error()
	}
	return c, nil
}
