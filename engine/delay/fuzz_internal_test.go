// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// FuzzDelayOffsets reads any delayOffset.json. Either the error names the damaged copy, or the positions
// are the same after they were written and read again.
func FuzzDelayOffsets(f *testing.F) {
	f.Add([]byte(`{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1795976699921},"offsetTable":{1:5,2:7,18:0}}`))
	f.Add([]byte(`{"offsetTable":{0:1,-1:1,99:-5,2147483647:9223372036854775807}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		read := func() (*Service, error) {
			s := &Service{cfg: Config{Dir: dir, Now: time.Now, Notice: func(string, ...any) {}}}
			return s, s.load()
		}
		s, err := read()
		if err != nil {
			var damaged *vfs.DamagedError
			if !errors.As(err, &damaged) {
				t.Fatal(err)
			}
			return
		}
		if err := vfs.WriteFileAtomic(path, s.snapshot(1)); err != nil {
			t.Fatal(err)
		}
		again, err := read()
		if err != nil || !maps.Equal(s.offsets, again.offsets) {
			t.Fatalf("%v, then %v, %v", s.offsets, again.offsets, err)
		}
	})
}
