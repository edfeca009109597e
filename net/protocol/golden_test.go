// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// recorded is one line of the recorded frames.
type recorded struct {
	Source        string         `json:"source"`
	Type          string         `json:"type"`
	Request       int32          `json:"request"`
	Code          int32          `json:"code"`
	Language      string         `json:"language"`
	Version       int32          `json:"version"`
	SerializeType string         `json:"serializeType"`
	ExtFields     map[string]any `json:"extFields"`
	Header        string         `json:"header"`
	HeaderHex     string         `json:"headerHex"`
	Body          []byte         `json:"body"`
}

func readRecorded(t *testing.T) []recorded {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "remoting", "testdata", "wire", "frames.jsonl"))
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
		t.Fatalf("%d lines, %v", len(all), lines.Err())
	}
	return all
}

func (r *recorded) command(t *testing.T) *remoting.Command {
	t.Helper()
	mark, head := byte(0), []byte(r.Header)
	if r.HeaderHex != "" {
		var err error
		if head, err = hex.DecodeString(r.HeaderHex); err != nil {
			t.Fatal(err)
		}
		mark = 1
	}
	frame := []byte{mark, byte(len(head) >> 16), byte(len(head) >> 8), byte(len(head))}
	return decode(t, append(append(frame, head...), r.Body...))
}

// byTheWay are fields that any request may carry, and what the broker adds to many answers.
var byTheWay = []string{
	"AccessKey", "Signature", "SecurityToken", "ReqT", "ns", "nsd", "MSG_REGION", "TRACE_ON",
}

// fieldsWritten returns what a header writes, as a map.
func fieldsWritten(t *testing.T, code remoting.RequestCode, hd header) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for _, f := range decode(t, frame(remoting.JSON, code, hd.AppendFields)).Fields {
		fields[string(f.Name)] = string(f.Value)
	}
	return fields
}

// TestGoldenHeaders decodes the fields of recorded frames and writes them again: the same fields
// with the same values must come out.
func TestGoldenHeaders(t *testing.T) {
	t.Parallel()
	all, known := 0, shapes()
	for _, r := range readRecorded(t) {
		code := remoting.RequestCode(r.Request)
		kind := known[code].request
		if r.Type == "response" {
			kind = known[code].response
		}
		if kind == nil || r.Type == "response" && len(r.ExtFields) == 0 {
			if r.Type == "request" && len(r.ExtFields) > 0 && code.Known() &&
				!slices.Contains([]remoting.RequestCode{0, 1007, remoting.HeartBeat}, code) &&
				!onlyByTheWay(r.ExtFields) {
				t.Errorf("%s: no type for the fields of %v", r.Source, code)
			}
			continue
		}
		hd := kind()
		if err := hd.Decode(r.command(t)); err != nil {
			if !isProbe(r.Source) {
				t.Errorf("%s: %v %v: %v", r.Source, code, r.Type, err)
			}
			continue
		}
		if code == remoting.HeartBeat && r.ExtFields["IS_SUB_CHANGE"] == nil {
			continue // a proxy says nothing of the second version
		}
		all++
		want, got := map[string]string{}, fieldsWritten(t, code, hd)
		for name, value := range r.ExtFields {
			want[name] = fmt.Sprint(value)
		}
		for _, name := range byTheWay {
			if _, own := got[name]; !own {
				delete(want, name)
			}
		}
		forgive(&r, want, got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %v %v: -want +got:\n%s", r.Source, code, r.Type, diff)
		}
	}
	if all < 150 {
		t.Errorf("only %d headers compared", all)
	}
}

func isProbe(source string) bool { return len(source) > 5 && source[:6] == "probe-" }

func onlyByTheWay(fields map[string]any) bool {
	for name := range fields {
		if !slices.Contains(byTheWay, name) {
			return false
		}
	}
	return true
}

