// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skylarkmq/skylark/storage/indexfile"
)

// FuzzRewriteKeys: the keys that a send tells the store are those that the store would find itself in
// the properties that it stores.
func FuzzRewriteKeys(f *testing.F) {
	for _, props := range []string{
		"", "KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02", "KEYS\x01a\x02KEYS\x01b\x02", "KEYS\x01a\x02KEYS\x01\x02",
		"UNIQ_KEY\x01u", "TAGS\x01t\x01u\x02", "KEYSX\x01a\x02XKEYS\x01b\x02", "\x02\x02KEYS\x01 \x02", "KEYS\x02UNIQ_KEY\x02",
		"\x01KEYS\x01a\x02", "CLUSTER\x01c\x02TAGS\x01t\x02POP_CK\x01KEYS\x01a\x02",
	} {
		f.Add([]byte(props))
	}
	f.Fuzz(func(t *testing.T, props []byte) {
		text, seen := rewrite(nil, props, []byte("MSG_REGION\x01r\x02TRACE_ON\x01true\x02"))
		got := indexfile.Keys{Unique: seen.uniq, Keys: seen.keys, Tags: seen.tags}
		if diff := cmp.Diff(indexfile.FindKeys(text), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-found +told):\n%s", props, diff)
		}
	})
}
