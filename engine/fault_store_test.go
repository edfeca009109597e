// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/net/remoting"
)

// TestFaultStoreInUse: a second broker on the directory of a running one names its process and touches
// nothing, not even a file that the other is about to rename.
func TestFaultStoreInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := startVictim(t, dir, "ASYNC_FLUSH")
	defer v.end(t, false)
	newPeer(t, v.addr).send("mine", 0, "x")
	unfinished := filepath.Join(dir, "config", "topics.json.tmp")
	if err := os.WriteFile(unfinished, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := quietConfig(t)
	cfg.StoreRoot = dir
	err := startError(t, cfg)
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(v.cmd.Process.Pid)) {
		t.Errorf("got %v, want process %d named", err, v.cmd.Process.Pid)
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("the other broker's file: %v", err)
	}
	newPeer(t, v.addr).send("mine", 0, "y")
}

// TestFaultTornTables damages the JSON files of a stopped broker as a power loss can. With a valid
// copy beside it the broker starts with what that says; without one it does not start and names the
// file. Nothing is deleted.
func TestFaultTornTables(t *testing.T) {
	t.Parallel()
	damages := map[string]func(b []byte) []byte{
		"empty":    func([]byte) []byte { return nil },
		"half":     func(b []byte) []byte { return b[:len(b)/2] },
		"zeros":    func(b []byte) []byte { return make([]byte, len(b)) },
		"old tail": func(b []byte) []byte { return append(b[:len(b):len(b)], b[len(b)/2:]...) },
		"rubbish":  func(b []byte) []byte { return []byte(strings.Repeat("x", len(b))) },
	}
	for _, name := range []string{"topics.json", "consumerOffset.json", "subscriptionGroup.json"} {
		for what, damage := range damages {
			for _, backup := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s backup=%v", name, what, backup), func(t *testing.T) {
					t.Parallel()
					cfg := quietConfig(t)
					b := startBroker(t, cfg)
					p := newPeer(t, b.Addr().String())
					p.send("torn", 0, "x")
					p.pull(pullRequest("torn", 0, 0, "*", 0))
					p.commit("consumers", "torn", 0, 1)
					if err := b.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					path := filepath.Join(cfg.StoreRoot, "config", name)
					good, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					write := func(path string, b []byte) {
						if err := os.WriteFile(path, b, 0o600); err != nil {
							t.Fatal(err)
						}
					}
					bad := damage(good)
					write(path, bad)
					write(path+".bak", bad)
					if !backup {
						if err := startError(t, cfg); err == nil || !strings.Contains(err.Error(), path) {
							t.Errorf("started without a valid copy: %v", err)
						}
						if left, err := os.ReadFile(path); err != nil || string(left) != string(bad) {
							t.Errorf("the damaged file: %v", err)
						}
						return
					}
					write(path+".bak", good)
					p = newPeer(t, startBroker(t, cfg).Addr().String())
					if at := p.committed("consumers", "torn", 0); at != 1 {
						t.Errorf("offset %d", at)
					}
					if d := p.pull(pullRequest("torn", 0, 0, "*", 0)); d.code != remoting.Success {
						t.Errorf("pull: %v %s", d.code, d.remark)
					}
					aside, err := filepath.Glob(path + ".damaged-*")
					if err != nil || len(aside) != 1 {
						t.Errorf("set aside: %v %v", aside, err)
					}
				})
			}
		}
	}
}
