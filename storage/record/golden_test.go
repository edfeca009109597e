// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/record"
)

// goldenSegment is the segment size that the captured logs were written with.
const goldenSegment = 1 << 20

// goldenNames are logs captured from Apache RocketMQ 5.5.0 together with what it reads from them.
func goldenNames() []string {
	return []string{"plain", "v2", "ipv6", "crc", "batch", "compressed"}
}

// goldenMessage is one message as RocketMQ's own store reads it.
type goldenMessage struct {
	Topic             string            `json:"topic"`
	QueueID           int32             `json:"queueId"`
	QueueOffset       int64             `json:"queueOffset"`
	PhysicalOffset    int64             `json:"physicalOffset"`
	Size              int32             `json:"size"`
	TagsCode          int64             `json:"tagsCode"`
	Magic             string            `json:"magic"`
	MsgID             string            `json:"msgId"`
	Tags              string            `json:"tags"`
	Properties        map[string]string `json:"properties"`
	Flag              int32             `json:"flag"`
	SysFlag           int32             `json:"sysFlag"`
	BornTimestamp     int64             `json:"bornTimestamp"`
	StoreTimestamp    int64             `json:"storeTimestamp"`
	BornHost          string            `json:"bornHost"`
	StoreHost         string            `json:"storeHost"`
	ReconsumeTimes    int32             `json:"reconsumeTimes"`
	PreparedTxnOffset int64             `json:"preparedTransactionOffset"`
	BodyLength        int               `json:"bodyLength"`
	BodySHA256        string            `json:"bodySha256"`
	BodyCRC           int32             `json:"bodyCRC"`
	RecordSHA256      string            `json:"recordSha256"`
}

func gunzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// walk calls do for each record of a captured log.
func walk(t testing.TB, log []byte, do func(v record.View)) {
	t.Helper()
	for at := 0; at < len(log); {
		v, err := record.Parse(log[at:])
		if errors.Is(err, record.ErrBlank) {
			at += goldenSegment - at%goldenSegment
			continue
		}
		if err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
		if got := v.PhysicalOffset(); got != record.PhysicalOffset(at) {
			t.Fatalf("at %d: record says it is at %d", at, got)
		}
		do(v)
		at += int(v.TotalSize())
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// javaHost turns what java.net prints into what Go parses.
func javaHost(t testing.TB, s string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(strings.TrimPrefix(s, "/"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func hostText(t testing.TB, s string) string { return javaHost(t, s).String() }

// golden turns a record into the form of the expectation. Of TagsCode, which is not in the record,
// it computes the hash of the tag.
func golden(v record.View) goldenMessage {
	magic := "daa320a7"
	if v.V2() {
		magic = "daa320ab"
	}
	props := map[string]string{}
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		props[string(name)] = string(value)
		return true
	})
	tag, _ := record.Property(v.Properties(), "TAGS")
	return goldenMessage{
		Topic: string(v.Topic()), QueueID: v.QueueID(), QueueOffset: int64(v.QueueOffset()),
		PhysicalOffset: int64(v.PhysicalOffset()), Size: v.TotalSize(),
		TagsCode: record.TagsCode(tag), Magic: magic,
		MsgID: string(record.AppendOffsetID(nil, v.StoreHost(), v.PhysicalOffset())),
		Tags:  string(tag), Properties: props, Flag: v.Flag(), SysFlag: v.SysFlag(),
		BornTimestamp: v.BornMS(), StoreTimestamp: v.StoreMS(),
		BornHost: v.BornHost().String(), StoreHost: v.StoreHost().String(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedTxnOffset: v.PreparedOffset(),
		BodyLength: len(v.Body()), BodySHA256: sum(v.Body()), BodyCRC: v.BodyCRC(),
		RecordSHA256: sum(v.Bytes()),
	}
}

// TestGoldenFields compares every field of every captured record with what RocketMQ reads.
func TestGoldenFields(t *testing.T) {
	t.Parallel()
	for _, name := range goldenNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[int64]goldenMessage{}
			walk(t, gunzip(t, name+".log.gz"), func(v record.View) {
				if !v.CheckCRC() || v.LooksTorn() {
					t.Errorf("at %d: a good record is refused", v.PhysicalOffset())
				}
				got[int64(v.PhysicalOffset())] = golden(v)
			})
			dec := json.NewDecoder(bytes.NewReader(gunzip(t, name+".jsonl.gz")))
			count := 0
			for ; dec.More(); count++ {
				var want goldenMessage
				if err := dec.Decode(&want); err != nil {
					t.Fatal(err)
				}
				want.BornHost = hostText(t, want.BornHost)
				want.StoreHost = hostText(t, want.StoreHost)
				if diff := cmp.Diff(want, got[want.PhysicalOffset]); diff != "" {
					t.Fatalf("(-RocketMQ +Skylark)\n%s", diff)
				}
			}
			if count == 0 || count != len(got) {
				t.Errorf("the log has %d records, RocketMQ reads %d", len(got), count)
			}
		})
	}
}

// TestGoldenBytes writes every captured record again and gets the same bytes.
func TestGoldenBytes(t *testing.T) {
	t.Parallel()
	withCRC := 0
	for _, name := range goldenNames() {
		walk(t, gunzip(t, name+".log.gz"), func(v record.View) {
			d := v.Draft()
			if present, ok := v.CheckPropertyCRC(); present {
				if !ok {
					t.Errorf("%s at %d: property CRC differs", name, v.PhysicalOffset())
				}
				withCRC++
				d.Properties = record.DeleteProperty(nil, d.Properties, record.PropertyCRC32)
				d.PropertyCRC = true
			}
			if got := d.Size(); got != int(v.TotalSize()) {
				t.Fatalf("%s at %d: size %d, want %d",
					name, v.PhysicalOffset(), got, v.TotalSize())
			}
			dst := bytes.Repeat([]byte{0xEE}, d.Size())
			d.Encode(dst, v.Place())
			if !bytes.Equal(dst, v.Bytes()) {
				t.Fatalf("%s at %d:\ngot  %x\nwant %x", name, v.PhysicalOffset(), dst, v.Bytes())
			}
		})
	}
	if withCRC == 0 {
		t.Error("no captured record has a property CRC")
	}
}
