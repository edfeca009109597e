// SPDX-License-Identifier: Apache-2.0

package topic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
)

func config() topic.Config {
	return topic.Config{
		BrokerName: "broker-a", ClusterName: "DefaultCluster", AutoCreate: true, TimerWheel: true,
	}
}

func open(t *testing.T, dir string, cfg topic.Config) *topic.Table {
	t.Helper()
	table, err := topic.Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestStartTopics holds the topics of a new broker to a capture of RocketMQ 5.5.0, which had 15
// under a version without changes, and to the list it gives of system topics.
func TestStartTopics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := open(t, dir, config())
	all, version := table.All()
	if len(all) != 15 || version.Counter != 0 || version.Timestamp == 0 {
		t.Fatalf("topics %v, version %+v", table.Names(), version)
	}
	check := func(name string, queues, perm int32) {
		t.Helper()
		c, ok := table.Lookup([]byte(name))
		if !ok || c.ReadQueueNums != queues || c.WriteQueueNums != queues || c.Perm != perm {
			t.Fatalf("%s: %+v, want %d queues and perm %d", name, c, queues, perm)
		}
	}
	check("TBW102", 8, 7)
	check("BenchmarkTest", 1024, 6)
	check("DefaultCluster", 16, 7)
	check("broker-a", 1, 7)
	check("rmq_sys_SYNC_BROKER_MEMBER_broker-a", 1, 1)
	check("rmq_sys_REVIVE_LOG_DefaultCluster", 8, 6)
	check("SCHEDULE_TOPIC_XXXX", 18, 6)
	if got := table.SystemNames(); len(got) != 18 || !slices.IsSorted(got) {
		t.Fatalf("system topics: %d %v", len(got), got)
	}
	if _, err := os.Stat(filepath.Join(dir, topic.FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("open wrote the file: %v", err)
	}
}

func TestStartTopicsSwitches(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.AutoCreate, cfg.TraceTopic, cfg.ClusterTopicOff = false, true, true
	table := open(t, t.TempDir(), cfg)
	if _, ok := table.Find("TBW102"); ok {
		t.Fatal("TBW102 is there without automatic creation")
	}
	if _, ok := table.Find("RMQ_SYS_TRACE_TOPIC"); !ok {
		t.Fatal("the trace topic is missing")
	}
	if c, _ := table.Find("DefaultCluster"); c.Perm != 1 {
		t.Fatalf("the cluster's topic has perm %d", c.Perm)
	}
	if !table.IsSystem("rmq_sys_anything") || table.IsSystem("Order") {
		t.Fatal("system topics are told wrongly")
	}
}

func TestCreateOnSend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var changed []string
	cfg := config()
	cfg.OnChange = func(names []string) { changed = append(changed, names...) }
	table := open(t, dir, cfg)

	check := func(req topic.CreateOnSend, queues, perm, flag int32) {
		t.Helper()
		c, err := table.CreateOnSend(req)
		if err != nil {
			t.Fatalf("%+v: %v", req, err)
		}
		if c.ReadQueueNums != queues || c.WriteQueueNums != queues || c.Perm != perm ||
			c.TopicSysFlag != flag {
			t.Fatalf("%+v: got %+v", req, c)
		}
		// What was answered for is in the file.
		again := open(t, dir, config())
		if stored, ok := again.Find(req.Topic); !ok || stored.ReadQueueNums != queues {
			t.Fatalf("%s after a restart: %+v", req.Topic, stored)
		}
		if !again.Version().Equal(table.Version()) {
			t.Fatalf("version after a restart %+v, want %+v", again.Version(), table.Version())
		}
	}
	check(topic.CreateOnSend{Topic: "A", DefaultTopic: "TBW102", DefaultQueues: 4}, 4, 6, 0)
	check(topic.CreateOnSend{Topic: "B", DefaultTopic: "TBW102", DefaultQueues: 99}, 8, 6, 0)
	check(topic.CreateOnSend{Topic: "C", DefaultTopic: "TBW102", DefaultQueues: -3}, 0, 6, 0)
	check(topic.CreateOnSend{
		Topic: "D", DefaultTopic: "TBW102", DefaultQueues: 1, UnitMode: true,
	}, 1, 6, 1)
	check(topic.CreateOnSend{
		Topic: "%RETRY%g", DefaultTopic: "TBW102", DefaultQueues: 2, UnitMode: true,
	}, 2, 6, 2)
	check(topic.CreateOnSend{Topic: "%RETRY%h", DefaultTopic: "none", DefaultQueues: 2}, 1, 6, 0)
	for _, from := range []string{"none", "BenchmarkTest", ""} {
		_, err := table.CreateOnSend(topic.CreateOnSend{Topic: "X", DefaultTopic: from})
		if !errors.Is(err, topic.ErrNotCreatable) {
			t.Fatalf("from %q: %v", from, err)
		}
	}
	if table.Version().Counter != 6 || len(changed) != 6 {
		t.Fatalf("version %+v after changes of %v", table.Version(), changed)
	}
}

