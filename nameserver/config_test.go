// SPDX-License-Identifier: Apache-2.0

package nameserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/remoting"
)

func TestKV(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "namesrv")
	s := start(t, dir, nil)
	c := dial(t, s)
	put := func(namespace, key, value string) {
		t.Helper()
		c.want(0, "", remoting.PutKVConfig,
			fields{"namespace": namespace, "key": key, "value": value}, "")
	}
	put("N", "a", "1")
	put("N", "b", "x;y=\"中文\"\n")
	put("N", "a", "2")
	put("M", "gone", "")
	c.want(0, "", remoting.DeleteKVConfig, fields{"namespace": "M", "key": "gone"}, "")
	c.want(0, "", remoting.DeleteKVConfig, fields{"namespace": "M", "key": "never"}, "")
	check := func(c *caller) {
		t.Helper()
		r := c.want(0, "", remoting.GetKVConfig, fields{"namespace": "N", "key": "a"}, "")
		if field(r, "value") != "2" {
			t.Errorf("a = %q", field(r, "value"))
		}
		r = c.want(0, "", remoting.GetKVConfig, fields{"namespace": "N", "key": "b"}, "")
		if field(r, "value") != "x;y=\"中文\"\n" {
			t.Errorf("b = %q", field(r, "value"))
		}
		c.want(22, "No config item, Namespace: M Key: gone", remoting.GetKVConfig,
			fields{"namespace": "M", "key": "gone"}, "")
		r = c.want(0, "", remoting.GetKVListByNamespace, fields{"namespace": "M"}, "")
		if string(r.Body) != `{"table":{}}` {
			t.Errorf("emptied namespace: %s", r.Body)
		}
	}
	check(c)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(dial(t, start(t, dir, nil)))
}

