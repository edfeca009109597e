// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// event is a line of testdata/wire, whose README tells the members.
type event struct {
	Conn      int               `json:"conn"`
	Dir       string            `json:"dir"`
	By        string            `json:"by"`
	What      string            `json:"what"`
	Header    string            `json:"header"`
	HeaderHex string            `json:"headerHex"`
	Body      string            `json:"body"`
	Build     string            `json:"build"`
	Size      int               `json:"size"`
	Type      string            `json:"type"`
	Code      int               `json:"code"`
	Remark    string            `json:"remark"`
	Opaque    int32             `json:"opaque"`
	AnyOpaque bool              `json:"anyOpaque"`
	Ext       map[string]string `json:"ext"`
	Binary    bool              `json:"binary"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Text      string            `json:"text"`
	Records   []recordSummary   `json:"records"`
}

// The wire tests replay recorded requests against a fresh server and compare each answer: code,
// remark, names and values of the fields, shape of the body, records one by one.
func TestWireHeader(t *testing.T) { t.Parallel(); replay(t, "probe-header", false, nil) }

func TestWireSend(t *testing.T) {
	t.Parallel()
	replay(t, "probe-send", false, map[string]string{"recallMessageEnable": "true"})
}

func TestWirePull(t *testing.T)       { t.Parallel(); replay(t, "probe-pull", false, nil) }
func TestWireOffset(t *testing.T)     { t.Parallel(); replay(t, "probe-offset", false, nil) }
func TestWireClient(t *testing.T)     { t.Parallel(); replay(t, "probe-client", false, nil) }
func TestWireNameServer(t *testing.T) { t.Parallel(); replay(t, "probe-namesrv", true, nil) }

func TestWireNothingIsCreated(t *testing.T) {
	t.Parallel()
	replay(t, "probe-noauto", false, map[string]string{
		"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false",
	})
}

// fresh starts servers of the kind under test that nobody else uses.
func fresh(t *testing.T, conf map[string]string) target {
	t.Helper()
	all := map[string]string{"enablePropertyFilter": "true"}
	maps.Copy(all, conf)
	if *against == "skylark" {
		made, _ := startServer(t, scratch(t), all)
		return made
	}
	return startApache(t, scratch(t), all)
}

// startApache runs the real servers in the Java process until the end of the test.
func startApache(t *testing.T, dir string, conf map[string]string) target {
	t.Helper()
	jvm := java(t)
	made := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-a", Dir: filepath.Join(dir, "store"),
	}
	open(t, jvm, "namesrv", args{"port": port(made.NameServer), "dir": filepath.Join(dir, "namesrv")})
	open(t, jvm, "broker", args{
		"port": port(made.Broker), "dir": made.Dir, "namesrv": made.NameServer, "conf": conf,
	})
	waitForRoute(t, made.NameServer, "SELF_TEST_TOPIC")
	return made
}

// replayed is one replay.
type replayed struct {
	t       *testing.T
	address string
	events  []event
	conns   map[int]*replayConn
	places  map[int]string // message ids of answers, by line
}

// replayConn collects what the server sends on one connection.
type replayConn struct {
	raw *raw

	mu     sync.Mutex
	frames []*header
	closed bool
}

func replay(t *testing.T, file string, nameServer bool, conf map[string]string) {
	t.Helper()
	at := fresh(t, conf)
	if file == "probe-send" {
		makeReadOnlyTopic(t, at)
	}
	r := &replayed{t: t, address: at.Broker, conns: map[int]*replayConn{}, places: map[int]string{}}
	if nameServer {
		r.address = at.NameServer
	}
	r.load(filepath.Join("testdata", "wire", file+".jsonl"))
	for i, e := range r.events {
		switch {
		case e.Dir == "c2s":
			r.send(e)
		case e.Dir == "s2c":
			r.expect(file, i, e)
		case e.By == "server":
			r.expectClose(e)
		default:
			r.conn(e.Conn).raw.close()
		}
	}
	for n, c := range r.conns {
		c.raw.close()
		for _, left := range c.take(func(h *header) bool { return h.Flag&1 == 1 }) {
			t.Errorf("connection %d got an answer that was not recorded: %+v", n, left)
		}
	}
}

func makeReadOnlyTopic(t *testing.T, at target) {
	t.Helper()
	c, err := dialRaw(at.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const updateAndCreateTopic = 17
	a, err := c.call(updateAndCreateTopic, map[string]string{
		"topic": "TopicReadOnly", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
		"perm": "4", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, nil, 10*time.Second)
	if err != nil || a.Code != 0 {
		t.Fatalf("make TopicReadOnly: %+v, %v", a, err)
	}
}

func (r *replayed) load(file string) {
	r.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			r.t.Fatalf("%s: %v", file, err)
		}
		r.events = append(r.events, e)
	}
	if err := scanner.Err(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replayed) conn(n int) *replayConn {
	r.t.Helper()
	if c := r.conns[n]; c != nil {
		return c
	}
	c, err := dialRaw(r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	made := &replayConn{raw: c}
	r.conns[n] = made
	go made.read()
	return made
}

func (c *replayConn) read() {
	for {
		h, err := c.raw.next(time.Now().Add(2 * time.Minute))
		c.mu.Lock()
		if err != nil {
			c.closed = true
			c.mu.Unlock()
			return
		}
		c.frames = append(c.frames, h)
		c.mu.Unlock()
	}
}

// take removes and returns the frames that fit.
func (c *replayConn) take(fits func(*header) bool) []*header {
	c.mu.Lock()
	defer c.mu.Unlock()
	var taken []*header
	c.frames = slices.DeleteFunc(c.frames, func(h *header) bool {
		if fits(h) {
			taken = append(taken, h)
			return true
		}
		return false
	})
	return taken
}

func (r *replayed) send(e event) {
	r.t.Helper()
	body, err := base64.StdEncoding.DecodeString(e.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	switch e.Build {
	case "zeros":
		body = make([]byte, e.Size)
	case "batch":
		body = largeBatch(e.Size)
	}
	head := []byte(r.fill(e.Header))
	if e.HeaderHex != "" {
		if head, err = hex.DecodeString(e.HeaderHex); err != nil {
			r.t.Fatal(err)
		}
	}
	out := frame(head, body)
	if e.HeaderHex != "" {
		out[4] = 1 // the ROCKETMQ serialization
	}
	if _, err := r.conn(e.Conn).raw.conn.Write(out); err != nil {
		r.t.Errorf("%s: %v", e.What, err)
	}
}

// largeBatch makes a batch body of two elements that has the given size.
func largeBatch(size int) []byte {
	const properties = "UNIQ_KEY\x01B-xxx\x02"
	var out []byte
	half := size/2 - 4 - 4 - 4 - 4 - 4 - 2 - len(properties)
	for _, letter := range "xy" {
		element := len(properties) + half + 22
		out = append(out, byte(element>>24), byte(element>>16), byte(element>>8), byte(element))
		out = append(out, make([]byte, 12)...)
		out = append(out, byte(half>>24), byte(half>>16), byte(half>>8), byte(half))
		out = append(out, bytes.Repeat([]byte(string(letter)), half)...)
		out = append(out, 0, byte(len(properties)))
		out = append(out, properties...)
	}
	return out
}

var placeholder = regexp.MustCompile(`\$\{(now|offset:(\d+))\}`)

func (r *replayed) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		if parts[1] == "now" {
			return strconv.FormatInt(time.Now().UnixMilli(), 10)
		}
		line, _ := strconv.Atoi(parts[2])
		id := r.places[line]
		if len(id) < 32 {
			r.t.Errorf("line %d of the recording has no message id in this replay", line)
			return "0"
		}
		at, _ := strconv.ParseInt(id[len(id)-16:], 16, 64)
		return strconv.FormatInt(at, 10)
	})
}

// expect waits for the frame that the recording has here and compares it.
func (r *replayed) expect(file string, line int, e event) {
	r.t.Helper()
	var got *header
	err := repeat(20*time.Second, func() error {
		c := r.conn(e.Conn)
		found := c.take(func(h *header) bool {
			if e.Type == "request" {
				return h.Flag&1 == 0 && h.Code == e.Code
			}
			return h.Flag&1 == 1 && (e.AnyOpaque || h.Opaque == e.Opaque)
		})
		if len(found) == 0 {
			return errors.New("no answer")
		}
		got = found[0]
		c.mu.Lock()
		c.frames = append(c.frames, found[1:]...)
		c.mu.Unlock()
		return nil
	})
	if err != nil {
		r.t.Errorf("%s: %v", e.What, err)
		return
	}
	r.places[line] = got.ExtFields["msgId"]
	if e.Type == "request" {
		if diff := diffFields(e.Ext, got.ExtFields); diff != "" {
			r.t.Errorf("request %d of the server: %s", e.Code, diff)
		}
		return
	}
	if *against == "skylark" {
		if accepted, ok := acceptedDifferences[file+"/"+e.What]; ok {
			if accepted.same(got) {
				return
			}
			r.t.Errorf("%s: %+v, accepted is %+v", e.What, got, accepted)
			return
		}
	}
	if faults := compare(e, got); len(faults) > 0 {
		r.t.Errorf("%s: %s\n  recorded code %d remark %q ext %v %s\n  here     code %d remark %q ext %v %.300s",
			e.What, strings.Join(faults, "; "), e.Code, e.Remark, e.Ext, e.Text,
			got.Code, got.Remark, got.ExtFields, got.Body)
	}
}

func (r *replayed) expectClose(e event) {
	r.t.Helper()
	c := r.conn(e.Conn)
	err := repeat(10*time.Second, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			return errors.New("still open")
		}
		return nil
	})
	if err != nil {
		r.t.Errorf("connection %d was closed by the recorded server, here: %v", e.Conn, err)
	}
}

// compare says in which ways an answer differs from the recorded one.
func compare(e event, got *header) []string {
	var faults []string
	add := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	if got.Code != e.Code {
		add("code %d, want %d", got.Code, e.Code)
	}
	if got.Binary != e.Binary {
		add("binary header %v, want %v", got.Binary, e.Binary)
	}
	if !e.Binary && (got.Language != e.Language || got.Version != e.Version) {
		add("language %s version %d, want %s %d", got.Language, got.Version, e.Language, e.Version)
	}
	if diff := diffRemark(e.Remark, got.Remark); diff != "" {
		add("%s", diff)
	}
	if diff := diffFields(e.Ext, got.ExtFields); diff != "" {
		add("%s", diff)
	}
	switch {
	case e.Records != nil:
		faults = append(faults, diffRecords(e.Records, got.Body)...)
	case e.Text != "":
		faults = append(faults, diffJSON(e.Text, string(got.Body))...)
	case len(got.Body) > 0:
		add("a body of %d bytes, want none", len(got.Body))
	}
	return faults
}

var javaException = regexp.MustCompile(`(java\.|com\.alibaba|org\.apache)[\w.]*(Exception|Error)`)

// diffRemark compares texts that people or programs read. What Java says of its exceptions only has
// to be there in other words; addresses and the link to a page of Apache's are left out.
func diffRemark(want, got string) string {
	if javaException.MatchString(want) {
		if got == "" || *against == "skylark" && javaException.MatchString(got) {
			return fmt.Sprintf("remark %q where Java has an exception's", got)
		}
		return ""
	}
	if normal(want) != normal(got) {
		return fmt.Sprintf("remark %q, want %q", got, want)
	}
	return ""
}

var (
	addressText = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	pageText    = regexp.MustCompile(`\s*See https?://\S+ for further details\.`)
)

