// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage/record"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sample is the record that storage/docs/format/commitlog.md shows.
func sample() (record.Draft, record.Place) {
	d := record.Draft{
		Topic: []byte("Hello"), QueueID: 3, BornMS: 1700000000000,
		BornHost:  netip.MustParseAddrPort("10.0.0.9:50000"),
		StoreHost: netip.MustParseAddrPort("10.0.0.1:10911"),
		Body:      []byte("hi"), Properties: []byte("TAGS\x01TagA\x02"),
	}
	return d, record.Place{Queue: 42, Physical: 4096, StoreMS: 1700000000005}
}

const sampleHex = `
	00 00 00 6c da a3 20 a7 58 93 2a ac 00 00 00 03
	00 00 00 00 00 00 00 00 00 00 00 2a 00 00 00 00
	00 00 10 00 00 00 00 00 00 00 01 8b cf e5 68 00
	0a 00 00 09 00 00 c3 50 00 00 01 8b cf e5 68 05
	0a 00 00 01 00 00 2a 9f 00 00 00 00 00 00 00 00
	00 00 00 00 00 00 00 02 68 69 05 48 65 6c 6c 6f
	00 0a 54 41 47 53 01 54 61 67 41 02`

func encode(d *record.Draft, at record.Place) []byte {
	b := make([]byte, d.Size())
	d.Encode(b, at)
	return b
}

func TestEncodeSample(t *testing.T) {
	t.Parallel()
	d, at := sample()
	if got, want := encode(&d, at), unhex(t, sampleHex); !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
}

// TestHosts round-trips every combination of address types and topic lengths around the change to
// V2, with the wrong host bits in the draft.
func TestHosts(t *testing.T) {
	t.Parallel()
	hosts := []netip.AddrPort{
		netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("[2001:db8::1]:65535"),
		netip.MustParseAddrPort("[::ffff:9.8.7.6]:80"),
		{},
	}
	for _, born := range hosts {
		for _, store := range hosts {
			for _, topicLen := range []int{0, 127, 128, 255} {
				d, at := sample()
				d.BornHost, d.StoreHost = born, store
				d.Topic = bytes.Repeat([]byte{'t'}, topicLen)
				d.SysFlag = record.SysBornHostV6 | record.SysStoreHostV6 | record.SysCompressed
				v, err := record.Parse(encode(&d, at))
				if err != nil {
					t.Fatalf("born=%v store=%v topic=%d: %v", born, store, topicLen, err)
				}
				checkRoundTrip(t, &d, at, v)
			}
		}
	}
}

