// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the real broker keeps where Skylark does not look, with the options that make it do so, stops the
// start of ours with the reason, and leaves every file as it is.
func TestCompatRefused(t *testing.T) {
	t.Parallel()
	if !*compatFull {
		t.Skip("runs with make compat-store; TestCheck in storage/foreign has the files of these runs")
	}
	inside := runInside
	dledger := func(t *testing.T, at target, conf map[string]string) *held {
		return runApache(t, "4.9.4", at, conf)
	}
	for name, c := range map[string]struct {
		run     func(*testing.T, target, map[string]string) *held
		conf    map[string]string
		refused string // a part of the path that gives it away
	}{
		"rocksdb": {inside, map[string]string{"storeType": "defaultRocksDB"}, "/CURRENT"},
		"rocksdb elsewhere": {inside, map[string]string{
			"storeType": "defaultRocksDB", "useSeparateStorePathForRocksdbCQ": "true",
			"useSingleRocksDBForAllConfigs": "true",
		}, "/CURRENT"},
		"tables v2": {inside, map[string]string{"configManagerVersion": "v2"}, "config/rdb/CURRENT"},
		"pops": {inside, map[string]string{
			"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true",
		}, "kvStore/CURRENT"},
		"timers": {inside, map[string]string{"timerRocksDBEnable": "true"}, "rocksdbstore/CURRENT"},
		"light queues": {inside, map[string]string{
			"enableLmq": "true", "enableMultiDispatch": "true",
		}, "config/lmqConsumerOffset.json"},
		"dledger": {dledger, map[string]string{
			"enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerSelfId": "n0",
			"dLegerPeers": "n0-" + address(ports(t)),
		}, "dledger-n0/data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jvm := java(t)
			at := target{
				NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-a", Dir: scratch(t),
			}
			open(t, jvm, "namesrv", args{"port": port(at.NameServer), "dir": scratch(t)})
			conf := map[string]string{"mappedFileSizeCommitLog": "8388608", "maxIndexNum": "1000", "maxHashSlotNum": "1000"}
			maps.Copy(conf, c.conf)
			h := c.run(t, at, conf)
			useForeign(t, at)
			if err := h.stop(); err != nil {
				t.Fatalf("%v\n%s", err, h.text())
			}
			before := treeOf(t, at.Dir)
			file := filepath.Join(t.TempDir(), "broker.conf")
			delete(conf, "storeType") // our own check of this key would stop the start before the files are seen
			writeConf(t, file, brokerLines(at, conf))
			p := start(t, "broker", "-c", file)
			code := p.ended(t, 20*time.Second)
			if code != 1 || !strings.Contains(p.output(), c.refused) || !strings.Contains(p.output(), at.Dir) ||
				!strings.Contains(p.output(), "nothing was changed") {
				t.Errorf("exit code %d, want 1 and a word of %s:\n%s", code, c.refused, p.output())
			}
			if diff := cmp.Diff(before, treeOf(t, at.Dir)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			summarizeCompat(t, fmt.Sprintf("%s: refused, %d files as they were", t.Name(), len(before)))
		})
	}
}

// useForeign leaves messages, a position, a timer and a popped message.
func useForeign(t *testing.T, at target) {
	t.Helper()
	jvm := java(t)
	topic, group := name(t, "T"), name(t, "CG")
	// A DLedger broker is no master before it has elected itself.
	eventually(t, 60*time.Second, func() error {
		return routeOf(at.NameServer, "SELF_TEST_TOPIC", time.Second)
	})
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	eventually(t, 60*time.Second, func() error {
		return jvm.do("producer.send", args{"handle": p, "topic": topic, "body": "first"}, nil)
	})
	many(t, jvm, p, topic, "m", 5)
	storeOffset(t, at, topic, group, 0, 2)
	if !strings.Contains(t.Name(), "dledger") {
		must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "timer", "delaySeconds": 300})
		eventually(t, 30*time.Second, func() error {
			if list, _ := rawPop(t, at, topic, group, time.Minute, time.Second); len(list) == 0 {
				return fmt.Errorf("nothing popped")
			}
			return nil
		})
	}
	run(t, jvm, "producer.stop", args{"handle": p})
}

// treeOf lists the files of a directory with size and time.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out[path] = fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
