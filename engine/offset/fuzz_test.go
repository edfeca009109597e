// SPDX-License-Identifier: Apache-2.0

package offset_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FuzzOffsetsFile opens a table on any consumerOffset.json. Either the error names the damaged copy, or
// the table is the same after it was written and read again.
func FuzzOffsetsFile(f *testing.F) {
	for _, text := range []string{
		`{"dataVersion":{"counter":1,"timestamp":1795976699921},"groupTopicMap":{},"offsetTable":{"T@G":{0:5,1:9}},` +
			`"pullOffsetTable":{"T@G":{0:7}}}`,
		`{"offsetTable":{"T":{0:1},"@":{0:1},"T@G@H":{-1:-5,2147483647:9223372036854775807}}}`,
		`{"offsetTable":{"T@G":{0:5}},"pendingResets":{"T@G":{"0":5,"1":-1,"x":2},"@":{"0":1}}}`,
		`{"offsetTable":{"T@G":null}}`, `{}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, offset.FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := offset.Open(dir, offset.Config{})
		if err != nil {
			var damaged *vfs.DamagedError
			if !errors.As(err, &damaged) {
				t.Fatal(err)
			}
			return
		}
		defer table.Close()
		if err := table.Persist(); err != nil {
			t.Fatal(err)
		}
		again, err := offset.Open(dir, offset.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		want, _ := table.Snapshot()
		got, _ := again.Snapshot()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
