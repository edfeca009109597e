// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

// TestDeleteUnconsumed lets retention come by files that one group has read and another has not.
func TestDeleteUnconsumed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"warn", "hold", "delete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var log journal
			cfg := quietConfig(t)
			cfg.CommitLogFileSize, cfg.MaxMessageSize = 1<<18, 1<<16
			cfg.DeleteUnconsumed, cfg.CleanIntervalMS, cfg.DeletePauseMS = mode, 100, 0
			cfg.DeleteWhen = "0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23"
			cfg.DiskWarningRatio, cfg.DiskCleanRatio, cfg.DiskMaxUsedRatio = 99, 95, 95
			logTo(&log)(&cfg)
			b := startBroker(t, cfg)
			p := newPeer(t, b.Addr().String())
			for range 60 {
				p.send("read", 0, strings.Repeat("x", 20<<10))
			}
			end := int64(60)
			for _, group := range []string{"done", "behind"} { // a pull makes them
				r := pullRequest("read", 0, 0, "*", 0)
				r.Group = []byte(group)
				p.pull(r)
			}
			p.commit("done", "read", 0, end)
			p.commit("behind", "read", 0, 3)
			files, err := filepath.Glob(filepath.Join(cfg.StoreRoot, "commitlog", "*"))
			if err != nil || len(files) < 5 {
				t.Fatalf("files %v: %v", files, err)
			}
			slices.Sort(files)
			for _, f := range files[:3] {
				old := time.Now().Add(-80 * time.Hour)
				if err := os.Chtimes(f, old, old); err != nil {
					t.Fatal(err)
				}
			}
			low := 3 * cfg.CommitLogFileSize
			said := func(text string) int { return len(log.lines(text)) }
			switch mode {
			case "hold":
				within(t, 10*time.Second, func() bool { return said("is kept for a group") > 0 })
				if got := int64(b.StoreInfo().Min); got != 0 {
					t.Fatalf("the log begins at %d", got)
				}
				if lines := log.lines("is kept for a group"); len(lines) != 1 || !strings.Contains(lines[0], "behind") {
					t.Errorf("said %q", lines)
				}
				p.commit("behind", "read", 0, end)
				within(t, 10*time.Second, func() bool { return int64(b.StoreInfo().Min) == low })
			default:
				within(t, 10*time.Second, func() bool { return int64(b.StoreInfo().Min) == low })
			}
			lost := log.lines("loses messages that it has not consumed")
			var first int64
			within(t, 10*time.Second, func() bool {
				first = p.pull(pullRequest("read", 0, 0, "*", 0)).head.MinOffset
				return first > 3
			})
			info := p.call(remoting.GetBrokerRuntimeInfo, nil, nil)
			counted := strings.Contains(string(info.Body), fmt.Sprintf("read@behind=%d\"", first-3))
			if warned := mode == "warn"; (len(lost) > 0) != warned || counted != warned {
				t.Errorf("%d warnings, counted %v: %q", len(lost), counted, info.Body)
			}
			for _, line := range lost {
				if !strings.Contains(line, "group=behind") || !strings.Contains(line, "topic=read") {
					t.Errorf("said %q", line)
				}
			}
		})
	}
}