// forgive removes the differences that are meant: empty text counts as absence, the Go client and
// hand-made frames leave fields out that we always write, and hand-made ones have too many.
func forgive(r *recorded, want, got map[string]string) {
	for name, value := range want {
		_, written := got[name]
		if !written && (value == "" || isProbe(r.Source)) {
			delete(want, name)
		}
	}
	for name := range got {
		if _, sent := want[name]; !sent && (isProbe(r.Source) || r.Language == "GO") {
			delete(got, name)
		}
	}
}

// TestGoldenBodies decodes recorded bodies and writes them again: the same JSON must come out.
func TestGoldenBodies(t *testing.T) {
	t.Parallel()
	all, known := 0, shapes()
	for _, r := range readRecorded(t) {
		code := remoting.RequestCode(r.Request)
		kind := known[code].requestBody
		if r.Type == "response" {
			kind = known[code].responseBody
		}
		if kind == nil || len(r.Body) == 0 || r.Type == "response" && r.Code != 0 {
			continue
		}
		v := kind()
		if code == remoting.RegisterBroker && r.Type == "request" {
			body, err := protocol.DecodeRegisterBroker(r.Body, r.Version)
			if err != nil {
				t.Errorf("%s: %v", r.Source, err)
				continue
			}
			if r.Body[0] != '{' {
				if len(body.TopicConfigs.TopicConfigTable) == 0 {
					t.Errorf("%s: no topics in a packed registration", r.Source)
				}
				continue
			}
			v = body
		} else if err := protocol.Unmarshal(r.Body, v); err != nil {
			if !isProbe(r.Source) {
				t.Errorf("%s: %v %v: %v", r.Source, code, r.Type, err)
			}
			continue
		}
		if isProbe(r.Source) && r.Type == "request" {
			continue // odd on purpose
		}
		all++
		compareBodies(t, &r, v)
	}
	if all < 60 {
		t.Errorf("only %d bodies compared", all)
	}
}

// compareBodies checks that each of the three forms says what was recorded.
func compareBodies(t *testing.T, r *recorded, v any) {
	t.Helper()
	want := normal(t, r.Body)
	for _, marshal := range []func(any) []byte{
		protocol.Marshal, protocol.MarshalStandard, protocol.MarshalFastJSON,
	} {
		got := normal(t, marshal(v))
		if r.Language == "GO" {
			got = onlyWithin(got, want)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %v %s: -want +got:\n%s",
				r.Source, remoting.RequestCode(r.Request), reflect.TypeOf(v).Elem(), diff)
			return
		}
	}
}

// normal parses JSON of the dialect. Numbers become text in one spelling, keys that are JSON
// objects lose their order, sets their order, and null members disappear.
func normal(t *testing.T, text []byte) any {
	t.Helper()
	strict, err := remoting.StrictJSON(nil, text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	dec := json.NewDecoder(bytes.NewReader(strict))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	return normalTree(t, tree)
}

func normalTree(t *testing.T, tree any) any {
	t.Helper()
	switch n := tree.(type) {
	case json.Number:
		if f, err := n.Float64(); err == nil && f == float64(int64(f)) && len(n) < 16 {
			return fmt.Sprint(int64(f))
		}
		return n.String()
	case []any:
		for i := range n {
			n[i] = normalTree(t, n[i])
		}
		slices.SortFunc(n, func(a, b any) int {
			return bytes.Compare(mustJSON(a), mustJSON(b))
		})
		return n
	case map[string]any:
		out := map[string]any{}
		for name, value := range n {
			if value == nil {
				continue
			}
			if len(name) > 0 && name[0] == '{' {
				name = string(mustJSON(normal(t, []byte(name))))
			}
			out[name] = normalTree(t, value)
		}
		return out
	}
	return tree
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// onlyWithin drops from got the members that want does not have.
func onlyWithin(got, want any) any {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return got
		}
		for name, value := range g {
			if _, sent := w[name]; !sent {
				delete(g, name)
				continue
			}
			g[name] = onlyWithin(value, w[name])
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return got
		}
		for i := range g {
			g[i] = onlyWithin(g[i], w[i])
		}
	}
	return got
}
