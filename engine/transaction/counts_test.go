// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/transaction"
)

// TestGoldenCounts: the file that RocketMQ 5.5.0 wrote is read, and written with the same bytes but for
// what changed.
func TestGoldenCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, transaction.CountsName)
	theirs := `{"dataVersion":{"counter":16,"stateVersion":0,"timestamp":1795977614992},` +
		`"transactionCount":{"TxTopic":{"count":2,"timeStamp":1795977614992}}}`
	if err := os.WriteFile(path, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := transaction.OpenCounts(dir, false, time.Hour,
		func() time.Time { return time.UnixMilli(1795977700000) },
		func(msg string, kv ...any) { t.Error(msg, kv) })
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Of("TxTopic"); got != 2 {
		t.Errorf("%d half messages, want 2", got)
	}
	c.Add([]byte("TxTopic"), 1)
	c.Add([]byte("TxTopic"), -4) // more than there are: the last process was killed
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ours := `{"dataVersion":{"counter":18,"stateVersion":0,"timestamp":1795977700000},` +
		`"transactionCount":{"TxTopic":{"count":0,"timeStamp":1795977700000}}}`
	if got, err := os.ReadFile(path); err != nil || string(got) != ours {
		t.Errorf("written\n%s\nwant\n%s\n%v", got, ours, err)
	}
	if backup, err := os.ReadFile(path + ".bak"); err != nil || string(backup) != theirs {
		t.Errorf("backup %s %v", backup, err)
	}
}

// TestCountsAreWritten: what changes is in the file some time later, without a stop.
func TestCountsAreWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := transaction.OpenCounts(dir, false, time.Millisecond, time.Now,
		func(msg string, kv ...any) { t.Error(msg, kv) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	c.Add([]byte("T"), 3)
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(dir, transaction.CountsName))
		if err == nil && strings.Contains(string(text), `"T":{"count":3,`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("not written")
		}
	}
}
