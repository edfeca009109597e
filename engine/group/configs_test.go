// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/protocol"
)

func openConfigs(t *testing.T, dir string, cfg group.ConfigsConfig) *group.Configs {
	t.Helper()
	table, err := group.OpenConfigs(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := openConfigs(t, dir, group.ConfigsConfig{AutoCreate: true})
	if names := table.Names(); len(names) != 8 {
		t.Fatal(names)
	}
	c, ok, err := table.LookupOrCreate("g")
	if err != nil || !ok || c.RetryMaxTimes != 16 || !c.ConsumeEnable {
		t.Fatal(c, ok, err)
	}
	for _, name := range []string{"", " ", "a.b", strings.Repeat("x", 121)} {
		if _, ok, err := table.LookupOrCreate(name); ok || err != nil {
			t.Fatalf("%q: %v, %v", name, ok, err)
		}
	}
	changed := *c
	changed.RetryMaxTimes, changed.ConsumeFromMinEnable = 3, false
	changed.Attributes = map[string]string{"+k": "v"}
	if err := table.Put(&changed); err != nil {
		t.Fatal(err)
	}
	if err := table.DisableConsume("g"); err != nil {
		t.Fatal(err)
	}
	again := openConfigs(t, dir, group.ConfigsConfig{})
	got, _ := again.Lookup([]byte("g"))
	want := changed
	want.ConsumeEnable, want.Attributes = false, map[string]string{"k": "v"}
	if d := cmp.Diff(&want, got); d != "" {
		t.Fatal(d)
	}
	if !again.Version().Equal(table.Version()) || again.Version().Counter != 3 {
		t.Fatal(again.Version())
	}
	if err := again.Delete("g"); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := again.LookupOrCreate("g"); ok {
		t.Fatal("created although that is off")
	}
}

func TestCreateSystemGroup(t *testing.T) {
	t.Parallel()
	table := openConfigs(t, t.TempDir(), group.ConfigsConfig{CreateSystem: true})
	if _, ok, _ := table.LookupOrCreate("CID_RMQ_SYS_X"); !ok {
		t.Fatal("system group not created")
	}
	if _, ok, _ := table.LookupOrCreate("g"); ok {
		t.Fatal("other group created")
	}
}

// TestForbidden: clearing the last bit of one topic keeps the others, and both are on disk.
func TestForbidden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := openConfigs(t, dir, group.ConfigsConfig{})
	set := func(topic string, on bool) {
		t.Helper()
		if err := table.SetForbidden("g", topic, group.ForbidRead, on); err != nil {
			t.Fatal(err)
		}
	}
	set("T", true)
	set("U", true)
	set("U", true)
	set("T", false)
	check := func(c *group.Configs) {
		t.Helper()
		if c.Forbidden([]byte("g"), []byte("T")) != 0 ||
			c.Forbidden([]byte("g"), []byte("U")) != group.ForbidRead {
			_, forbidden, _ := c.All()
			t.Fatal(forbidden)
		}
	}
	check(table)
	check(openConfigs(t, dir, group.ConfigsConfig{}))
	if table.Version().Counter != 3 {
		t.Fatal(table.Version())
	}
}

