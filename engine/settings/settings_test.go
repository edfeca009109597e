// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/settings"
)

type role string

type netty struct {
	ListenPort int `key:"listenPort" min:"0" max:"65535"`
}

type config struct {
	BrokerName string  `key:"brokerName" important:"true"`
	BrokerID   int64   `key:"brokerId" min:"0"`
	Role       role    `key:"brokerRole" oneof:"ASYNC_MASTER,SYNC_MASTER,SLAVE"`
	Ratio      float64 `key:"ratio" min:"0" max:"1"`
	Auto       bool    `key:"autoCreateTopicEnable"`
	Dir        string
	Netty      netty
}

func parse(t *testing.T, text string) *settings.File {
	t.Helper()
	f, err := settings.Parse("test.conf", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParseKeepsLinesAndEscapes(t *testing.T) {
	t.Parallel()
	f := parse(t, "\uFEFF# comment\r\n! other\r\n\r\n  a = 1 \r\nb:two\nc three\n"+
		"long=x,\\\n   y,\\\n   z\nafter=\\u0041\\\\n ${no}\nempty\nk\\ ey=\\=v\na=2\n")
	want := []settings.Entry{
		{Key: "a", Value: "1", Line: 4},
		{Key: "b", Value: "two", Line: 5},
		{Key: "c", Value: "three", Line: 6},
		{Key: "long", Value: "x,y,z", Line: 7},
		{Key: "after", Value: `A\n ${no}`, Line: 10},
		{Key: "empty", Value: "", Line: 11},
		{Key: "k ey", Value: "=v", Line: 12},
		{Key: "a", Value: "2", Line: 13},
	}
	if diff := cmp.Diff(want, f.Entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if v, ok := f.Get("a"); !ok || v != "2" {
		t.Errorf("Get(a) = %q, %v; want the later value 2", v, ok)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no key":      "a=1\n=2\n",
		"bad unicode": "a=1\nb=\\u00G1\n",
	} {
		_, err := settings.Parse("x.conf", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "x.conf line 2") {
			t.Errorf("%s: got %v, want an error naming x.conf line 2", name, err)
		}
	}
	if _, err := settings.Parse("x.conf", []byte("a=\xff\xfe")); err == nil {
		t.Error("bytes that are no UTF-8 were taken")
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.conf")
	if _, err := settings.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: got %v, want an error naming it", err)
	}
	if err := os.WriteFile(path, []byte("brokerName=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := settings.Load(path)
	if err != nil || f.Path != path || len(f.Entries) != 1 {
		t.Errorf("Load = %+v, %v", f, err)
	}
	if _, err := settings.Load(t.TempDir()); err == nil {
		t.Error("a directory was taken for a file")
	}
}

func TestApplySets(t *testing.T) {
	t.Parallel()
	cfg := config{BrokerName: "default", BrokerID: 7, Dir: "d"}
	report, err := settings.Apply(&cfg, parse(t,
		"brokerName=b\nbrokerRole = sync_master\nratio=0.25\nautoCreateTopicEnable=TRUE\n"+
			"listenPort=10911\ncommercialEnable=true\nbrokerName=c\n"),
		map[string]bool{"commercialEnable": true})
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		BrokerName: "c", BrokerID: 7, Role: "SYNC_MASTER", Ratio: 0.25, Auto: true,
		Dir: "d", Netty: netty{10911},
	}
	if cfg != want {
		t.Errorf("got %+v, want %+v", cfg, want)
	}
	wantReport := settings.Report{
		Set: []string{"brokerName", "brokerRole", "ratio", "autoCreateTopicEnable", "listenPort"},
		Warnings: []settings.Warning{
			{
				"commercialEnable", 6,
				"test.conf line 6: commercialEnable: known to RocketMQ, has no effect here",
			},
			{
				"brokerName", 7,
				"test.conf line 7: brokerName: also set in line 1, the later one counts",
			},
		},
	}
	if diff := cmp.Diff(wantReport, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestApplyRefusesAndChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ line, want string }{
		{"brokrName=x", "unknown key, did you mean brokerName?"},
		{"BROKERNAME=x", "unknown key, did you mean brokerName?"},
		{"zzzzzzzz=x", "unknown key"},
		{"brokerId=-1", "-1 is out of range 0..-"},
		{"brokerId=ten", `"ten" is not a whole number of 64 bits`},
		{"brokerId=", `"" is not a whole number of 64 bits`},
		{"brokerId=99999999999999999999", "is not a whole number"},
		{"listenPort=70000", "70000 is out of range 0..65535"},
		{"ratio=2", "2 is out of range 0..1"},
		{"ratio=NaN", `"NaN" is not a number`},
		{"brokerRole=KING", `"KING" is not one of ASYNC_MASTER, SYNC_MASTER, SLAVE`},
		{"autoCreateTopicEnable=yes", `"yes" is not true or false`},
	} {
		cfg := config{BrokerName: "old"}
		_, err := settings.Apply(&cfg, parse(t, "brokerName=new\n\n"+tc.line+"\n"), nil)
		var key *settings.KeyError
		if !errors.As(err, &key) || key.Line != 3 || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), "test.conf line 3") {
			t.Errorf("%s: got %v, want %q in line 3", tc.line, err, tc.want)
		}
		if cfg != (config{BrokerName: "old"}) {
			t.Errorf("%s: fields changed: %+v", tc.line, cfg)
		}
	}
}

func TestApplyNamesEveryFault(t *testing.T) {
	t.Parallel()
	var cfg config
	_, err := settings.Apply(&cfg, parse(t, "x1=1\nbrokerId=a\n"), nil)
	var all settings.Errors
	if !errors.As(err, &all) || len(all) != 2 {
		t.Errorf("got %v, want two faults", err)
	}
}

func TestLenientAndUpdate(t *testing.T) {
	t.Parallel()
	var cfg config
	report, err := settings.ApplyLenient(&cfg, parse(t, "brokrId=1\nbrokerId=2\n"), nil)
	if err != nil || len(report.Warnings) != 1 || cfg.BrokerID != 2 {
		t.Errorf("ApplyLenient: %+v, %v, %+v", report, err, cfg)
	}
	set, err := settings.Update(&cfg, parse(t, "nothing=1\nbrokerId=3\n"))
	if err != nil || cmp.Diff([]string{"brokerId"}, set) != "" || cfg.BrokerID != 3 {
		t.Errorf("Update: %v, %v, %+v", set, err, cfg)
	}
	if _, err := settings.Update(&cfg, parse(t, "brokerName=x\nbrokerId=-3\n")); err == nil ||
		cfg.BrokerName != "" {
		t.Errorf("Update with a bad value: %v, %+v; want an error and no change", err, cfg)
	}
	if _, err := settings.Update(cfg, parse(t, "brokerId=3\n")); err == nil {
		t.Error("a struct that is no pointer was taken")
	}
}

func TestPrintAndFormatReadBack(t *testing.T) {
	t.Parallel()
	cfg := config{BrokerName: "a\\b\tc=d", BrokerID: 1, Role: "SLAVE", Ratio: 0.5}
	var all, few bytes.Buffer
	if err := settings.Print(&all, false, nil, cfg); err != nil {
		t.Fatal(err)
	}
	want := "autoCreateTopicEnable=false\nbrokerId=1\nbrokerName=a\\\\b\\tc=d\nbrokerRole=SLAVE\n" +
		"listenPort=0\nratio=0.5\n"
	if all.String() != want {
		t.Errorf("Print:\n%s\nwant:\n%s", all.String(), want)
	}
	origin := func(string) string { return "b.conf line 1" }
	if err := settings.Print(&few, true, origin, &cfg); err != nil {
		t.Fatal(err)
	}
	if got := few.String(); !strings.HasPrefix(got, "brokerName=") || strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "# b.conf line 1") {
		t.Errorf("Print of the important keys: %q", got)
	}
	var back config
	file := parse(t, string(settings.Format(settings.Values(&cfg))))
	if _, err := settings.Apply(&back, file, nil); err != nil || back != cfg {
		t.Errorf("read back %+v, %v; want %+v", back, err, cfg)
	}
	if diff := cmp.Diff([]string{
		"autoCreateTopicEnable", "brokerId", "brokerName", "brokerRole",
		"listenPort", "ratio",
	}, settings.Keys(cfg)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a=b\\\n c\n# d\n\\u0041=1"))
	f.Add([]byte("=\\\n\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := settings.Parse("f", data)
		if err != nil {
			return
		}
		again, err := settings.Parse("f", settings.Format(file.Entries))
		if err != nil {
			t.Fatalf("formatted text does not parse: %v", err)
		}
		if len(again.Entries) != len(file.Entries) {
			t.Fatalf("%d entries became %d", len(file.Entries), len(again.Entries))
		}
		for i, e := range file.Entries {
			if again.Entries[i].Key != e.Key || again.Entries[i].Value != e.Value {
				t.Fatalf("entry %+v became %+v", e, again.Entries[i])
			}
		}
	})
}
