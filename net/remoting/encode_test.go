// SPDX-License-Identifier: Apache-2.0

package remoting_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/remoting"
)

var bothForms = []remoting.SerializeType{remoting.JSON, remoting.Binary}

// decodeWhole decodes a frame with its length field and checks that field.
func decodeWhole(t *testing.T, frame []byte) *remoting.Command {
	t.Helper()
	total, err := remoting.FrameSize(frame, 1<<30)
	if err != nil || total != len(frame) {
		t.Fatalf("FrameSize = %d, %v; frame has %d bytes", total, err, len(frame))
	}
	c := new(remoting.Command)
	if err := c.Decode(frame[4:]); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, form := range bothForms {
		t.Run(form.String(), func(t *testing.T) {
			t.Parallel()
			h := remoting.Head{
				Code: 11, Flag: remoting.FlagResponse, Language: remoting.LanguageGo, Version: 513,
				Opaque: -3, Serialize: form,
			}
			e := remoting.Begin([]byte("kept"), h)
			e.Remark("FOUND \"\\\n\r\t\x01 订")
			e.String("s", "a\x01b\x02\"\\")
			e.Bytes("b", []byte("\x1f"))
			e.Int("i", -9223372036854775808)
			e.Bool("t", true)
			e.Bool("f", false)
			out := e.End([]byte("body"))
			if string(out[:4]) != "kept" {
				t.Errorf("dst begins with %q", out[:4])
			}
			want := view{
				Code: 11, Flag: 1, Language: remoting.LanguageGo, Version: 513, Opaque: -3,
				Remark: "FOUND \"\\\n\r\t\x01 订", HasFields: true, Body: "body",
				Fields: [][2]string{
					{"s", "a\x01b\x02\"\\"},
					{"b", "\x1f"},
					{"i", "-9223372036854775808"},
					{"t", "true"},
					{"f", "false"},
				},
			}
			c := decodeWhole(t, out[4:])
			if diff := cmp.Diff(want, viewOf(c)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if c.Serialize != form {
				t.Errorf("form %v, want %v", c.Serialize, form)
			}
		})
	}
}

// TestEncodeStrict proves that JSON headers are JSON, which Go clients insist on.
func TestEncodeStrict(t *testing.T) {
	t.Parallel()
	build := func(f func(e *remoting.Encoder)) string {
		e := remoting.Begin(nil, remoting.Head{Code: 1, Flag: 1, Opaque: 2, Version: 3})
		f(&e)
		out := e.End(nil)
		return string(out[8:])
	}
	head := `{"code":1,"flag":1,"language":"JAVA","opaque":2,` +
		`"serializeTypeCurrentRPC":"JSON","version":3`
	for want, f := range map[string]func(e *remoting.Encoder){
		head + `}`:                func(*remoting.Encoder) {},
		head + `,"extFields":{}}`: func(e *remoting.Encoder) { e.EmptyFields() },
		head + `,"extFields":{"a":"1"}}`: func(e *remoting.Encoder) {
			e.EmptyFields()
			e.Int("a", 1)
			e.EmptyFields()
		},
		head + `,"remark":"","extFields":{"a":"","b":"\u0001\u001f"}}`: func(e *remoting.Encoder) {
			e.RemarkBytes(nil)
			e.String("a", "")
			e.String("b", "\x01\x1f")
		},
		head + `,"extFields":{"a\"\u0000":"1"}}`: func(e *remoting.Encoder) { e.Int("a\"\x00", 1) },
	} {
		got := build(f)
		if got != want || !json.Valid([]byte(got)) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestEncodeFixed proves that fields encoded before make the frame that writing them makes.
func TestEncodeFixed(t *testing.T) {
	t.Parallel()
	two := func(e *remoting.Encoder) { e.String("a\"", "x\x01"); e.Bool("b", true) }
	none := func(*remoting.Encoder) {}
	last := func(e *remoting.Encoder) { e.Int("c", -1) }
	for _, form := range bothForms {
		for name, writes := range map[string][]func(*remoting.Encoder){
			"first": {two, last}, "last": {last, two}, "twice": {two, two}, "alone": {two},
			"none before": {none, last}, "none after": {last, none},
		} {
			h := remoting.Head{Flag: 1, Opaque: 7, Serialize: form}
			plain, fixed := remoting.Begin(nil, h), remoting.Begin(nil, h)
			for _, write := range writes {
				write(&plain)
				fixed.Fixed(remoting.NewFixedFields(write))
			}
			if diff := cmp.Diff(plain.End(nil), fixed.End(nil)); diff != "" {
				t.Errorf("%v, %s: -written +fixed:\n%s", form, name, diff)
			}
		}
	}
}

// TestEncodeEscapes has each byte at each place of what is looked at eight bytes at a time.
func TestEncodeEscapes(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 25; size++ {
		for at := range size {
			for b := range 0x80 {
				value := bytes.Repeat([]byte{'z'}, size)
				value[at] = byte(b)
				e := remoting.Begin(nil, remoting.Head{})
				e.Bytes("v", value)
				e.Bytes("w", value)
				frame := e.End(nil)
				if !json.Valid(frame[8:]) {
					t.Fatalf("%q: not JSON: %s", value, frame[8:])
				}
				for _, name := range []string{"v", "w"} {
					if got, _ := decodeWhole(t, frame).Fields.Get(name); string(got) != string(value) {
						t.Fatalf("%q came back as %q", value, got)
					}
				}
			}
		}
	}
}

func TestEncodeLongRemark(t *testing.T) {
	t.Parallel()
	for _, form := range bothForms {
		e := remoting.Begin(nil, remoting.Head{Serialize: form})
		e.Remark(strings.Repeat("é", 20000) + "x")
		e.Int("a", 1)
		c := decodeWhole(t, e.End(nil))
		if n := len(c.Remark); n != 32768 || strings.Contains(string(c.Remark), "\ufffd") {
			t.Errorf("%v: remark of %d bytes", form, n)
		}
	}
}

// TestEncodeHugeHeader proves that a header past 24 bits of length gives a readable frame.
func TestEncodeHugeHeader(t *testing.T) {
	t.Parallel()
	for _, form := range bothForms {
		e := remoting.Begin(nil, remoting.Head{Flag: 1, Opaque: 9, Serialize: form})
		e.Bytes("a", make([]byte, 1<<24))
		c := decodeWhole(t, e.End([]byte("b")))
		if c.Code != int32(remoting.SystemError) || c.Opaque != 9 || c.HasFields || len(c.Remark) == 0 {
			t.Errorf("%v: got %+v", form, viewOf(c))
		}
	}
}

// TestEncodeWideCode proves that codes past 16 bits leave the binary form.
func TestEncodeWideCode(t *testing.T) {
	t.Parallel()
	h := remoting.NewRequest(remoting.PopMessage, 1)
	h.Serialize = remoting.Binary
	e := remoting.Begin(nil, h)
	c := decodeWhole(t, e.End(nil))
	if c.Serialize != remoting.JSON || c.Request() != remoting.PopMessage {
		t.Errorf("got form %v, code %v", c.Serialize, c.Request())
	}
}

func TestEndRegions(t *testing.T) {
	t.Parallel()
	for _, form := range bothForms {
		e := remoting.Begin(nil, remoting.Head{Serialize: form})
		e.Int("a", 1)
		out := e.EndRegions(1000)
		if got := binary.BigEndian.Uint32(out); int(got) != len(out)-4+1000 {
			t.Errorf("%v: length %d, head %d", form, got, len(out))
		}
	}
}

// sendHeader is a send request as a Java producer writes it; the value of i has escapes in JSON.
func sendHeader(form remoting.SerializeType) []byte {
	h := remoting.NewRequest(remoting.SendMessageV2, 1000)
	h.Serialize = form
	e := remoting.Begin(nil, h)
	for _, f := range [][2]string{
		{"a", "producer-group"},
		{"b", "TopicTest"},
		{"c", "TBW102"},
		{"d", "4"},
		{"e", "3"},
		{"f", "0"},
		{"g", "1700000000000"},
		{"h", "0"},
		{"j", "0"},
		{"k", "false"},
		{"m", "false"},
		{"i", "UNIQ_KEY\x010A00000127118B4AAC2000000A0001\x02WAIT\x01true\x02TAGS\x01TagA\x02"},
		{"n", "broker-a"},
	} {
		e.String(f[0], f[1])
	}
	return e.End([]byte("hello"))
}

func TestAllocsDecode(t *testing.T) {
	for _, form := range bothForms {
		frame := sendHeader(form)[4:]
		var c remoting.Command
		got := testing.AllocsPerRun(100, func() {
			if err := c.Decode(frame); err != nil {
				t.Fatal(err)
			}
			if v, ok := c.Fields.Get("n"); !ok || len(v) == 0 {
				t.Fatal("no n")
			}
		})
		if got != 0 {
			t.Errorf("%v: %v allocations, want 0", form, got)
		}
	}
}

func TestAllocsEncode(t *testing.T) {
	buf := make([]byte, 0, 4096)
	id := []byte("0A00000100002A9F000000000012D687")
	for _, form := range bothForms {
		got := testing.AllocsPerRun(100, func() {
			c := remoting.Command{Opaque: 5, Serialize: form}
			e := remoting.Begin(buf, c.Reply(remoting.Success))
			e.Remark("FOUND")
			e.Bytes("msgId", id)
			e.Int("queueOffset", 12345678)
			e.Bool("TRACE_ON", true)
			e.String("MSG_REGION", "DefaultRegion")
			if len(e.EndRegions(100)) < 100 {
				t.Fatal("short frame")
			}
		})
		if got != 0 {
			t.Errorf("%v: %v allocations, want 0", form, got)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, form := range bothForms {
		b.Run("form="+form.String(), func(b *testing.B) {
			frame := sendHeader(form)[4:]
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			var c remoting.Command
			for b.Loop() {
				if err := c.Decode(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncode writes the answer to a send.
func BenchmarkEncode(b *testing.B) {
	id := []byte("0A00000100002A9F000000000012D687")
	for _, form := range bothForms {
		b.Run("form="+form.String(), func(b *testing.B) {
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				c := remoting.Command{Opaque: 5, Serialize: form}
				e := remoting.Begin(buf, c.Reply(remoting.Success))
				e.Bytes("msgId", id)
				e.Int("queueId", 3)
				e.Int("queueOffset", 12345678)
				e.String("MSG_REGION", "DefaultRegion")
				if len(e.End(nil)) < 100 {
					b.Fatal("short frame")
				}
			}
		})
	}
}
