// SPDX-License-Identifier: Apache-2.0

package topic_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FuzzTopicsFile opens a table on any file. Either the error names the damaged copy, or the table is
// the same after it was written and read again.
func FuzzTopicsFile(f *testing.F) {
	for _, text := range []string{
		`{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1795976699921},"topicConfigTable":{` +
			`"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",` +
			`"topicName":"T","topicSysFlag":0,"writeQueueNums":8}}}`,
		`{"topicConfigTable":{"":null,"a/b":{"perm":-1,"readQueueNums":-5,"attributes":{"+x":"y"}}}}`,
		`{"topicConfigTable":{}}`, `{}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, topic.FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := topic.Config{BrokerName: "b", ClusterName: "c", AutoCreate: true, DefaultQueues: 8}
		table, err := topic.Open(dir, cfg)
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
		again, err := topic.Open(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := table.All()
		got, _ := again.All()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