func normal(text string) string {
	return strings.TrimSpace(pageText.ReplaceAllString(addressText.ReplaceAllString(text, "ADDRESS"), ""))
}

// volatileFields differ from run to run; present, and of the recorded kind, is enough.
var volatileFields = map[string]*regexp.Regexp{
	"msgId":                    regexp.MustCompile(`^[0-9A-F]{32}(,[0-9A-F]{32})*$`),
	"transactionId":            regexp.MustCompile(`^[0-9A-F]{32,64}$`),
	"timestamp":                regexp.MustCompile(`^1[78]\d{11}$`),
	"indexLastUpdatePhyoffset": regexp.MustCompile(`^\d+$`),
	"indexLastUpdateTimestamp": regexp.MustCompile(`^1[78]\d{11}$`),
}

func diffFields(want, got map[string]string) string {
	if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(w, g) {
		return fmt.Sprintf("fields %v, want %v", g, w)
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		kind := volatileFields[key]
		if kind != nil && kind.MatchString(want[key]) {
			if !kind.MatchString(got[key]) || strings.Count(got[key], ",") != strings.Count(want[key], ",") {
				return fmt.Sprintf("%s=%q, want the like of %q", key, got[key], want[key])
			}
			continue
		}
		if got[key] != want[key] {
			return fmt.Sprintf("%s=%q, want %q", key, got[key], want[key])
		}
	}
	return ""
}

