// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// FuzzMetricsFile reads any timermetrics; a damaged one is set aside, as it was told to.
func FuzzMetricsFile(f *testing.F) {
	f.Add([]byte(`{"dataVersion":{"counter":1,"timestamp":1795976699921},"timingCount":{"T":{"count":5,"timeStamp":1}}}`))
	f.Add([]byte(`{"timingCount":{"":{"count":-5}}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, MetricsName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Service{cfg: Config{Dir: dir, FS: vfs.OS(), AllowEmpty: true, Notice: func(string, ...any) {}}}
		if err := s.loadTopics(); err != nil {
			t.Fatal(err)
		}
		s.count([]byte("T"), 1, 1)
		if s.topics.TimingCount["T"].Count < 0 || len(s.Metrics()) == 0 {
			t.Fatalf("%+v", s.topics)
		}
	})
}
