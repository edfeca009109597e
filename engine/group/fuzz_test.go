// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FuzzGroupsFile opens a table on any subscriptionGroup.json. Either the error names the damaged
// copy, or the table is the same after it was written and read again.
func FuzzGroupsFile(f *testing.F) {
	for _, text := range []string{
		`{"dataVersion":{"counter":1,"timestamp":1795976699921},"forbiddenTable":{"G":{"T":1}},` +
			`"subscriptionGroupTable":{"G":{"brokerId":0,"consumeEnable":true,"groupName":"G","retryQueueNums":1,` +
			`"groupRetryPolicy":{"type":"CUSTOMIZED"},"attributes":{},"subscriptionDataSet":null}}}`,
		`{"subscriptionGroupTable":{"":null,"a/b":{"retryMaxTimes":-1}},"forbiddenTable":{"G":null}}`,
		`{"subscriptionGroupTable":{}}`, `{}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, group.FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := group.OpenConfigs(dir, group.ConfigsConfig{})
		if err != nil {
			var damaged *vfs.DamagedError
			if !errors.As(err, &damaged) {
				t.Fatal(err)
			}
			return
		}
		if err := table.Persist(); err != nil {
			t.Fatal(err)
		}
		again, err := group.OpenConfigs(dir, group.ConfigsConfig{})
		if err != nil {
			t.Fatal(err)
		}
		want, wantForbidden, _ := table.All()
		got, gotForbidden, _ := again.All()
		if diff := cmp.Diff(want, got) + cmp.Diff(wantForbidden, gotForbidden); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzModesFile opens the table of request modes on any file: a damaged one is set aside, and the next
// start finds nothing wrong.
func FuzzModesFile(f *testing.F) {
	f.Add([]byte(`{"messageRequestModeMap":{"T":{"G":{"mode":"POP","popShareQueueNum":2}}}}`))
	f.Add([]byte(`{"messageRequestModeMap":{"":null,"T":{"G":null}}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, group.ModesFileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		modes, err := group.OpenModes(dir, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, groups := range modes.All() {
			for g := range groups {
				modes.Get(name, g)
			}
		}
		again, err := group.OpenModes(dir, false, func(msg string, kv ...any) { t.Fatal(msg, kv) })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(modes.All(), again.All()); diff != "" {
			t.Fatal(diff)
		}
	})
}
