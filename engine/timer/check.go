// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// CheckName is the name of the checkpoint's file in the configuration folder.
const CheckName = "timercheck"

// checkSize is what is used of the file, and the body of GET_TIMER_CHECK_POINT; checkFile is the
// length that the file has.
const (
	checkSize = 56
	checkFile = vfs.PageSize
)

// checkpoint is RocketMQ's TimerCheckpoint: everything below these positions is on disk.
type checkpoint struct {
	readMS  int64 // messages of ticks before this time were delivered
	logEnd  int64 // of the timer log
	queueAt int64 // messages of the timer topic before this queue offset are in the log
	version protocol.DataVersion

	// began is Skylark's own, behind what RocketMQ reads and writes: the records that lay before this
	// place were filed when the tick of readMS began, so that none of them was filed late under it.
	began record.PhysicalOffset
	ours  bool // Skylark wrote it
}

// ownAt is where in the file Skylark's part begins: int64 readMS once more, by which it is known to
// belong to the rest, and int64 began.
const (
	ownAt   = 64
	ownSize = 16
)

func (c checkpoint) encode() []byte {
	be := binary.BigEndian
	b := make([]byte, 0, checkSize)
	for _, v := range [...]int64{
		c.readMS, c.logEnd, c.queueAt, c.queueAt, c.version.StateVersion, c.version.Timestamp,
		c.version.Counter,
	} {
		b = be.AppendUint64(b, uint64(v))
	}
	return b
}

// loadCheck reads the file. ok is false when there is none or it was never written.
func loadCheck(fsys vfs.FS, path string) (c checkpoint, ok bool, err error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("timer: open %s: %w", path, err)
	}
	defer f.Close()
	var b [ownAt + ownSize]byte
	if n, err := f.ReadAt(b[:], 0); n < checkSize {
		if errors.Is(err, io.EOF) {
			return c, false, nil
		}
		return c, false, fmt.Errorf("timer: read %s: %w", path, err)
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	c = checkpoint{
		readMS: at(0), logEnd: at(1), queueAt: at(2),
		version: protocol.DataVersion{StateVersion: at(4), Timestamp: at(5), Counter: at(6)},
	}
	if c.readMS > 0 && at(ownAt/8) == c.readMS {
		c.began, c.ours = record.PhysicalOffset(at(ownAt/8+1)), true
	}
	return c, c.readMS > 0, nil
}

// saveCheck writes the file and waits for the disk.
func saveCheck(fsys vfs.FS, path string, c checkpoint) error {
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("timer: open %s: %w", path, err)
	}
	size, err := f.Size()
	if err == nil && size != checkFile {
		err = f.Truncate(checkFile)
	}
	if err == nil {
		b := make([]byte, ownAt, ownAt+ownSize)
		copy(b, c.encode())
		b = binary.BigEndian.AppendUint64(b, uint64(c.readMS))
		b = binary.BigEndian.AppendUint64(b, uint64(c.began))
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("timer: write %s: %w", path, err)
	}
	return nil
}
