// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FileName is the name of the positions' file in the configuration folder.
const FileName = "delayOffset.json"

// load reads delayOffset.json (RocketMQ DelayOffsetSerializeWrapper).
func (s *Service) load() error {
	path := filepath.Join(s.cfg.Dir, FileName)
	var f protocol.DelayOffsetWrapper
	source, err := vfs.LoadJSONFile(path, func(data []byte) error {
		f = protocol.DelayOffsetWrapper{}
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		if f.OffsetTable == nil {
			return errors.New("member offsetTable is missing")
		}
		return nil
	})
	var damaged *vfs.DamagedError
	switch {
	case s.cfg.AllowEmpty && errors.As(err, &damaged):
		s.cfg.Notice("starting without positions of the delay levels: what still lies in them is "+
			"delivered again", "path", path, "err", err)
		err = vfs.SetAside(path)
	case err != nil:
		return fmt.Errorf("delay: load %s: %w", path, err)
	case source != "" && source != path:
		s.cfg.Notice("positions of the delay levels were read from another copy", "path", source)
	}
	s.offsets = map[int32]int64{}
	s.version = protocol.DataVersion{Timestamp: s.cfg.Now().UnixMilli()}
	if f.DataVersion != nil {
		s.version = *f.DataVersion
	}
	for level, at := range f.OffsetTable {
		if level > 0 && at >= 0 {
			s.offsets[level] = at
		}
	}
	return err
}

// persist writes the positions once everything that was delivered before them is on disk, so that
// no loss of power makes the file say that a message was delivered whose copy is gone.
func (s *Service) persist(nowMS int64) error {
	if err := s.cfg.Store.Flush(); err != nil {
		return fmt.Errorf("delay: positions not written: %w", err)
	}
	s.mu.Lock()
	for i := range s.levels {
		if l := &s.levels[i]; l.known {
			s.offsets[l.queue+1] = int64(l.at)
		}
	}
	s.version.Next(nowMS)
	f := protocol.DelayOffsetWrapper{DataVersion: &s.version, OffsetTable: s.offsets}
	data := protocol.MarshalFastJSON(f)
	s.mu.Unlock()
	path := filepath.Join(s.cfg.Dir, FileName)
	if err := vfs.WriteFileAtomic(path, data); err != nil {
		return fmt.Errorf("delay: write %s: %w", path, err)
	}
	s.dirtyMS = 0
	return nil
}

// persistLater is persist in the middle of the work: after an error it is tried again later.
func (s *Service) persistLater(nowMS int64) {
	if err := s.persist(nowMS); err != nil {
		s.cfg.Notice("positions of the delay levels could not be written", "err", err)
		s.dirtyMS = nowMS
	}
}