var bareKey = regexp.MustCompile(`([{,])(\d+):`)

// diffJSON compares bodies member by member. Lists of names may hold other names, since other tests ran
// before the recording; keys that fastjson writes as bare numbers must be bare here too.
func diffJSON(want, got string) []string {
	if bareKey.MatchString(want) != bareKey.MatchString(got) {
		return []string{fmt.Sprintf("bare number keys in %.200q, want them as in %.200q", got, want)}
	}
	var w, g any
	if err := json.Unmarshal([]byte(bareKey.ReplaceAllString(want, `$1"$2":`)), &w); err != nil {
		return []string{"recording: " + err.Error()}
	}
	if err := json.Unmarshal([]byte(bareKey.ReplaceAllString(got, `$1"$2":`)), &g); err != nil {
		return []string{fmt.Sprintf("body %.200q: %v", got, err)}
	}
	return diffValue("", w, g)
}

func diffValue(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %T", path, got)}
		}
		if a, b := slices.Sorted(maps.Keys(w)), slices.Sorted(maps.Keys(g)); !slices.Equal(a, b) {
			return []string{fmt.Sprintf("%s has members %v, want %v", path, b, a)}
		}
		var faults []string
		for key := range w {
			faults = append(faults, diffValue(path+"."+key, w[key], g[key])...)
		}
		return faults
	case []any:
		g, ok := got.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %T", path, got)}
		}
		if strings.HasSuffix(path, ".topicList") {
			return nil
		}
		if a, b := sortedTexts(w), sortedTexts(g); !slices.Equal(a, b) {
			return []string{fmt.Sprintf("%s is %v, want %v", path, b, a)}
		}
		return nil
	case string:
		if g, ok := got.(string); !ok || normal(g) != normal(w) {
			return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
		}
		return nil
	}
	if got != want {
		return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
	}
	return nil
}

func sortedTexts(list []any) []string {
	var out []string
	for _, v := range list {
		text, _ := json.Marshal(v)
		out = append(out, normal(string(text)))
	}
	slices.Sort(out)
	return out
}
