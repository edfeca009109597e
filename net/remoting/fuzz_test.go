// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonSeeds are headers of all kinds: usual, odd, refused.
func jsonSeeds() []string {
	return []string{
		`{"code":105,"extFields":{"topic":"Hello"},"flag":0,"language":"JAVA","opaque":7,"version":513}`,
		`{"code":310,"language":"GO","version":317,"opaque":-1,"flag":2,"remark":"",` +
			`"extFields":{"i":"K\u0001v\u0002","e":3,"k":true}}`,
		`{'code':'30',/*x*/"opaque":007,,"language":9}`,
		`{"x":[[{}]],"remark":null,"extFields":null,"code":1e2}`,
		`{"remark":"\ud83d\ude00\ud83d","extFields":{"a":null,"a":"b","a":{"c":1}}}`,
		`{"code":99999999999}`, `{code:1}`, `[1,2]`, `{"code":1`, ``, `{{"a":1}:2}`,
	}
}

func fieldsByName(c *Command) map[string]string {
	m := map[string]string{}
	for _, f := range c.Fields {
		m[string(f.Name)] = string(f.Value)
	}
	return m
}

// FuzzCommand holds the scanner against the tolerant parser and both against encoding/json: what
// two of them accept means the same.
func FuzzCommand(f *testing.F) {
	for _, seed := range jsonSeeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		if len(header) > tolerantMax {
			t.Skip("the parsers differ there")
		}
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
		var c Command
		err := c.Decode(append(frame, header...))
		var fast, slow Command
		scanned := fast.scanJSON(header)
		parseErr := slow.parseJSON(header)
		if err == nil != (parseErr == nil || scanned) {
			t.Fatalf("Decode: %v, scanner: %v, parser: %v", err, scanned, parseErr)
		}
		if !utf8.Valid(header) {
			return // the parser replaces such bytes, the scanner hands them on
		}
		if scanned {
			if parseErr != nil {
				t.Fatalf("scanner accepts, parser: %v", parseErr)
			}
			compare(t, &fast, &slow)
		}
		if err == nil {
			compareJSON(t, &c, header)
		}
	})
}

// FuzzShapes decodes one header after others, once with what is known of those, and wants what the scanner
// makes of it alone.
func FuzzShapes(f *testing.F) {
	seeds := jsonSeeds()
	for i, a := range seeds {
		f.Add([]byte(a), []byte(seeds[(i+1)%len(seeds)]))
	}
	const send = `{"code":310,"extFields":{"a":"g","b":"t","e":"3","g":"1700000000000","k":true,"n":12},` +
		`"flag":0,"language":"JAVA","opaque":7,"version":513}`
	f.Add([]byte(send), []byte(strings.Replace(send, `"opaque":7`, `"opaque":71`, 1)))
	f.Add([]byte(send), []byte(strings.Replace(send, `"t"`, `"t\u0001"`, 1)))
	f.Add([]byte(send), []byte(strings.Replace(send, `"n":12`, `"n":"12"`, 1)))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var shapes Shapes
		for i, header := range [][]byte{first, second, second, first, second, first} {
			if len(header) > headerLenMax {
				t.Skip("no such header")
			}
			frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(header))), header...)
			a, b := Command{Shapes: &shapes}, Command{}
			errA, errB := a.Decode(frame), b.Decode(frame)
			if errA == nil != (errB == nil) {
				t.Fatalf("header %d: %v with what is known, %v without", i, errA, errB)
			}
			if errA != nil {
				continue
			}
			compare(t, &a, &b)
			if len(a.Fields) != len(b.Fields) {
				t.Errorf("header %d: %d fields, want %d", i, len(a.Fields), len(b.Fields))
			}
		}
	})
}