// TestCreateOnSendSwitchedOff: TBW102 in the file of an earlier start passes nothing on.
func TestCreateOnSendSwitchedOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := open(t, dir, config()).Persist(); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.AutoCreate = false
	table := open(t, dir, cfg)
	_, err := table.CreateOnSend(
		topic.CreateOnSend{Topic: "X", DefaultTopic: "TBW102", DefaultQueues: 4})
	if !errors.Is(err, topic.ErrNotCreatable) {
		t.Fatal(err)
	}
}

func TestCreateOnSendOnce(t *testing.T) {
	t.Parallel()
	table := open(t, t.TempDir(), config())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			c, err := table.CreateOnSend(
				topic.CreateOnSend{Topic: "A", DefaultTopic: "TBW102", DefaultQueues: 4})
			if err != nil || c.TopicName != "A" {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	wg.Wait()
	if table.Version().Counter != 1 {
		t.Fatalf("%d changes for one topic", table.Version().Counter)
	}
}

func TestCreateRetry(t *testing.T) {
	t.Parallel()
	table := open(t, t.TempDir(), config())
	check := func(order bool, counter int64) {
		t.Helper()
		c, err := table.CreateRetry("%RETRY%g", 3, 6, order, true)
		if err != nil || c.ReadQueueNums != 3 || c.Order != order || c.TopicSysFlag != 2 {
			t.Fatalf("%+v, %v", c, err)
		}
		if table.Version().Counter != counter {
			t.Fatalf("version %d, want %d", table.Version().Counter, counter)
		}
	}
	check(false, 1)
	check(false, 1)
	check(true, 2)
}

func TestPut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := open(t, dir, config())
	put := func(attributes map[string]string, queues int32) error {
		return table.Put(&protocol.TopicConfig{
			TopicName: "A", ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6,
			TopicFilterType: protocol.SingleTag, Attributes: attributes,
		})
	}
	steps := []struct {
		attributes map[string]string
		queues     int32
		counter    int64
		failure    string
	}{
		{map[string]string{"-message.type": ""}, 4, 0, "only add attribute"},
		{map[string]string{"+queue.type": "BatchCQ"}, 4, 1, ""},
		{map[string]string{"+queue.type": "BatchCQ"}, 4, 1, ""}, // as it was
		{map[string]string{"+queue.type": "SimpleCQ"}, 4, 1, "unchangeable"},
		{map[string]string{"-queue.type": ""}, 4, 1, "unchangeable"},
		{map[string]string{"+message.type": "FIFO"}, 8, 2, ""},
		{map[string]string{"message.type": "DELAY"}, 8, 3, ""},
		{map[string]string{"+message.type": "SOMETHING"}, 8, 3, "not in set"},
		{map[string]string{"-message.type": ""}, 8, 4, ""},
		{map[string]string{"-message.type": ""}, 8, 4, "nonexistent"},
		{map[string]string{"+no.such": "1"}, 8, 4, "unsupported key"},
		{map[string]string{"+reserve.time": "-2"}, 8, 4, "not a number"},
		{nil, 8, 4, ""},
	}
	for i, s := range steps {
		err := put(s.attributes, s.queues)
		if (err == nil) != (s.failure == "") ||
			err != nil && !strings.Contains(err.Error(), s.failure) {
			t.Fatalf("step %d: %v, want %q", i, err, s.failure)
		}
		if got := table.Version().Counter; got != s.counter {
			t.Fatalf("step %d: version %d, want %d", i, got, s.counter)
		}
	}
	c, _ := open(t, dir, config()).Find("A")
	if len(c.Attributes) != 1 || c.Attributes["queue.type"] != "BatchCQ" || c.ReadQueueNums != 8 {
		t.Fatalf("%+v", c)
	}
	if err := table.Delete("A"); err != nil {
		t.Fatal(err)
	}
	if err := table.Delete("A"); err != nil || table.Version().Counter != 5 {
		t.Fatalf("%v, version %+v", err, table.Version())
	}
}

func TestParseAttributes(t *testing.T) {
	t.Parallel()
	got, err := topic.ParseAttributes("+a=1,+b=,-c")
	if err != nil || len(got) != 3 || got["+a"] != "1" || got["-c"] != "" {
		t.Fatal(got, err)
	}
	for _, text := range []string{"a=1", "b", "+a=1,+a=2", "-a=1"} {
		if _, err := topic.ParseAttributes(text); err == nil {
			t.Fatalf("%q was taken", text)
		}
	}
}

