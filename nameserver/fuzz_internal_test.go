// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// FuzzKeyValueFile opens any kvConfig.json: either the error names the damaged copy, or it can be read
// from.
func FuzzKeyValueFile(f *testing.F) {
	f.Add([]byte(`{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b:4"}}}`))
	f.Add([]byte(`{"configTable":{"n":null}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "kvConfig.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := openKV(path)
		if err != nil {
			var damaged *vfs.DamagedError
			if !errors.As(err, &damaged) {
				t.Fatal(err)
			}
			return
		}
		for namespace, table := range *k.tables.Load() {
			got, ok := k.list(namespace)
			if !ok || len(got) != len(table) {
				t.Fatalf("%q: %v, %v", namespace, got, ok)
			}
		}
	})
}
