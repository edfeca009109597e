// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/engine/filter"
	"github.com/skylarkmq/skylark/net/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a manager with a clock that the test moves.
type bench struct {
	*filter.Manager
	t       *testing.T
	dir     string
	nowMS   int64
	mu      sync.Mutex
	notices []string
}

func open(t *testing.T, dir string, nowMS int64) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir, nowMS: nowMS}
	m, err := filter.Open(dir, filter.Config{
		Now: func() time.Time { return time.UnixMilli(b.nowMS) }, Interval: time.Hour, AllowEmpty: true,
		Notice: func(msg string, kv ...any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.notices = append(b.notices, fmt.Sprint(append([]any{msg}, kv...)...))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Manager = m
	t.Cleanup(func() { _ = m.Close() })
	return b
}

func (b *bench) get(topic, group string) *filter.Data { return b.Get([]byte(topic), []byte(group)) }

func sql(topic, expression string, version int64) protocol.SubscriptionData {
	return protocol.SubscriptionData{
		Topic: topic, SubString: expression, ExpressionType: protocol.ExpressionSQL92, SubVersion: version,
	}
}

func register(b *bench, group string, subs ...protocol.SubscriptionData) { b.Register(group, subs) }

// The rules of RocketMQ's ConsumerFilterManager, one after the other.
func TestRegister(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), 1000)
	register(b, "g", sql("T", "a = 1", 5), protocol.SubscriptionData{Topic: "U", SubString: "*", SubVersion: 5})
	d := b.get("T", "g")
	if d == nil || d.Expression != "a = 1" || d.ClientVersion != 5 || d.BornMS != 1000 || d.Dead() {
		t.Fatalf("new: %+v", d)
	}
	if b.get("U", "g") != nil || b.get("T", "h") != nil {
		t.Error("a tag subscription or another group has a filter")
	}
	b.nowMS = 2000
	register(b, "g", sql("T", "a = 2", 5))
	register(b, "g", sql("T", "a = 2", 4))
	if d = b.get("T", "g"); d.Expression != "a = 1" || d.BornMS != 1000 {
		t.Errorf("an old version changed it: %+v", d)
	}
	register(b, "g", sql("T", "a = 1", 6))
	if d = b.get("T", "g"); d.ClientVersion != 6 || d.BornMS != 1000 {
		t.Errorf("a new version of the same: %+v", d)
	}
	register(b, "g", sql("T", "a = 2", 7))
	if d = b.get("T", "g"); d.Expression != "a = 2" || d.BornMS != 2000 || !d.Compiled.Match([]byte("a\x012\x02")) {
		t.Errorf("a new expression: %+v", d)
	}
	b.nowMS = 3000
	register(b, "g", protocol.SubscriptionData{Topic: "U", SubString: "*", SubVersion: 8})
	if d = b.get("T", "g"); d == nil || !d.Dead() || d.DeadMS != 3000 {
		t.Errorf("not listed any more: %+v", d)
	}
	register(b, "g", sql("T", "a = 2", 7))
	if d = b.get("T", "g"); d.Dead() {
		t.Errorf("the same version revives: %+v", d)
	}
	b.Unregister("g")
	if d = b.get("T", "g"); !d.Dead() {
		t.Errorf("the group has left: %+v", d)
	}
	register(b, "g", sql("T", "a = ", 9))
	if d = b.get("T", "g"); d != nil || len(b.notices) != 1 || !strings.Contains(b.notices[0], "line 1, column 5") {
		t.Errorf("a broken expression: %+v, %q", d, b.notices)
	}
	register(b, "g", sql("T", "a = 3", 10))
	b.RemoveTopic("T")
	if b.get("T", "g") != nil {
		t.Error("the topic is gone")
	}
}

