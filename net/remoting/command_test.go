// SPDX-License-Identifier: Apache-2.0

package remoting_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/remoting"
)

// frameOf returns a frame without its length field.
func frameOf(mark byte, header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(mark)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

// view is the content of a command in a form that compares.
type view struct {
	Code, Flag, Version int32
	Language            remoting.Language
	Opaque              remoting.Opaque
	Remark              string
	HasFields           bool
	Fields              [][2]string
	Body                string
}

func viewOf(c *remoting.Command) view {
	v := view{
		Code: c.Code, Flag: c.Flag, Version: c.Version, Language: c.Language, Opaque: c.Opaque,
		Remark: string(c.Remark), HasFields: c.HasFields, Body: string(c.Body),
	}
	for _, f := range c.Fields {
		v.Fields = append(v.Fields, [2]string{string(f.Name), string(f.Value)})
	}
	return v
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, header string
		want         view
	}{
		{"empty object", ` { } `, view{}},
		{
			"java", `{"code":105,"extFields":{"topic":"Hello"},"flag":0,"language":"JAVA","opaque":7,` +
				`"serializeTypeCurrentRPC":"JSON","version":479}`,
			view{
				Code: 105, Opaque: 7, Version: 479, HasFields: true,
				Fields: [][2]string{{"topic", "Hello"}},
			},
		},
		{
			"go", `{"code":34,"language":"GO","version":317,"opaque":-2,"flag":2,"remark":"",` +
				`"extFields":{}}`,
			view{
				Code: 34, Language: remoting.LanguageGo, Version: 317, Opaque: -2, Flag: 2,
				HasFields: true,
			},
		},
		{
			"scalars as values",
			`{"extFields":{"a":1,"b":-9223372036854775808,"c":true,"d":false}}`,
			view{HasFields: true, Fields: [][2]string{
				{"a", "1"}, {"b", "-9223372036854775808"}, {"c", "true"}, {"d", "false"},
			}},
		},
		{
			"escapes", `{"remark":"a\"\\\/\b\f\n\r\t\u0001\u00e9\u8ba2\ud83d\ude00","extFields":` +
				`{"i":"KEYS\u0001k\u0002","j":"x\u0001"}}`,
			view{
				Remark: "a\"\\/\b\f\n\r\t\x01é订😀", HasFields: true,
				Fields: [][2]string{{"i", "KEYS\x01k\x02"}, {"j", "x\x01"}},
			},
		},
		{"half a surrogate pair", `{"remark":"\ud83dx\ud83d\u0041"}`, view{Remark: "\ufffdx\ufffdA"}},
		{"later member wins", `{"code":1,"code":2}`, view{Code: 2}},
		{
			"later fields win", `{"extFields":{"a":"1"},"extFields":{"b":"2"}}`,
			view{HasFields: true, Fields: [][2]string{{"b", "2"}}},
		},
		{
			"unknown members", `{"x":[{"y":{}}],"z":{"q":null},"w":1.5e3,"v":null,"code":3}`,
			view{Code: 3},
		},
		{
			"null everywhere", `{"code":null,"remark":null,"extFields":null,"language":null}`,
			view{Language: remoting.LanguageUnknown},
		},
		{
			"null value is absent", `{"extFields":{"a":null,"b":"x"}}`,
			view{HasFields: true, Fields: [][2]string{{"b", "x"}}},
		},
		{
			"numeric text", `{"code":"30","opaque":"-5","version":"","flag":"1"}`,
			view{Code: 30, Opaque: -5, Flag: 1},
		},
		{"fraction", `{"code":30.0,"opaque":1e3}`, view{Code: 30, Opaque: 1000}},
		{
			"single quotes", `{'code':30,'extFields':{'a':'it"s'}}`,
			view{Code: 30, HasFields: true, Fields: [][2]string{{"a", `it"s`}}},
		},
		{"comments and commas", "/*a*/{,\"code\":1,,//x\n\"opaque\":2,}", view{Code: 1, Opaque: 2}},
		{"leading zeros", `{"code":0030,"opaque":-007}`, view{Code: 30, Opaque: -7}},
		{"language ordinal", `{"language":9}`, view{Language: remoting.LanguageGo}},
		{"language ordinal out of range", `{"language":99}`, view{Language: remoting.LanguageUnknown}},
		{"language unknown", `{"language":"COBOL"}`, view{Language: remoting.LanguageUnknown}},
		{"names keep their case", `{"CODE":30}`, view{}},
		{
			"object as value", `{"extFields":{"a":{'b':[1]}}}`,
			view{HasFields: true, Fields: [][2]string{{"a", `{"b":[1]}`}}},
		},
		{"raw control characters", "{\"remark\":\"a\x01\x02b\"}", view{Remark: "a\x01\x02b"}},
		{"escaped name", `{"co\u0064e":5}`, view{Code: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var c remoting.Command
			if err := c.Decode(frameOf(0, tc.header, "")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, viewOf(&c)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"%d":"",`, i)
	}
	frames := map[string][]byte{
		"nothing":               {},
		"half a mark":           {0, 0, 0},
		"header only announced": {0, 0, 0, 1},
		"header past the end":   {0, 0xff, 0xff, 0xff, '{', '}'},
		"empty header":          frameOf(0, "", "body"),
		"serialize type 2":      frameOf(2, "{}", ""),
		"serialize type 255":    frameOf(255, "{}", ""),
		"deep member":           frameOf(0, `{"x":`+deep+`}`, ""),
		"keys in keys":          frameOf(0, `{"x":{{{"a":1}:2}:3}}`, ""),
		"too many fields":       frameOf(0, `{"extFields":{`+many.String()+`}}`, ""),
	}
	for i, header := range []string{
		`null`, `[]`, `"x"`, `1`, ` `, `{`, `{"code":1`, `{"code"}`, `{"code":}`, `{"code":1}x`,
		`{"code":1}{}`, `{"code":"x"}`, `{"code":" 30"}`, `{"code":2147483648}`,
		`{"code":-2147483649}`,
		`{"code":99999999999999999999}`, `{"code":true}`, `{"code":{}}`, `{code:30}`,
		`{"code":1 "flag":2}`,
		`{"extFields":[]}`, `{"extFields":"x"}`, `{"extFields":{"a":"b}`, `{"extFields":{"a":tru}}`,
		`{"remark":"\q"}`, `{"remark":"\u12"}`,
		`{"remark":"`, `{"x":/*`, `{"x":-}`, `{"x":1.}`, `{"x":1e}`,
		`{"x":nulls}`, "\x00", `{"a":'b"}`,
	} {
		frames[header+string(rune('0'+i))] = frameOf(0, header, "")
	}
	for name, frame := range frames {
		var c remoting.Command
		if err := c.Decode(frame); !errors.Is(err, remoting.ErrMalformed) {
			t.Errorf("%s: got error %v, want ErrMalformed", name, err)
		}
	}
}

func TestDecodeBinary(t *testing.T) {
	t.Parallel()
	good := "\x00\x69\x00\x01\xdf\x00\x00\x00\x07\x00\x00\x00\x00" +
		"\x00\x00\x00\x02hi" + "\x00\x00\x00\x17" + "\x00\x05topic\x00\x00\x00\x05Hello" +
		"\x00\x01e\x00\x00\x00\x00"
	var c remoting.Command
	if err := c.Decode(frameOf(1, good, "body")); err != nil {
		t.Fatal(err)
	}
	want := view{
		Code: 105, Version: 479, Opaque: 7, Remark: "hi", HasFields: true,
		Fields: [][2]string{{"topic", "Hello"}}, Body: "body",
	}
	if diff := cmp.Diff(want, viewOf(&c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Cut anywhere, with or without a body behind, it is refused.
	for n := range len(good) {
		for _, body := range []string{"", "and a body that follows"} {
			if err := c.Decode(frameOf(1, good[:n], body)); !errors.Is(err, remoting.ErrMalformed) {
				t.Errorf("cut at %d: got error %v, want ErrMalformed", n, err)
			}
		}
	}
	// Every length field with every top value, W1: nothing is allocated by it.
	for _, at := range []int{13, 19, 23, 30, 39, 42} {
		bad := []byte(good)
		bad[at], bad[at+1] = 0x7f, 0xff
		if err := c.Decode(frameOf(1, string(bad), "")); !errors.Is(err, remoting.ErrMalformed) {
			t.Errorf("length at %d: got error %v, want ErrMalformed", at, err)
		}
	}
}

func TestFrameSize(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		head string
		max  int
		want int
		err  error
	}{
		{"", 0, 0, nil},
		{"\x00\x00\x00", 0, 0, nil},
		{"\x00\x00\x00\x04", 0, 8, nil},
		{"\x00\x00\x00\x04more", 0, 8, nil},
		{"\x00\xff\xff\xfc", 0, remoting.MaxFrame, nil},
		{"\x00\xff\xff\xfd", 0, 0, remoting.ErrFrameTooLarge},
		{"\xe7\xa6\x08\x29", 0, 0, remoting.ErrFrameTooLarge},
		{"\xff\xff\xff\xff", 0, 0, remoting.ErrFrameTooLarge},
		{"\x00\x00\x00\x00", 0, 0, remoting.ErrMalformed},
		{"\x00\x00\x00\x03", 0, 0, remoting.ErrMalformed},
		{"\x00\x00\x00\x10", 20, 20, nil},
		{"\x00\x00\x00\x11", 20, 0, remoting.ErrFrameTooLarge},
		{"GET ", 0, 0, remoting.ErrFrameTooLarge},
	} {
		got, err := remoting.FrameSize([]byte(tc.head), tc.max)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("FrameSize(%x, %d) = %d, %v; want %d, %v",
				tc.head, tc.max, got, err, tc.want, tc.err)
		}
	}
}

// TestScratchStays proves that a value decoded from escapes keeps its bytes while later values of
// the same header are decoded.
func TestScratchStays(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"remark":"\u0041","extFields":{`)
	for i := range 200 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"n` + string(rune('a'+i%26)) + `":"` + strings.Repeat(`\u0042`, i) + `"`)
	}
	b.WriteString(`}}`)
	var c remoting.Command
	for range 2 {
		if err := c.Decode(frameOf(0, b.String(), "")); err != nil {
			t.Fatal(err)
		}
		if string(c.Remark) != "A" {
			t.Errorf("remark %q, want A", c.Remark)
		}
		for i, f := range c.Fields {
			if string(f.Value) != strings.Repeat("B", i) {
				t.Errorf("field %d is %q", i, f.Value)
			}
		}
	}
}

func TestClone(t *testing.T) {
	t.Parallel()
	frame := frameOf(0, `{"code":1,"remark":"r\n","extFields":{"a":"b","c":"\t"}}`, "body")
	var c remoting.Command
	if err := c.Decode(frame); err != nil {
		t.Fatal(err)
	}
	want := viewOf(&c)
	d := c.Clone()
	clear(frame)
	if err := c.Decode(frameOf(0, `{"remark":"\r\r\r\r\r\r"}`, "")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, viewOf(d)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
