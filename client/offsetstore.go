// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skylarkmq/skylark/net/protocol"
)

// OffsetStore keeps the positions of a broadcasting group, one store for each member. A position is
// the offset of the first message that is not done. Methods may be called at once; both may block.
type OffsetStore interface {
	// Load returns a position; found is false when there is none.
	Load(ctx context.Context, group string, q Queue) (offset int64, found bool, err error)
	// Save stores positions and leaves those of other queues as they are. When it returns nil they
	// must survive the end of the process.
	Save(ctx context.Context, group string, offsets map[Queue]int64) error
}

// FileOffsets is an OffsetStore in one file for each group: directory/group/offsets.json, in the
// form of RocketMQ's LocalFileOffsetStore, whose files it reads, as it does those of the Go client.
// Every Save writes a new file and renames it over the old one, which stays as offsets.json.bak, so
// a crash leaves one whole file at least. No two processes may use one directory.
type FileOffsets struct {
	directory string

	mu     sync.Mutex // held across file I/O, which only this store waits for
	groups map[string]map[protocol.MessageQueue]int64
}

// NewFileOffsets makes a store in a directory, which is created by the first Save.
func NewFileOffsets(directory string) *FileOffsets {
	return &FileOffsets{directory: directory, groups: map[string]map[protocol.MessageQueue]int64{}}
}

// localOffsets is the store of a broadcasting group that was given none.
func localOffsets(name string) (*FileOffsets, error) {
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("broadcast without a name: %w", err)
		}
		name = host
	}
	if strings.ContainsAny(name, `/\`) || name == "." || name == ".." {
		return nil, fmt.Errorf("broadcast name %q cannot be the name of a folder", name)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("broadcast without a store: %w", err)
	}
	return NewFileOffsets(filepath.Join(home, ".rocketmq_offsets", name)), nil
}

func (s *FileOffsets) path(group string) string {
	return filepath.Join(s.directory, group, "offsets.json")
}

// Load returns a position. The first call for a group reads its file.
func (s *FileOffsets) Load(_ context.Context, group string, q Queue) (int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	table, err := s.tableLocked(group)
	if err != nil {
		return 0, false, err
	}
	offset, found := table[wireQueue(q)]
	return offset, found, nil
}

// Save writes the group's file anew.
func (s *FileOffsets) Save(_ context.Context, group string, offsets map[Queue]int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	table, err := s.tableLocked(group)
	if err != nil {
		return err
	}
	for q, offset := range offsets {
		table[wireQueue(q)] = offset
	}
	path := s.path(group)
	data := protocol.Marshal(&protocol.ResetOffsetBody{OffsetTable: table})
	if err := replaceFile(path, data); err != nil {
		return fmt.Errorf("client: positions of group %s: %w", group, err)
	}
	return nil
}

func (s *FileOffsets) tableLocked(group string) (map[protocol.MessageQueue]int64, error) {
	if table := s.groups[group]; table != nil {
		return table, nil
	}
	var errs []error
	for _, path := range []string{s.path(group), s.path(group) + ".bak"} {
		table, err := readOffsets(path)
		switch {
		case err == nil:
			s.groups[group] = table
			return table, nil
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 { // beginning anew would pass over or repeat messages unseen
		return nil, fmt.Errorf("client: positions of group %s, repair or remove the file: %w",
			group, errors.Join(errs...))
	}
	s.groups[group] = map[protocol.MessageQueue]int64{}
	return s.groups[group], nil
}

// readOffsets reads a file of Java's client, whose keys are objects, or of the Go client, whose
// keys are texts that hold objects.
func readOffsets(path string) (map[protocol.MessageQueue]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var body protocol.ResetOffsetBody
	if err := protocol.Unmarshal(data, &body); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if body.OffsetTable == nil {
		return nil, fmt.Errorf("%s has no offsetTable", path)
	}
	return body.OffsetTable, nil
}

// replaceFile writes data to path so that a crash leaves the old file or the new one. The old one
// is kept beside it.
func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// A second name for the old file, since renaming it away would leave a moment without any.
	if rerr := os.Remove(path + ".bak"); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return rerr
	}
	if lerr := os.Link(path, path+".bak"); lerr != nil && !errors.Is(lerr, fs.ErrNotExist) {
		// No hard links on this file system: the new file alone has to do.
		_ = lerr
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // not every file system can
	return nil
}

func wireQueue(q Queue) protocol.MessageQueue {
	return protocol.MessageQueue{Topic: q.Topic, BrokerName: q.Broker, QueueID: int32(q.ID)}
}

func plainQueue(q protocol.MessageQueue) Queue {
	return Queue{Topic: q.Topic, Broker: q.BrokerName, ID: int(q.QueueID)}
}
