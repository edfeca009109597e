// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// unpack puts the store of an archive into dir.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(filepath.Clean(h.Name), "store/")
		if !inside || h.Typeflag == tar.TypeDir {
			continue
		}
		path := filepath.Join(dir, filepath.Clean("/"+name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A store of RocketMQ 5.5.0 is carried on: its two undecided half messages have been checked 13 times,
// those that were ended are not asked about, and its op records hold several offsets each.
func TestStoreOfRocketMQ(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, dir: t.TempDir(), room: -1, queueFile: 4000, now: time.UnixMilli(1_795_977_620_000)}
	unpack(t, "../../storage/testdata/vectors/transaction.tar.gz", b.dir)
	b.open()
	t.Cleanup(b.close)
	before := len(b.messages("TxTopic", 0)) + len(b.messages("TxTopic", 1))
	var got []string
	for range 6 {
		b.after(interval)
		for _, c := range b.checks() {
			v, err := record.Parse(c.Record)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, property(v, "KEYS")+" "+property(v, "TRANSACTION_CHECK_TIMES"))
		}
	}
	if diff := cmp.Diff([]string{"key2 14", "key8 14", "key2 15", "key8 15"}, got); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	var given []string
	for _, v := range b.messages(protocol.TransCheckMaxTimeTopic, 0) {
		given = append(given, property(v, "KEYS"))
	}
	if diff := cmp.Diff([]string{"key2", "key8"}, given); diff != "" {
		t.Errorf("given up (-want +got):\n%s", diff)
	}
	if after := len(b.messages("TxTopic", 0)) + len(b.messages("TxTopic", 1)); after != before {
		t.Errorf("%d messages were delivered, %d before", after, before)
	}
}

// Brokers before 5.0 wrote one op record for each half message, without a comma; and a broker that took
// a half message aside for its immunity time left the place of the first copy in it.
func TestFormsOfRocketMQ(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	first, _ := b.half("one"), b.half("two")
	var p []byte
	for _, text := range [][2]string{{"TAGS", "d"}, {"WAIT", "true"}} {
		p = record.AppendProperty(p, text[0], text[1])
	}
	op := record.Draft{
		Topic: []byte(protocol.OpHalfTopic), BornHost: host, StoreHost: host, Properties: p,
		Body: []byte(fmt.Sprint(first.Offset)),
	}
	b.store.Append([]storage.Entry{{Draft: op}})
	copied := b.messages(protocol.HalfTopic, 0)[0].Draft()
	for _, text := range [][2]string{
		{"TRAN_PREPARED_QUEUE_OFFSET", fmt.Sprint(first.Offset)},
		{"TRANSACTION_CHECK_TIMES", "1"},
		{"CHECK_IMMUNITY_TIME_IN_SECONDS", "5"},
	} {
		copied.Properties = record.AppendProperty(append([]byte(nil), copied.Properties...), text[0], text[1])
	}
	b.store.Append([]storage.Entry{{Draft: copied}})
	b.again(true)
	b.after(10 * time.Second)
	checks := b.checks()
	if len(checks) != 1 {
		t.Fatalf("%d checks, want one", len(checks))
	}
	if v, _ := record.Parse(checks[0].Record); string(v.Body()) != "two" {
		t.Errorf("asked about %s", v.Body())
	}
}
