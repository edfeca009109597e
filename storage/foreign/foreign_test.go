// SPDX-License-Identifier: Apache-2.0

package foreign_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/foreign"
)

// TestCheck has the files as RocketMQ 5.5.0, and 4.9.4 for DLedger, leave them with the options named.
func TestCheck(t *testing.T) {
	t.Parallel()
	const plain = "config/topics.json={}; rocksdbstore/CURRENT=MANIFEST-000005; rocksdbstore/000004.log="
	for name, c := range map[string]struct{ files, refused string }{
		"nothing":                          {"", ""},
		"plain":                            {plain, ""},
		"storeType":                        {"consumequeue/CURRENT=x; consumequeue/000004.log=", "consumequeue/CURRENT"},
		"useSeparateStorePathForRocksdbCQ": {"consumequeue_rocksdb/CURRENT=x", "consumequeue_rocksdb/CURRENT"},
		"topics":                           {"config/topics/CURRENT=x", "config/topics/CURRENT"},
		"groups":                           {"config/subscriptionGroups/CURRENT=x", "config/subscriptionGroups/CURRENT"},
		"offsets":                          {"config/consumerOffsets/CURRENT=x", "config/consumerOffsets/CURRENT"},
		"useSingleRocksDBForAllConfigs":    {"config/metadata/CURRENT=x", "config/metadata/CURRENT"},
		"configManagerVersion=v2":          {"config/rdb/CURRENT=x", "config/rdb/CURRENT"},
		"a later release's":                {"somewhere/CURRENT=x", "somewhere/CURRENT"},
		"users":                            {"config/users/CURRENT=x; config/users/000004.sst=x", ""},
		"a topic of that name":             {"consumequeue/CURRENT/0/00000000000000000000=x", ""},
		"timerRocksDBEnable":               {plain + "; rocksdbstore/000013.sst=x", "rocksdbstore/CURRENT"},
		"timerRocksDBEnable killed":        {"rocksdbstore/CURRENT=x; rocksdbstore/000004.log=x", "rocksdbstore/CURRENT"},
		"popConsumerKVServiceInit":         {"kvStore/CURRENT=x; kvStore/000004.log=", ""},
		"popConsumerKVServiceEnable":       {"kvStore/CURRENT=x; kvStore/000004.log=x", "kvStore/CURRENT"},
		"enableLmq": {
			`config/lmqConsumerOffset.json={"offsetTable":{"T@G":{0:3}}}`, "config/lmqConsumerOffset.json",
		},
		"enableLmq only the backup": {
			`config/lmqConsumerOffset.json.bak={"lmqOffsetTable":{"%LMQ%a@G":3}}`,
			"config/lmqConsumerOffset.json.bak",
		},
		"enableLmq unused": {`config/lmqConsumerOffset.json={"offsetTable":{}}; ` +
			`config/lmqConsumerOffset.json.bak={"offsetTable":{"T@G":{0:3}}}`, ""},
		"tiered": {
			`config/tieredStoreMetadata.json={"topicMetadataTable":{"T":{"topicId":1}}}`,
			"config/tieredStoreMetadata.json",
		},
		"enableDLegerCommitLog": {"dledger-n0/data/00000000000000000000=x", "dledger-n0/data/00000000000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "store[1]")
			lay(t, root, c.files)
			before := tree(t, root)
			err := foreign.Check(root)
			var refused *foreign.Error
			switch {
			case c.refused == "" && err != nil:
				t.Fatal(err)
			case c.refused != "" && (!errors.As(err, &refused) || refused.Path != filepath.Join(root, c.refused)):
				t.Fatalf("got %v, want a refusal of %s", err, c.refused)
			}
			if c.refused != "" { // and so does whoever opens the directory, before it makes a file
				if _, err := storage.LockDir(root); !errors.As(err, &refused) {
					t.Errorf("lock: %v", err)
				}
				if _, err := storage.Open(storage.DefaultConfig(root)); !errors.As(err, &refused) {
					t.Errorf("open: %v", err)
				}
			}
			if diff := cmp.Diff(before, tree(t, root)); diff != "" {
				t.Errorf("the directory changed:\n%s", diff)
			}
		})
	}
}

// lay makes the files of a list "path=text; path=text".
func lay(t *testing.T, root, files string) {
	t.Helper()
	for file := range strings.SplitSeq(files, "; ") {
		name, text, ok := strings.Cut(file, "=")
		if !ok {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tree lists what a directory holds, with sizes and times.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out[path] = info.ModTime().Format(time.RFC3339Nano) + " " + info.Mode().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
