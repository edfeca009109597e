// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaultDamagedFiles damages each file of the configuration folder that the broker owns, beside the
// three of TestFaultTornTables. A valid backup is used. A damaged pair stops the start, names both, says
// what can be done and is left as it is; a broker that is told to go on without sets it aside.
func TestFaultDamagedFiles(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]string{
		"delayOffset.json":        `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"offsetTable":{}}`,
		"consumerFilter.json":     `{"filterDataByTopic":{}}`,
		"consumerOrderInfo.json":  `{"table":{}}`,
		"messageRequestMode.json": `{"messageRequestModeMap":{}}`,
		"queueLocks.json":         `{"closedTimestamp":0,"locks":[]}`,
		"transactionMetrics":      `{"dataVersion":{"counter":1},"transactionCount":{}}`,
		"timermetrics":            `{"dataVersion":{"counter":1},"timingCount":{}}`,
		"deletedTopics":           "\n4096 gone\n",
	} {
		for what, bad := range map[string]string{
			"empty": "", "half": good[:len(good)/2], "rubbish": strings.Repeat("x", len(good)),
		} {
			t.Run(fmt.Sprintf("%s %s", name, what), func(t *testing.T) {
				t.Parallel()
				damagedFile(t, name, good, bad)
			})
		}
	}
}

func damagedFile(t *testing.T, name, good, bad string) {
	cfg := quietConfig(t)
	path := filepath.Join(cfg.StoreRoot, "config", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	aside := func() []string {
		found, err := filepath.Glob(path + "*.damaged-*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	start := func() {
		if err := startBroker(t, cfg).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write(path, bad)
	write(path+".bak", bad)
	err := startError(t, cfg)
	if err == nil {
		t.Fatal("started without a valid copy")
	}
	for _, want := range []string{path + ": ", path + ".bak: ", "--allow-empty-tables"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	for _, p := range []string{path, path + ".bak"} {
		if left, err := os.ReadFile(p); err != nil || string(left) != bad {
			t.Errorf("%s after the refusal: %q, %v", p, left, err)
		}
	}
	write(path+".bak", good)
	start()
	if found := aside(); len(found) != 1 {
		t.Errorf("with a backup these were set aside: %v", found)
	}
	write(path, bad)
	write(path+".bak", bad)
	cfg.AllowEmpty = true
	start()
	if found := aside(); len(found) < 2 {
		t.Errorf("told to go on, set aside: %v", found)
	}
}
