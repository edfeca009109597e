// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/engine/filter"
)

// FuzzFiltersFile opens the filters on any consumerFilter.json: a damaged file is set aside, and what
// was taken is written and read again without a word.
func FuzzFiltersFile(f *testing.F) {
	f.Add([]byte(`{"filterDataByTopic":{"T":{"filterDataMap":{"G":{"bloomFilterData":{"bitNum":64,"bitPos":[1,2,3]},` +
		`"bornTime":1795976699921,"clientVersion":1,"consumerGroup":"G","dead":false,"deadTime":0,` +
		`"expression":"a > 5","expressionType":"SQL92","topic":"T"}},"topic":"T"}}}`))
	f.Add([]byte(`{"filterDataByTopic":{"T":null,"U":{"filterDataMap":{"G":null}}}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filter.FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := filter.Open(dir, filter.Config{AllowEmpty: true})
		if err != nil {
			t.Fatal(err)
		}
		m.RemoveTopic("none")
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := filter.Open(dir, filter.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
