// SPDX-License-Identifier: Apache-2.0

package remoting_test

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/remoting"
)

// recorded is one line of testdata/wire.
type recorded struct {
	Source        string         `json:"source"`
	Type          string         `json:"type"`
	Request       int32          `json:"request"`
	Code          int32          `json:"code"`
	Flag          int32          `json:"flag"`
	Opaque        int32          `json:"opaque"`
	Language      string         `json:"language"`
	Version       int32          `json:"version"`
	SerializeType string         `json:"serializeType"`
	Remark        *string        `json:"remark"`
	ExtFields     map[string]any `json:"extFields"`
	Header        string         `json:"header"`
	HeaderHex     string         `json:"headerHex"`
	Body          []byte         `json:"body"`

	Accepted bool `json:"accepted"`
	Mark     byte `json:"mark"`
}

// header returns the header bytes and the mark before them.
func (r *recorded) header(t *testing.T) (mark byte, header string) {
	t.Helper()
	mark = r.Mark
	if r.HeaderHex == "" {
		return mark, r.Header
	}
	raw, err := hex.DecodeString(r.HeaderHex)
	if err != nil {
		t.Fatal(err)
	}
	if r.SerializeType == "ROCKETMQ" {
		mark = 1
	}
	return mark, string(raw)
}

func readRecorded(t *testing.T, name string) []recorded {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "wire", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if lines.Err() != nil || len(all) == 0 {
		t.Fatalf("%s: %d lines, %v", name, len(all), lines.Err())
	}
	return all
}

// wantOf returns what decoding a recorded frame must give, fields as a map.
func wantOf(r *recorded) (v view, fields map[string]string) {
	v = view{
		Code: r.Code, Flag: r.Flag, Version: r.Version, Opaque: remoting.Opaque(r.Opaque),
		Language: remoting.LanguageUnknown, Body: string(r.Body),
		// The recorder left out an empty object.
		HasFields: r.ExtFields != nil || strings.Contains(r.Header, `"extFields":{}`),
	}
	for l := range remoting.Language(14) {
		if l.String() == r.Language {
			v.Language = l
		}
	}
	if r.Remark != nil {
		v.Remark = *r.Remark
	}
	fields = map[string]string{}
	for name, value := range r.ExtFields {
		fields[name] = fmt.Sprint(value)
	}
	return v, fields
}

func fieldMap(c *remoting.Command) map[string]string {
	fields := map[string]string{}
	for _, f := range c.Fields {
		fields[string(f.Name)] = string(f.Value)
	}
	return fields
}

// TestGoldenFrames decodes recorded frames, compares every member, and writes them again.
func TestGoldenFrames(t *testing.T) {
	t.Parallel()
	var c remoting.Command
	for _, r := range readRecorded(t, "frames.jsonl") {
		mark, header := r.header(t)
		if err := c.Decode(frameOf(mark, header, string(r.Body))); err != nil {
			t.Errorf("%s: %v", r.Source, err)
			continue
		}
		want, fields := wantOf(&r)
		if r.Language == "" { // absent
			want.Language = remoting.LanguageJava
		}
		if r.Language == "9" { // an ordinal
			want.Language = remoting.LanguageGo
		}
		got := viewOf(&c)
		got.Fields = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", r.Source, diff)
		}
		if diff := cmp.Diff(fields, fieldMap(&c)); diff != "" {
			t.Errorf("%s: fields -want +got:\n%s", r.Source, diff)
		}
		for _, form := range bothForms {
			checkRewrite(t, r.Source, &c, form)
		}
	}
}

// checkRewrite encodes a command in the given form and decodes it again.
func checkRewrite(t *testing.T, source string, c *remoting.Command, form remoting.SerializeType) {
	t.Helper()
	language := c.Language
	if language == remoting.LanguageUnknown {
		language = remoting.LanguageOther
	}
	e := remoting.Begin(nil, remoting.Head{
		Code: c.Code, Flag: c.Flag, Language: language, Version: c.Version, Opaque: c.Opaque,
		Serialize: form,
	})
	if c.Remark != nil {
		e.RemarkBytes(c.Remark)
	}
	if c.HasFields {
		e.EmptyFields()
	}
	for _, f := range c.Fields {
		e.Bytes(string(f.Name), f.Value)
	}
	again := decodeWhole(t, e.End(c.Body))
	want, got := viewOf(c), viewOf(again)
	want.Language = language
	if again.Serialize == remoting.Binary { // cannot say empty
		want.HasFields, want.Fields, got.Fields = got.HasFields, nil, nil
		fields := fieldMap(c)
		for name, value := range fields {
			if value == "" {
				delete(fields, name)
			}
		}
		if diff := cmp.Diff(fields, fieldMap(again)); diff != "" {
			t.Errorf("%s as %v: fields -want +got:\n%s", source, form, diff)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s as %v: -want +got:\n%s", source, form, diff)
	}
}

// TestGoldenOdd decodes headers of which RocketMQ 5.5.0 accepted some and closed on others.
func TestGoldenOdd(t *testing.T) {
	t.Parallel()
	for _, r := range readRecorded(t, "odd.jsonl") {
		mark, header := r.header(t)
		var c remoting.Command
		if err := c.Decode(frameOf(mark, header, "")); (err == nil) != r.Accepted {
			t.Errorf("%.100q: got error %v, accepted by RocketMQ: %v", header, err, r.Accepted)
		}
	}
}

// TestGoldenDocument decodes the dumps of net/docs/remoting.md, so that the page cannot drift.
func TestGoldenDocument(t *testing.T) {
	t.Parallel()
	frames := documentDumps(t, filepath.Join("..", "docs", "remoting.md"))
	want := []view{
		{Code: 105, Version: 513, HasFields: true, Fields: [][2]string{{"topic", "TopicSend"}}},
		{Code: 105, Version: 513, HasFields: true, Fields: [][2]string{{"topic", "TopicBinary"}}},
		{Code: 17, Flag: 1, Opaque: 7, Version: 513, Remark: "no route"},
	}
	if len(frames) != len(want) {
		t.Fatalf("%d dumps, want %d", len(frames), len(want))
	}
	for i, frame := range frames {
		if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
			t.Errorf("dump %d: length field %d of %d bytes", i, binary.BigEndian.Uint32(frame), len(frame))
		}
		if diff := cmp.Diff(want[i], viewOf(decodeWhole(t, frame))); diff != "" {
			t.Errorf("dump %d: -want +got:\n%s", i, diff)
		}
	}
}

// documentDumps returns the bytes of the hex dumps in a page: lines of a four-digit offset and up
// to sixteen bytes. A dump begins at offset 0000.
func documentDumps(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var dumps [][]byte
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var at int
		if len(line) < 54 || line[4:6] != "  " {
			continue
		}
		if _, err := fmt.Sscanf(line[:4], "%04x", &at); err != nil {
			continue
		}
		var row []byte
		for i := 6; i+2 <= 54 && line[i] != ' '; i += 3 {
			b, err := hex.DecodeString(line[i : i+2])
			if err != nil {
				t.Fatalf("%s: line %q: %v", path, line, err)
			}
			row = append(row, b...)
		}
		if at == 0 {
			dumps = append(dumps, nil)
		}
		last := len(dumps) - 1
		if last < 0 || len(dumps[last]) != at {
			t.Fatalf("%s: line %q does not follow", path, line)
		}
		dumps[last] = append(dumps[last], row...)
	}
	return dumps
}