// TestConfigsFileOfRocketMQ reads missing members as the defaults of a new group.
func TestConfigsFileOfRocketMQ(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1},
		"forbiddenTable":{"g":{"T":4}},
		"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":5,"unknown":1},"n":null}}`
	if err := os.WriteFile(filepath.Join(dir, group.FileName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	table := openConfigs(t, dir, group.ConfigsConfig{})
	c, ok := table.Find("g")
	if !ok || c.RetryMaxTimes != 5 || !c.ConsumeEnable || c.RetryQueueNums != 1 {
		t.Fatalf("%+v", c)
	}
	if table.Forbidden([]byte("g"), []byte("T")) != group.ForbidRead || table.Version().Counter != 2 {
		t.Fatal(table.All())
	}
}

func TestConfigsDamagedFile(t *testing.T) {
	t.Parallel()
	damages := map[string]func(valid []byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"half":  func(valid []byte) []byte { return valid[:len(valid)/2] },
		"zeros": func(valid []byte) []byte { return make([]byte, len(valid)) },
		"tail":  func(valid []byte) []byte { return append(valid, valid[10:]...) },
	}
	for name, damage := range damages {
		for _, backup := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/backup=%v", name, backup), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				path := filepath.Join(dir, group.FileName)
				table := openConfigs(t, dir, group.ConfigsConfig{AutoCreate: true})
				for _, g := range []string{"g", "h"} {
					if _, _, err := table.LookupOrCreate(g); err != nil {
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
				if backup {
					if _, ok := openConfigs(t, dir, group.ConfigsConfig{}).Find("g"); !ok {
						t.Fatal("the backup was not taken")
					}
					return
				}
				if err := os.Remove(path + ".bak"); err != nil {
					t.Fatal(err)
				}
				if _, err := group.OpenConfigs(dir, group.ConfigsConfig{}); err == nil ||
					!strings.Contains(err.Error(), path) {
					t.Fatalf("start with a damaged file: %v", err)
				}
				openConfigs(t, dir, group.ConfigsConfig{AllowEmpty: true})
			})
		}
	}
}

func TestAllocsConfigsLookup(t *testing.T) {
	table := openConfigs(t, t.TempDir(), group.ConfigsConfig{})
	name, topic := []byte("TOOLS_CONSUMER"), []byte("T")
	n := testing.AllocsPerRun(100, func() {
		table.Lookup(name)
		table.Forbidden(name, topic)
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := group.OpenModes(dir, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	mode := protocol.MessageRequestModeBody{Topic: "T", ConsumerGroup: "g", Mode: "PULL"}
	if err := m.Set(mode); err != nil {
		t.Fatal(err)
	}
	again, err := group.OpenModes(dir, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.All(), again.All()); d != "" || again.All()["T"]["g"].Mode != "PULL" {
		t.Fatal(d)
	}
}

func queues(ids ...int32) []protocol.MessageQueue {
	list := []protocol.MessageQueue{}
	for _, id := range ids {
		list = append(list, protocol.MessageQueue{BrokerName: "b", Topic: "T", QueueID: id})
	}
	return list
}

func TestLocks(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1)
	l := group.NewLocks(func() time.Time { return now })
	lock := func(client string, ask, want []protocol.MessageQueue) {
		t.Helper()
		if d := cmp.Diff(want, l.LockBatch("g", client, &conn{client}, ask)); d != "" {
			t.Fatal(client, d)
		}
	}
	lock("a", queues(0, 1), queues(0, 1))
	lock("b", queues(0, 1, 2), queues(2))
	now = now.Add(50 * time.Second)
	lock("a", queues(0), queues(0)) // renewed
	now = now.Add(20 * time.Second)
	lock("b", queues(0, 1), queues(1)) // 1 lapsed after 60 s
	l.UnlockBatch("g", "b", queues(0, 1))
	lock("c", queues(0, 1), queues(1))
	if !l.HasUnexpired("g") || l.HasUnexpired("h") {
		t.Fatal("live locks are told wrongly")
	}
	now = now.Add(61 * time.Second)
	if l.HasUnexpired("g") {
		t.Fatal("lapsed locks count as live")
	}
}

// Locks end with their holder's connection, unless it has renewed them over another one, and when it
// leaves the group.
func TestLocksRelease(t *testing.T) {
	t.Parallel()
	l := group.NewLocks(nil)
	first, second, other := &conn{"1"}, &conn{"2"}, &conn{"3"}
	lock := func(name, client string, ch group.Channel, want ...int32) {
		t.Helper()
		if d := cmp.Diff(queues(want...), l.LockBatch(name, client, ch, queues(0, 1))); d != "" {
			t.Fatal(client, d)
		}
	}
	lock("g", "a", first, 0, 1)
	lock("h", "a", first, 0, 1)
	l.LockBatch("g", "a", second, queues(1)) // the client has connected anew
	l.Release(first)
	lock("g", "b", other, 0)
	lock("h", "b", other, 0, 1)
	l.ReleaseClient("g", "a")
	lock("g", "b", other, 0, 1)
	l.Release(second)
	l.RemoveTopic("T")
	lock("g", "c", first, 0, 1)
	lock("h", "c", first, 0, 1)
	l.RemoveGroup("g")
	lock("g", "d", second, 0, 1)
}

// After a restart, by a stop or by a kill, a queue goes on being its holder's, unless that does not
// renew it; what was given up is free.
func TestLocksOutliveTheBroker(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"stop": true, "kill": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { locksOutlive(t, stopped) })
		})
	}
}

func locksOutlive(t *testing.T, stopped bool) {
	dir := t.TempDir()
	lock := func(l *group.Locks, client string, want ...int32) {
		t.Helper()
		if d := cmp.Diff(queues(want...), l.LockBatch("g", client, &conn{client}, queues(0, 1, 2))); d != "" {
			t.Fatal(client, d)
		}
	}
	l := openLocks(t, dir)
	lock(l, "a", 0, 1, 2)
	l.UnlockBatch("g", "a", queues(2))
	if stopped {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l.Release(&conn{"a"}) // the end of the broker closes the connections
	} else {
		<-time.After(time.Second)
	}
	l = openLocks(t, dir)
	lock(l, "b", 2)
	<-time.After(20 * time.Second)
	l.LockBatch("g", "a", &conn{"a"}, queues(0)) // renews one of the two
	<-time.After(10 * time.Second)
	lock(l, "b", 1, 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func openLocks(t *testing.T, dir string) *group.Locks {
	t.Helper()
	l, err := group.OpenLocks(dir, true, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A broker that was away for long restores nothing, since clients trust a lock for 30 s by themselves;
// nor does one that was told to go on without a damaged file.
func TestLocksAreNotRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		free := func(client string) {
			t.Helper()
			l := openLocks(t, dir)
			if got := l.LockBatch("g", client, &conn{client}, queues(0)); len(got) != 1 {
				t.Fatal("still locked")
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		free("a")
		<-time.After(31 * time.Second)
		free("b")
		for _, name := range []string{group.LocksFileName, group.LocksFileName + ".bak"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		free("c")
	})
}

// TestGoldenFiles reads the tables of RocketMQ 5.5.0 and writes them back with the same content.
func TestGoldenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	parse := func(path string) (v any) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, name := range []string{group.FileName, group.ModesFileName} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	table := openConfigs(t, dir, group.ConfigsConfig{})
	if mask := table.Forbidden([]byte("GID_cfg"), []byte("CfgTopic")); mask != 1 {
		t.Fatalf("forbidden mask %d", mask)
	}
	if err := table.Persist(); err != nil {
		t.Fatal(err)
	}
	modes, err := group.OpenModes(dir, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := modes.Set(*modes.All()["CfgTopic"]["GID_cfg"]); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{group.FileName, group.ModesFileName} {
		want, got := parse(filepath.Join("testdata", name)), parse(filepath.Join(dir, name))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