func checkRoundTrip(t *testing.T, d *record.Draft, at record.Place, v record.View) {
	t.Helper()
	wantFlag := record.SysCompressed
	if a := d.BornHost.Addr(); a.Is6() && !a.Is4In6() {
		wantFlag |= record.SysBornHostV6
	}
	if a := d.StoreHost.Addr(); a.Is6() && !a.Is4In6() {
		wantFlag |= record.SysStoreHostV6
	}
	got := fmt.Sprint(v.SysFlag(), v.BornHost(), v.StoreHost(), v.Place(), v.V2(), v.QueueID(),
		v.BornMS(), string(v.Body()), len(v.Topic()), string(v.Properties()))
	want := fmt.Sprint(wantFlag, plain(d.BornHost), plain(d.StoreHost), at, len(d.Topic) > 127,
		d.QueueID, d.BornMS, string(d.Body), len(d.Topic), string(d.Properties))
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func plain(a netip.AddrPort) netip.AddrPort {
	if !a.IsValid() {
		return netip.MustParseAddrPort("0.0.0.0:0")
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func TestBodyCRC(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int32{
		"hi": 1486039724, "hello rocketmq": 1932557065, "": 0,
	} {
		d, at := sample()
		d.Body = []byte(body)
		v, err := record.Parse(encode(&d, at))
		if err != nil || v.BodyCRC() != want || !v.CheckCRC() {
			t.Errorf("%q: CRC %d (%v), want %d", body, v.BodyCRC(), err, want)
		}
	}
}

// TestParseRefuses cuts and alters a good record in each place that a length depends on.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := unhex(t, sampleHex)
	check := func(name string, want error, alter func(b []byte) []byte) {
		t.Helper()
		if _, err := record.Parse(alter(bytes.Clone(good))); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	be := binary.BigEndian
	put32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { be.PutUint32(b[at:], v); return b }
	}
	for n := range good {
		check(fmt.Sprintf("cut to %d", n), record.ErrShort, func(b []byte) []byte { return b[:n] })
	}
	check("zero", record.ErrMagic, func(b []byte) []byte { clear(b); return b })
	check("size 0", record.ErrLength, put32(0, 0))
	check("size below the least", record.ErrLength, put32(0, record.MinSize-1))
	check("size negative", record.ErrLength, put32(0, 1<<31))
	check("size one less", record.ErrLength, put32(0, uint32(len(good)-1)))
	check("size one more", record.ErrShort, put32(0, uint32(len(good)+1)))
	check("body negative", record.ErrLength, put32(84, 0xFFFFFFFF))
	check("body huge", record.ErrLength, put32(84, 0x7FFFFFFF))
	check("body one more", record.ErrLength, put32(84, 3))
	check("born host IPv6", record.ErrLength, put32(36, 0x10))
	check("store host IPv6", record.ErrLength, put32(36, 0x20))
	check("topic negative", record.ErrLength, func(b []byte) []byte { b[90] = 0xFF; return b })
	check("topic long", record.ErrLength, func(b []byte) []byte { b[90] = 127; return b })
	check("V2", record.ErrLength, put32(4, 0xDAA320AB))
	check("properties short", record.ErrLength, func(b []byte) []byte { b[97]--; return b })
	check("properties negative", record.ErrLength, func(b []byte) []byte { b[96] = 0x80; return b })
	check("blank", record.ErrBlank, func(b []byte) []byte {
		record.PutBlank(b, len(b))
		return b[:record.BlankSize]
	})
}

func TestPlausible(t *testing.T) {
	t.Parallel()
	for _, name := range goldenNames() {
		walk(t, gunzip(t, name+".log.gz"), func(v record.View) {
			head := v.Bytes()[:min(record.HeadSize, len(v.Bytes()))]
			if !record.Plausible(head) {
				t.Errorf("%s: the record at %d is not plausible", name, v.PhysicalOffset())
			}
			head = bytes.Clone(head)
			head[0] = 0x3F
			if record.Plausible(head) {
				t.Errorf("%s: with a size of 1 GB it is plausible", name)
			}
		})
	}
}

func TestPeekSize(t *testing.T) {
	t.Parallel()
	b := unhex(t, sampleHex)
	if size, blank, ok := record.PeekSize(b); size != 108 || blank || !ok {
		t.Errorf("record: %d %v %v", size, blank, ok)
	}
	record.PutBlank(b, 77)
	if size, blank, ok := record.PeekSize(b); size != 77 || !blank || !ok {
		t.Errorf("blank: %d %v %v", size, blank, ok)
	}
	clear(b)
	if _, _, ok := record.PeekSize(b); ok {
		t.Error("zeros are taken for a record")
	}
	if _, _, ok := record.PeekSize(b[:7]); ok {
		t.Error("7 bytes are taken for a record")
	}
}

// TestLooksTorn takes parts of a record away as a lost page does.
func TestLooksTorn(t *testing.T) {
	t.Parallel()
	d, at := sample()
	d.Properties = record.AppendProperty(nil, "KEYS", strings.Repeat("k", 300))
	good := encode(&d, at)
	for _, cut := range [][2]int{
		{len(good) - 1, len(good)},
		{len(good) - 100, len(good)},
		{len(good) - 120, len(good) - 50},
		{92, 93},
	} {
		b := bytes.Clone(good)
		clear(b[cut[0]:cut[1]])
		v, err := record.Parse(b)
		if err != nil || !v.CheckCRC() || !v.LooksTorn() {
			t.Errorf("zeros in %v: %v torn=%v", cut, err, err == nil && v.LooksTorn())
		}
	}
	if v, err := record.Parse(good); err != nil || v.LooksTorn() {
		t.Errorf("the whole record: %v", err)
	}
}

func TestPropertyCRC(t *testing.T) {
	t.Parallel()
	d, at := sample()
	d.PropertyCRC = true
	b := encode(&d, at)
	v, err := record.Parse(b)
	if err != nil || len(b) != 128 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if present, ok := v.CheckPropertyCRC(); !present || !ok {
		t.Errorf("present=%v ok=%v", present, ok)
	}
	b[40]++
	if present, ok := v.CheckPropertyCRC(); !present || ok {
		t.Errorf("after a change: present=%v ok=%v", present, ok)
	}
	b[len(b)-3] = 'x'
	if present, _ := v.CheckPropertyCRC(); present {
		t.Error("a value that is no number is taken for a check sum")
	}
}

// TestAllocs holds the hot functions at no allocation.
func TestAllocs(t *testing.T) {
	d, at := sample()
	dst := make([]byte, d.Size())
	ids := record.NewUniqueIDs(netip.MustParseAddr("10.0.0.1"))
	id := make([]byte, 0, 64)
	batch := record.AppendBatchEntry(nil, 0, d.Body, d.Properties)
	got := testing.AllocsPerRun(100, func() {
		d.Encode(dst, at)
		v, err := record.Parse(dst)
		if err != nil || !v.CheckCRC() || !v.StoreHost().IsValid() {
			t.Fatal("bad record")
		}
		tag, _ := record.Property(v.Properties(), "TAGS")
		if record.TagsCode(tag) != 2598919 {
			t.Fatal("bad tag")
		}
		r := record.NewBatchReader(batch)
		if _, _, _, ok := r.Next(); !ok || r.Err() != nil {
			t.Fatal("bad batch")
		}
		id = record.AppendOffsetID(id[:0], d.StoreHost, at.Physical)
		id = ids.Append(id[:0])
	})
	if got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// FuzzRecord parses anything; what it accepts encodes to the same bytes, and no accessor panics.
func FuzzRecord(f *testing.F) {
	f.Add(unhex(f, sampleHex))
	for _, name := range goldenNames() {
		n := 0
		walk(f, gunzip(f, name+".log.gz"), func(v record.View) {
			if n++; n < 4 && v.TotalSize() < 1000 {
				f.Add(v.Bytes())
			}
		})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := record.Parse(b)
		if err != nil {
			return
		}
		v.CheckCRC()
		v.CheckPropertyCRC()
		v.LooksTorn()
		golden(v)
		d := v.Draft()
		back := encode(&d, v.Place())
		// Equal unless another writer chose what Encode never chooses.
		v2, err := record.Parse(back)
		if err != nil || !v2.CheckCRC() || !bytes.Equal(v2.Body(), v.Body()) ||
			!bytes.Equal(v2.Topic(), v.Topic()) || !bytes.Equal(v2.Properties(), v.Properties()) ||
			v2.Place() != v.Place() || v2.ReconsumeTimes() != v.ReconsumeTimes() ||
			v2.PreparedOffset() != v.PreparedOffset() {
			t.Fatalf("encoded again it reads differently (%v)", err)
		}
	})
}
