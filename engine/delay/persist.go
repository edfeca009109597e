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

// snapshot makes the file's content of where the levels are now.
func (s *Service) snapshot(nowMS int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.levels {
		if l := &s.levels[i]; l.known {
			s.offsets[l.queue+1] = int64(l.at)
		}
	}
	s.version.Next(nowMS)
	return protocol.MarshalFastJSON(
		protocol.DelayOffsetWrapper{DataVersion: &s.version, OffsetTable: s.offsets})
}

// persist writes positions once everything that was delivered before them is on disk, so that no
// loss of power makes the file say that a message was delivered whose copy is gone.
func (s *Service) persist(data []byte) error {
	if err := s.cfg.Store.Flush(); err != nil {
		return fmt.Errorf("delay: positions not written: %w", err)
	}
	path := filepath.Join(s.cfg.Dir, FileName)
	if err := vfs.WriteFileAtomic(path, data); err != nil {
		return fmt.Errorf("delay: write %s: %w", path, err)
	}
	return nil
}

// saveIfDue has the positions written by a goroutine of its own: deliveries do not wait for a disk.
func (s *Service) saveIfDue(nowMS int64) {
	if s.saving != nil {
		select {
		case err := <-s.saving:
			s.saved(err)
		default:
			return
		}
	}
	if s.dirtyMS == 0 || nowMS-s.dirtyMS < s.cfg.Interval.Milliseconds() && nowMS >= s.dirtyMS {
		return
	}
	data := s.snapshot(nowMS)
	s.dirtyMS = 0
	saving := make(chan error, 1)
	s.saving = saving
	s.done.Go(func() { saving <- s.persist(data) })
}

// saved takes the outcome; after an error it is tried again later.
func (s *Service) saved(err error) {
	s.saving = nil
	if err != nil {
		s.cfg.Notice("positions of the delay levels could not be written", "err", err)
		s.dirtyMS = max(s.cfg.Now().UnixMilli(), 1)
	}
}
