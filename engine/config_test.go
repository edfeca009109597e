// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/engine"
)

func TestConfigFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		fails      string // part of the error; empty: loads
		warns      string
	}{
		{"good", "brokerName=b\nlistenPort=1234\n", "", ""},
		{"another release's key", "sendMessageThreadPoolNums=4\n", "", "sendMessageThreadPoolNums"},
		{"an old key", "filterServerNums=0\n", "", "filterServerNums"},
		{"misspelt", "\nbrokerNam=b\n", "line 2", ""},
		{"no number", "listenPort=abc\n", "listenPort", ""},
		{"out of range", "listenPort=70000\n", "65535", ""},
		{"no such choice", "flushDiskType=NEVER\n", "SYNC_FLUSH", ""},
	} {
		path := filepath.Join(t.TempDir(), "broker.conf")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := engine.Default()
		warnings, err := cfg.Load(path, false)
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.fails)
		}
		if got := strings.Join(warnings, ";"); (got == "") != (c.warns == "") || !strings.Contains(got, c.warns) {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.warns)
		}
		if c.name == "misspelt" {
			if !strings.Contains(err.Error(), "brokerName") {
				t.Errorf("the nearest key is not named: %v", err)
			}
			if warnings, err := cfg.Load(path, true); err != nil || len(warnings) != 1 {
				t.Errorf("--ignore-unknown-config: %v %v", warnings, err)
			}
		}
	}
}

func TestConfigThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *engine.Config){
		"brokerRole":  func(c *engine.Config) { c.BrokerRole = "SLAVE" },
		"brokerId":    func(c *engine.Config) { c.BrokerID = 3 },
		"namesrvAddr": func(c *engine.Config) { c.NameServers = "localhost" },
	} {
		cfg := engine.Default()
		change(&cfg)
		if _, err := engine.New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func quietConfig(t *testing.T) engine.Config {
	cfg := engine.Default()
	cfg.BrokerName, cfg.BindAddress, cfg.ListenPort, cfg.FastPort = "b", "127.0.0.1", 0, -1
	cfg.StoreRoot = t.TempDir()
	cfg.CommitLogFileSize, cfg.IndexSlots, cfg.IndexEntries = 8<<20, 500, 2000
	cfg.BallastBytes = 0
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

func startError(t *testing.T, cfg engine.Config) error {
	t.Helper()
	b, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err = b.Start(context.Background()); err == nil {
		_ = b.Close(context.Background())
	}
	return err
}

func TestStartSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	t.Run("port taken", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		cfg := quietConfig(t)
		cfg.ListenPort = l.Addr().(*net.TCPAddr).Port
		if err := startError(t, cfg); err == nil || !strings.Contains(err.Error(), "listenPort") {
			t.Errorf("got %v, want advice on listenPort", err)
		}
		// The failed start must leave nothing behind that stops the next one.
		cfg.ListenPort = 0
		if err := startError(t, cfg); err != nil {
			t.Errorf("the next start: %v", err)
		}
	})
	t.Run("two brokers on one store", func(t *testing.T) {
		t.Parallel()
		cfg := quietConfig(t)
		b, err := engine.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close(context.Background()) }()
		if err := startError(t, cfg); err == nil || !strings.Contains(err.Error(), "lock") {
			t.Errorf("got %v, want it to speak of the lock and its holder", err)
		}
	})
	t.Run("store is a file", func(t *testing.T) {
		t.Parallel()
		cfg := quietConfig(t)
		cfg.StoreRoot = filepath.Join(cfg.StoreRoot, "file")
		if err := os.WriteFile(cfg.StoreRoot, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := startError(t, cfg); err == nil || !strings.Contains(err.Error(), cfg.StoreRoot) {
			t.Errorf("got %v, want the path", err)
		}
	})
}
