// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// storeOf finds the store directory of the lab's broker.
func storeOf(t *testing.T, l *adminLab) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.cluster.Dir(), "*", "commitlog"))
	if err != nil || len(found) != 1 {
		t.Fatalf("stores %v, %v", found, err)
	}
	return filepath.Dir(found[0])
}

// TestInspectRunning looks into the store of a broker that runs: each command prints what its reader
// looks for, and JSON objects with --json.
func TestInspectRunning(t *testing.T) {
	t.Parallel()
	l := newAdminLab(t)
	dir := storeOf(t, l)
	for _, k := range []struct {
		line string
		want []string
	}{
		{"log", []string{"topic=created queue=1 offset=0", "id=" + l.sent.ID}},
		{"log --key 7 --body --hex", []string{"  hello\n", "|eated..TAGS.eu.K|"}},
		{"log --key UNKNOWN", nil},
		{"log --offset 0 --count 1 --topic created", []string{"0 "}},
		{"export --topic created", []string{`"body":"hello"`, `"TAGS":"eu"`}},
		{"stats", []string{"TOPIC", "created"}},
		{"queue", []string{"created", "FIRST"}},
		{"queue --topic created --queue 1", []string{"TAGS CODE"}},
		{"index", []string{"ENTRIES"}},
		{"checkpoint", []string{"the store is open, or was not closed"}},
		{"config", []string{"topics.json", "sound"}},
		{"config --show topics.json", []string{"created"}},
		{"verify", []string{"sound: 1 records", "1 queue entries"}},
	} {
		args := append(strings.Fields("inspect "+k.line), dir)
		out := must(t, args...)
		for _, want := range k.want {
			if !strings.Contains(out, want) {
				t.Errorf("inspect %s: no %q in\n%s", k.line, want, out)
			}
		}
		if strings.Contains(k.line, "--show") {
			continue
		}
		for line := range strings.Lines(must(t, append(args, "--json")...)) {
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil || len(v) == 0 {
				t.Errorf("inspect %s --json: %v in %s", k.line, err, line)
			}
		}
	}
	code, _, stderr := command(t, "inspect", "rebuild", dir, "-c", labConfig(t))
	if code != exitFailed || !strings.Contains(stderr, "lock") {
		t.Errorf("rebuild of a running broker's store: exit code %d, %s", code, stderr)
	}
}

// labConfig is a configuration file with the sizes of the lab's broker.
func labConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.conf")
	text := "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=20480\n" +
		"maxHashSlotNum=5000\nmaxIndexNum=20000\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInspectFaults: what is wrong is said, and the exit code tells.
func TestInspectFaults(t *testing.T) {
	t.Parallel()
	l := newAdminLab(t)
	dir := storeOf(t, l)
	if err := l.cluster.Broker(0).Stop(); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"log"}, exitMisuse, "name one store directory"},
		{[]string{"log", t.TempDir()}, exitFailed, "no store here"},
		{[]string{"log", dir, "--since", "yesterday"}, exitMisuse, "--since"},
		{[]string{"log", dir, "--offset", "3"}, exitFailed, "no record at 3"},
		{[]string{"queue", dir, "--queue", "1"}, exitMisuse, "--topic"},
		{[]string{"queue", dir, "--topic", "created", "--queue", "9"}, exitFailed, "no queue 9"},
		{[]string{"config", dir, "--show", "none.json"}, exitFailed, "none.json"},
		{[]string{"rebuild"}, exitMisuse, "name one store directory"},
		{[]string{"rebuild", t.TempDir()}, exitFailed, "commitlog"},
	} {
		code, stdout, stderr := command(t, append([]string{"inspect"}, k.args...)...)
		if code != k.code || !strings.Contains(stderr, k.want) {
			t.Errorf("inspect %v: exit code %d, %s%s", k.args, code, stdout, stderr)
		}
	}
	if out := must(t, "inspect", "rebuild", dir, "-c", labConfig(t)); !strings.Contains(out, "from 1 records") {
		t.Errorf("rebuild: %s", out)
	}
	if out := must(t, "inspect", "rebuild", dir, "-c", labConfig(t), "--json"); !strings.Contains(out, `"units":1`) {
		t.Errorf("rebuild --json: %s", out)
	}
	if out := must(t, "inspect", "verify", dir); !strings.Contains(out, "sound: 1 records") {
		t.Errorf("verify of what was rebuilt: %s", out)
	}
	flip(t, dir)
	code, stdout, _ := command(t, "inspect", "verify", dir)
	if code != exitFailed || !strings.Contains(stdout, "check sum at 0: topic=created") {
		t.Errorf("verify of a changed body: exit code %d\n%s", code, stdout)
	}
}

// flip changes the one body in the log.
func flip(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "commitlog", "0*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("log files %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), "hello")
	if at < 0 {
		t.Fatal("no body in the log")
	}
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("j"), int64(at))
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