func compare(t *testing.T, a, b *Command) {
	t.Helper()
	if a.Code != b.Code || a.Flag != b.Flag || a.Language != b.Language || a.Version != b.Version ||
		a.Opaque != b.Opaque || string(a.Remark) != string(b.Remark) ||
		a.HasFields != b.HasFields || !maps.Equal(fieldsByName(a), fieldsByName(b)) {
		t.Errorf("scanner: %+v\nparser: %+v", a, b)
	}
}

// compareJSON checks what encoding/json makes of the same header.
func compareJSON(t *testing.T, c *Command, header []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if json.Unmarshal(header, &members) != nil {
		return
	}
	for name, got := range map[string]int32{
		"code": c.Code, "flag": c.Flag, "version": c.Version, "opaque": int32(c.Opaque),
	} {
		var want int32
		if raw, ok := members[name]; ok && json.Unmarshal(raw, &want) != nil {
			continue
		}
		if got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
	var remark string
	if json.Unmarshal(members["remark"], &remark) == nil && remark != string(c.Remark) {
		t.Errorf("remark: got %q, want %q", c.Remark, remark)
	}
	var fields map[string]any
	if json.Unmarshal(members["extFields"], &fields) != nil {
		return
	}
	got := fieldsByName(c)
	for name, value := range fields {
		text, isText := value.(string)
		if have, ok := got[name]; isText && (!ok || have != text) || value == nil && ok {
			t.Errorf("field %q: got %q, %v, want %v", name, have, ok, value)
		}
	}
	for name := range got {
		if _, ok := fields[name]; !ok {
			t.Errorf("field %q is not in the text", name)
		}
	}
}

// FuzzBinaryHeader checks that what is read can be written and read again, and that nothing panics.
func FuzzBinaryHeader(f *testing.F) {
	e := Begin(nil, Head{Code: 310, Opaque: 7, Version: 513, Serialize: Binary})
	e.Remark("hi")
	e.String("a", "group")
	e.String("b", "topic")
	f.Add(e.End(nil)[8:])
	f.Add(make([]byte, binaryHeaderMin))
	f.Add([]byte("\x00\x69\x00\x01\xdf\x00\x00\x00\x07\x00\x00\x00\x00\x7f\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, header []byte) {
		if len(header) > headerLenMax {
			t.Skip("no such header")
		}
		var c Command
		if c.Decode(append(binary.BigEndian.AppendUint32(nil, 1<<24|uint32(len(header))),
			header...)) != nil {
			return
		}
		e := Begin(nil, Head{
			Code: c.Code, Flag: c.Flag, Language: max(c.Language, 0), Version: c.Version,
			Opaque: c.Opaque, Serialize: Binary,
		})
		e.RemarkBytes(c.Remark)
		for _, f := range c.Fields {
			e.Bytes(string(f.Name), f.Value)
		}
		var d Command
		if err := d.Decode(e.End(nil)[4:]); err != nil {
			t.Fatal(err)
		}
		c.Language = max(c.Language, 0)
		c.HasFields = len(c.Fields) > 0
		if len(c.Remark) <= remarkLenMax {
			compare(t, &c, &d)
		}
	})
}

// FuzzStrictJSON checks that what comes out is JSON, and the same JSON when JSON went in.
func FuzzStrictJSON(f *testing.F) {
	for _, seed := range jsonSeeds() {
		f.Add([]byte(seed))
	}
	f.Add([]byte(`{0:"a",{"b":'c'}:[1,2,],}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		strict, err := StrictJSON(nil, text)
		if err != nil {
			return
		}
		if !json.Valid(strict) {
			t.Fatalf("%q came out as %q", text, strict)
		}
		if len(strict) > 24*len(text)+64 {
			t.Errorf("%d bytes grew to %d", len(text), len(strict))
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			return
		}
		var want, got any
		if json.Unmarshal(text, &want) != nil || json.Unmarshal(strict, &got) != nil {
			return // numbers beyond a double
		}
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if string(a) != string(b) {
			t.Errorf("%q came out as %q", text, strict)
		}
	})
}