// The file is RocketMQ's: this one was written by a broker of 5.5.0.
const apacheFile = `{
	"filterDataByTopic":{
		"CfgTopic":{
			"groupFilterData":{
				"GID_sql":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[67,17,79]
					},
					"bornTime":1795977822873,
					"clientVersion":1795977823270,
					"consumerGroup":"GID_sql",
					"dead":true,
					"deadTime":1795977842242,
					"expression":"n > 3 AND colour = 'red'",
					"expressionType":"SQL92",
					"topic":"CfgTopic"
				}
			},
			"topic":"CfgTopic"
		}
	}
}`

func TestGoldenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, filter.FileName)
	if err := os.WriteFile(path, []byte(apacheFile), 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir, 1795977822873)
	if d := b.get("CfgTopic", "GID_sql"); d == nil || !d.Dead() || !d.Compiled.Match([]byte("n\x014\x02colour\x01red\x02")) {
		t.Fatalf("loaded: %+v", d)
	}
	b.RemoveTopic("CfgTopic")
	register(b, "GID_sql", sql("CfgTopic", "n > 3 AND colour = 'red'", 1795977823270))
	b.nowMS = 1795977842242
	b.Unregister("GID_sql")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, []byte(apacheFile)), tree(t, read(t, path))); diff != "" {
		t.Errorf("written (-apache +ours):\n%s", diff)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func tree(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// After a restart nobody is there yet; what died a day ago is forgotten at the next writing.
func TestRestart(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	dir := t.TempDir()
	b := open(t, dir, 1_000_000)
	register(b, "live", sql("T", "a = 1", 1))
	register(b, "dead", sql("T", "a = 2", 1))
	b.Unregister("dead")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir, 2_000_000)
	if d := b.get("T", "live"); d == nil || d.DeadMS != 2_000_000-30_000 {
		t.Errorf("live: %+v", d)
	}
	if d := b.get("T", "dead"); d == nil || d.DeadMS != 1_000_000 {
		t.Errorf("dead: %+v", d)
	}
	b.nowMS += day
	register(b, "live", sql("T", "a = 1", 2))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir, b.nowMS)
	if b.get("T", "dead") != nil || b.get("T", "live") == nil {
		t.Error("the old one is kept, or the live one is gone")
	}
}

// What cannot be used is not used, and said.
func TestUnusableFiles(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"another bit map":   strings.Replace(apacheFile, "112", "64", 1),
		"no bit map":        strings.Replace(apacheFile, "bloomFilterData", "other", 1),
		"broken expression": strings.Replace(apacheFile, "n > 3", "n > > 3", 1),
		"another type":      strings.Replace(apacheFile, "SQL92", "SQL99", 1),
		"damaged":           apacheFile[:200],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, filter.FileName), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			b := open(t, dir, 1)
			if b.get("CfgTopic", "GID_sql") != nil || len(b.notices) != 1 {
				t.Errorf("%+v, notices %q", b.get("CfgTopic", "GID_sql"), b.notices)
			}
		})
	}
}

// A changed table reaches the file by itself.
func TestWritesLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := filter.Open(dir, filter.Config{Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	m.Register("g", []protocol.SubscriptionData{sql("T", "a = 1", 1)})
	deadline := time.Now().Add(10 * time.Second)
	for {
		data, err := os.ReadFile(filepath.Join(dir, filter.FileName))
		if err == nil && strings.Contains(string(data), "a = 1") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not written: %v", err)
		}
	}
}

func TestCompileIsCached(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), 1)
	first, err := b.Compile("a = 1")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for { // the cache takes entries in beside
		again, err := b.Compile("a = 1")
		if err != nil || again.Text() != "a = 1" {
			t.Fatal(again, err)
		}
		next, _ := b.Compile("a = 1")
		if again == next && first != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("compiled each time")
		}
	}
	for range 3 {
		if _, err := b.Compile("a = "); err == nil {
			t.Fatal("compiled")
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Compile("a = 1"); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestAllocsGet(t *testing.T) {
	b := open(t, t.TempDir(), 1)
	register(b, "g", sql("T", "a = 1", 1))
	topic, group := []byte("T"), []byte("g")
	if n := testing.AllocsPerRun(1000, func() {
		if b.Get(topic, group) == nil {
			t.Fatal("gone")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
