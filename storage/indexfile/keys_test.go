// SPDX-License-Identifier: Apache-2.0

package indexfile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// FuzzFindKeys holds FindKeys against the reader of all properties.
func FuzzFindKeys(f *testing.F) {
	for _, s := range []string{
		"", "KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02", "KEYS\x01\x02TAGS\x01t", "KEYS\x01a\x02KEYS\x01b",
		"xKEYS\x01a\x02KEYS\x02KEYSx\x01b\x02\x01KEYS\x01\x02", "UNIQ_KEY\x01a\x01b\x02\x02\x02TAGS\x01",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, props []byte) {
		var want indexfile.Keys
		record.EachProperty(props, func(name, value []byte) bool {
			switch string(name) {
			case "UNIQ_KEY":
				want.Unique = value
			case "KEYS":
				want.Keys = value
			case "TAGS":
				want.Tags = value
			}
			return true
		})
		if diff := cmp.Diff(want, indexfile.FindKeys(props)); diff != "" {
			t.Errorf("%q (-properties +keys):\n%s", props, diff)
		}
	})
}