// TestFileOfRocketMQ reads the unquoted, tab-indented form with members that are not known here.
func TestFileOfRocketMQ(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "{\n\t\"dataVersion\":{\n\t\t\"counter\":7,\"stateVersion\":0,\"timestamp\":5},\n" +
		"\t\"topicConfigTable\":{\"Order\":{\"attributes\":{},\"order\":true,\"perm\":6," +
		"\"readQueueNums\":5,\"topicFilterType\":\"SINGLE_TAG\",\"topicName\":\"Order\"," +
		"\"topicSysFlag\":0,\"writeQueueNums\":4,\"new\":{\"x\":[1]}},\"broken\":null}\n}"
	if err := os.WriteFile(filepath.Join(dir, topic.FileName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	table := open(t, dir, config())
	c, ok := table.Find("Order")
	if !ok || c.ReadQueueNums != 5 || c.WriteQueueNums != 4 || !c.Order {
		t.Fatalf("%+v", c)
	}
	if v := table.Version(); v.Counter != 7 || v.Timestamp != 5 {
		t.Fatalf("version %+v", v)
	}
}

// TestDamagedFile: any damage falls back to the backup, and stops the start when there is none.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	damages := map[string]func(valid []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"half":      func(valid []byte) []byte { return valid[:len(valid)/2] },
		"zeros":     func(valid []byte) []byte { return make([]byte, len(valid)) },
		"tail":      func(valid []byte) []byte { return append(valid, valid[10:]...) },
		"otherFile": func([]byte) []byte { return []byte(`{"offsetTable":{}}`) },
	}
	for name, damage := range damages {
		for _, backup := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/backup=%v", name, backup), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				path := filepath.Join(dir, topic.FileName)
				table := open(t, dir, config())
				for range 2 { // twice, so that there is a backup
					if _, err := table.CreateRetry("%RETRY%g", 1, 6, false, false); err != nil {
						t.Fatal(err)
					}
					if err := table.Persist(); err != nil {
						t.Fatal(err)
					}
				}
				valid, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(slices.Clone(valid)), 0o644); err != nil {
					t.Fatal(err)
				}
				cfg := config()
				if backup {
					notices := 0
					cfg.Notice = func(string, ...any) { notices++ }
					if _, ok := open(t, dir, cfg).Find("%RETRY%g"); !ok || notices == 0 {
						t.Fatalf("found %v, %d notices", ok, notices)
					}
					return
				}
				if err := os.Remove(path + ".bak"); err != nil {
					t.Fatal(err)
				}
				if _, err := topic.Open(dir, cfg); err == nil || !strings.Contains(err.Error(), path) {
					t.Fatalf("start with a damaged file: %v", err)
				}
				cfg.AllowEmpty = true
				if names := open(t, dir, cfg).Names(); len(names) != 15 {
					t.Fatalf("allowed to be empty: %v", names)
				}
			})
		}
	}
}

func TestSetOrdered(t *testing.T) {
	t.Parallel()
	table := open(t, t.TempDir(), config())
	want := func(name string) bool { return name == "broker-a" }
	for range 2 {
		if err := table.SetOrdered(want); err != nil {
			t.Fatal(err)
		}
	}
	if c, _ := table.Find("broker-a"); !c.Order || table.Version().Counter != 1 {
		t.Fatalf("%+v, version %+v", c, table.Version())
	}
}

// TestFailedWrite: a change that is not on disk is not in force.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "config")
	table := open(t, dir, config())
	if err := os.WriteFile(dir, nil, 0o644); err != nil { // a file where the folder must be
		t.Fatal(err)
	}
	_, err := table.CreateOnSend(
		topic.CreateOnSend{Topic: "A", DefaultTopic: "TBW102", DefaultQueues: 1})
	if err == nil {
		t.Fatal("no error")
	}
	if _, ok := table.Find("A"); ok || table.Version().Counter != 0 {
		t.Fatal("the topic is in force")
	}
}

func TestAllocsLookup(t *testing.T) {
	table := open(t, t.TempDir(), config())
	name := []byte("BenchmarkTest")
	if n := testing.AllocsPerRun(100, func() { table.Lookup(name) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestGoldenFile reads a table of RocketMQ 5.5.0 and writes it back with the same content.
func TestGoldenFile(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(filepath.Join("testdata", topic.FileName))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, topic.FileName)
	if err := os.WriteFile(path, golden, 0o644); err != nil {
		t.Fatal(err)
	}
	table := open(t, dir, topic.Config{})
	c, ok := table.Find("CfgFifo")
	if !ok || !c.Order || c.Attributes["message.type"] != "FIFO" || table.Version().Counter != 5 {
		t.Fatalf("%+v, version %+v", c, table.Version())
	}
	if err := table.Persist(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written, &got); err != nil {
		t.Fatal(err)
	}
	// Topics that a broker has from the start are added, nothing else differs.
	topics := got.(map[string]any)["topicConfigTable"].(map[string]any)
	for name := range topics {
		if _, known := want.(map[string]any)["topicConfigTable"].(map[string]any)[name]; !known {
			if !table.IsSystem(name) {
				t.Errorf("topic %s was added", name)
			}
			delete(topics, name)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}