// S10 for the name server: a torn file gives way to its backup, and when nothing is whole the
// start stops and names the files.
func TestKVDamaged(t *testing.T) {
	t.Parallel()
	good := `{"configTable":{"N":{"a":"1"}}}`
	for _, tc := range []struct {
		name, file, backup string
		starts, keeps      bool
	}{
		{"java's own form", "{\n\t\"configTable\":{\"N\":{\n\t\t\"a\":\"1\"\n\t}}\n}", "", true, true},
		{"empty with backup", "", good, true, true},
		{"half with backup", good[:12], good, true, true},
		{"zeros with backup", strings.Repeat("\x00", 40), good, true, true},
		{"half alone", good[:12], "", false, false},
		{"both torn", good[:12], good[:3], false, false},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "kvConfig.json")
		write := func(path, text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(path, tc.file)
		if tc.backup != "" {
			write(path+".bak", tc.backup)
		}
		s, err := nameserver.New(config(dir))
		if (err == nil) != tc.starts {
			t.Errorf("%s: New: %v", tc.name, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v does not name %s", tc.name, err, path)
			}
			continue
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		r := dial(t, s).call(remoting.GetKVConfig, fields{"namespace": "N", "key": "a"}, nil)
		if got := field(r, "value") == "1"; got != tc.keeps {
			t.Errorf("%s: the value is there: %v", tc.name, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A write that fails is answered as an error and changes nothing.
func TestKVNotSaved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "namesrv")
	s := start(t, dir, nil)
	if err := os.WriteFile(dir, []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	f := fields{"namespace": "N", "key": "a", "value": "1"}
	if r := c.call(remoting.PutKVConfig, f, nil); r.Code != 1 || !strings.Contains(r.Remark, dir) {
		t.Errorf("put into a folder that is none: %d %q", r.Code, r.Remark)
	}
	c.want(22, "No config item, Namespace: N Key: a", remoting.GetKVConfig, f, "")
	if r := c.call(remoting.UpdateNamesrvConfig, nil, []byte("enableTopicList=false")); r.Code != 1 {
		t.Errorf("update: %d %q", r.Code, r.Remark)
	}
	c.want(0, "", remoting.GetUnitTopicList, nil, "")
}

func TestUpdateConfig(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "namesrv")
	s := start(t, dir, nil)
	c := dial(t, s)
	update := remoting.UpdateNamesrvConfig
	_, port, _ := strings.Cut(s.Addr(), ":")
	c.want(0, "", update, nil,
		"enableTopicList=false\nnoSuchKey=1\nscanNotActiveBrokerInterval = 7000")
	c.want(1, "disable", remoting.GetUnitTopicList, nil, "")
	text := string(c.want(0, "", remoting.GetNamesrvConfig, nil, "").Body)
	for _, line := range []string{
		"enableTopicList=false\n", "scanNotActiveBrokerInterval=7000\n",
		"bindAddress=127.0.0.1\n", "listenPort=" + port + "\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	if strings.Contains(text, "noSuchKey") {
		t.Error("an unknown key was taken")
	}
	for _, body := range []string{"", "\n#\n", "a=\\u12", "\xff=\xfe"} {
		c.want(1, "string2Properties error", update, nil, body)
	}
	r := c.call(update, nil, []byte("enableTopicList=true\nscanNotActiveBrokerInterval=soon"))
	if r.Code != 1 || !strings.Contains(r.Remark, "scanNotActiveBrokerInterval") {
		t.Errorf("bad value: %d %q", r.Code, r.Remark)
	}
	c.want(1, "disable", remoting.GetUnitTopicList, nil, "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, dir, nil)
	if set := again.Settings(); set.EnableTopicList || set.ScanIntervalMS != 7000 {
		t.Errorf("after a restart: %+v", set)
	}
	if again.Addr() == "0.0.0.0:9876" {
		t.Error("the saved file changed the address")
	}
}

// O3: what a remote caller could turn into a path or a command cannot be changed.
func TestUpdateConfigRefusesPaths(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "namesrv")
	victim := filepath.Join(t.TempDir(), "victim")
	c := dial(t, start(t, dir, func(cfg *nameserver.Config) {
		cfg.BlackList += "; waitSecondsForService"
	}))
	for _, key := range []string{
		"rocketmqHome", "configStorePath", "kvConfigPath", "configBlackList",
		"listenPort", "bindAddress", "waitSecondsForService", "kvConfig\\u0050ath", " kvConfigPath ",
	} {
		for _, value := range []string{victim, "x;touch " + victim, "$(touch " + victim + ")", ""} {
			c.want(remoting.NoPermission, "Can not update config in black list.",
				remoting.UpdateNamesrvConfig, nil, "enableTopicList=false\n"+key+"="+value)
		}
	}
	c.want(0, "", remoting.GetUnitTopicList, nil, "")
	if _, err := os.Stat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", victim, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused update wrote something: %v", err)
	}
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "namesrv.conf")
	load := func(text string) (nameserver.Config, []settings.Warning, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return nameserver.LoadConfig(path)
	}
	cfg, warnings, err := load("listenPort=19876\nclientRequestThreadPoolNums=8\n" +
		"orderMessageEnable=true\nserverSelectorThreads=3\nuseTLS=false\n")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, w := range warnings {
		keys = append(keys, w.Key)
	}
	want := []string{"clientRequestThreadPoolNums", "serverSelectorThreads", "useTLS"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if cfg.ListenPort != 19876 || !cfg.OrderMessageEnable || cfg.ConfigStorePath != path ||
		cfg.Origins["listenPort"] != path {
		t.Errorf("got %+v", cfg)
	}
	for text, want := range map[string]string{
		"a=1\n":                          "line 1: a: unknown key",
		"\nlistenport=1\n":               "line 2: listenport: unknown key, did you mean listenPort?",
		"listenPort=70000":               "out of range 0..65535",
		"orderMessageEnable=yes":         "not true or false",
		"scanNotActiveBrokerInterval=1s": "not a whole number",
	} {
		if _, _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := nameserver.LoadConfig(path + ".none"); err == nil {
		t.Error("a missing file was read")
	}
}
