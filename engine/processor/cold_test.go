// SPDX-License-Identifier: Apache-2.0

package processor_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/engine/stats"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// bench is a set of leaves on a real store, with the cold processors over it.
type bench struct {
	*processor.Leaves
	t     *testing.T
	cold  processor.Cold
	light processor.Light
	store *storage.Store
	dir   string

	mu      sync.Mutex
	nowMS   int64
	told    []string // "connection code group" of requests to clients
	answer  func(code remoting.RequestCode, h remoting.Header, body []byte) (*remoting.Command, error)
	notices []string
}

// client is a connection that goes nowhere.
type client struct{ addr string }

func (c *client) RemoteAddr() string { return c.addr }
func (c *client) Send([]byte)        {}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, nowMS: 1795977938329, dir: t.TempDir()}
	now := func() time.Time {
		b.mu.Lock()
		defer b.mu.Unlock()
		return time.UnixMilli(b.nowMS)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := storage.DefaultConfig(filepath.Join(b.dir, "store"))
	cfg.SegmentSize, cfg.QueueFileSize, cfg.IndexEnable = 1<<20, 20000, false
	cfg.MaxMessageSize = 1 << 16
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 100, 99
	cfg.Now = now
	var err error
	b.store, err = storage.Open(cfg)
	must(err)
	t.Cleanup(func() { _ = b.store.Close() })

	notice := func(msg string, kv ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notices = append(b.notices, fmt.Sprint(append([]any{msg}, kv...)...))
	}
	config := filepath.Join(b.dir, "config")
	l := &processor.Leaves{
		BrokerName: "broker-a", ClusterName: "DefaultCluster", BrokerAddr: "127.0.0.1:10911",
		BootTime: now(), Store: b.store, Clients: b, Settings: b, Now: now, Locks: group.NewLocks(now),
		Stats: stats.New(stats.Config{Cluster: "DefaultCluster", Now: now}),
		PropertyFilter: func(expression string) error {
			if strings.HasSuffix(expression, ">") {
				return fmt.Errorf("nothing follows >")
			}
			return nil
		},
	}
	l.Topics, err = topic.Open(config, topic.Config{
		BrokerName: l.BrokerName, ClusterName: l.ClusterName, AutoCreate: true, Now: now,
	})
	must(err)
	l.Groups, err = group.OpenConfigs(config, group.ConfigsConfig{AutoCreate: true, Now: now})
	must(err)
	l.Modes, err = group.OpenModes(config, false, notice)
	must(err)
	l.Offsets, err = offset.Open(config, offset.Config{Now: now})
	must(err)
	l.Members = group.NewMembers(group.MembersConfig{
		Admit: processor.Admission(l.Topics, l.Groups, notice), NotifyChange: processor.NotifyChange(b),
		Now: now, Notice: notice,
	})
	t.Cleanup(l.Members.Close)
	l.Transactions = transaction.New(transaction.Config{
		Store: b.store, Offsets: l.Offsets, Now: now,
		Producer: processor.AskProducer(b, l.Members, l.BrokerName),
	})
	t.Cleanup(l.Transactions.Close)
	t.Cleanup(func() { _ = l.Offsets.Close() })
	b.Leaves, b.cold, b.light = l, processor.Cold{}, processor.Light{}
	processor.RegisterCold(b.cold, l)
	processor.RegisterLight(b.light, l, &processor.SendBacks{Groups: l.Groups, SyncFlush: true})
	return b
}

// Call implements processor.ClientCaller.
func (b *bench) Call(
	ch group.Channel, code remoting.RequestCode, h remoting.Header, body []byte, _ time.Duration,
) (*remoting.Command, error) {
	return b.answer(code, h, body)
}

// Oneways implements processor.ClientCaller.
func (b *bench) Oneways(
	ch group.Channel, code remoting.RequestCode, n int, each func(i int) (remoting.Header, []byte),
) {
	for i := range n {
		h, body := each(i)
		b.Oneway(ch, code, h, body)
	}
}

// Oneway implements processor.ClientCaller.
func (b *bench) Oneway(ch group.Channel, code remoting.RequestCode, h remoting.Header, _ []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fields := fieldsOf(b.t, processor.Reply{Header: h})
	b.told = append(b.told,
		fmt.Sprintf("%s %d %s", ch.RemoteAddr(), code, fields["consumerGroup"]))
}

func (b *bench) takeTold() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told
	b.told = nil
	sort.Strings(told)
	return told
}

// Text implements processor.Settings.
func (b *bench) Text() (string, protocol.DataVersion) {
	return "a=1\nb=2\n", protocol.DataVersion{Counter: 4}
}

// Update implements processor.Settings.
func (b *bench) Update(text string) error {
	if strings.HasPrefix(text, "brokerConfigPath=") {
		return remoting.Errorf(remoting.NoPermission, "Can not update config in black list.")
	}
	return nil
}

// put stores n messages in a queue.
func (b *bench) put(name string, queue int32, n int) {
	b.t.Helper()
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	for range n {
		es := []storage.Entry{{Draft: record.Draft{
			Topic: []byte(name), QueueID: queue, BornHost: host, StoreHost: host, Body: []byte("x"),
			Properties: []byte("TAGS\x01TagA\x02"), TagsCode: record.TagsCode([]byte("TagA")),
		}}}
		if b.store.Append(es); es[0].Err != nil {
			b.t.Fatal(es[0].Err)
		}
	}
}

// createTopic makes a topic with 4 queues.
func (b *bench) createTopic(name string) {
	b.t.Helper()
	_, err := b.Topics.CreateOnSend(
		topic.CreateOnSend{Topic: name, DefaultTopic: "TBW102", DefaultQueues: 4})
	if err != nil {
		b.t.Fatal(err)
	}
}

// frame is a request as it would arrive.
func command(
	t *testing.T, code remoting.RequestCode, fields map[string]string, body string,
) *remoting.Command {
	t.Helper()
	e := remoting.Begin(nil, remoting.NewRequest(code, 1))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		e.String(name, fields[name])
	}
	if fields != nil && len(fields) == 0 {
		e.EmptyFields()
	}
	var payload []byte
	if body != "" {
		payload = []byte(body)
	}
	var cmd remoting.Command
	if err := cmd.Decode(e.End(payload)[4:]); err != nil {
		t.Fatal(err)
	}
	return cmd.Clone()
}

// fieldsOf encodes the header of a reply and reads it back; nil when there is none.
func fieldsOf(t *testing.T, r processor.Reply) map[string]string {
	t.Helper()
	if r.Header == nil {
		return nil
	}
	e := remoting.Begin(nil, remoting.Head{Flag: remoting.FlagResponse})
	r.Header.AppendFields(&e)
	var cmd remoting.Command
	if err := cmd.Decode(e.End(nil)[4:]); err != nil {
		t.Fatal(err)
	}
	if !cmd.HasFields {
		return nil
	}
	fields := map[string]string{}
	for _, f := range cmd.Fields {
		fields[string(f.Name)] = string(f.Value)
	}
	return fields
}

var here = &processor.Caller{
	Channel: &client{"127.0.0.1:1"}, Version: 513, Language: remoting.LanguageJava,
}

// call runs a cold request.
func (b *bench) call(
	code remoting.RequestCode, fields map[string]string, body string,
) processor.Reply {
	b.t.Helper()
	return b.callFrom(here, code, fields, body)
}

func (b *bench) callFrom(
	c *processor.Caller, code remoting.RequestCode, fields map[string]string, body string,
) processor.Reply {
	b.t.Helper()
	f := b.cold[code]
	if f == nil {
		b.t.Fatalf("code %d has no processor", code)
	}
	if light := b.light[code]; light != nil {
		// What an event loop answers is what a worker would.
		if r, ok := light(command(b.t, code, fields, body)); ok {
			b.same(code, r, f(c, command(b.t, code, fields, body)))
			return r
		}
	}
	return f(c, command(b.t, code, fields, body))
}

// same compares two answers to one request.
func (b *bench) same(code remoting.RequestCode, light, cold processor.Reply) {
	b.t.Helper()
	if light.Code != cold.Code || light.Remark != cold.Remark || light.Silent != cold.Silent ||
		string(light.Body) != string(cold.Body) ||
		!cmp.Equal(fieldsOf(b.t, light), fieldsOf(b.t, cold)) {
		b.t.Errorf("code %d: an event loop answers %+v, a worker %+v", code, light, cold)
	}
}

// ok runs a request that must succeed.
func (b *bench) ok(
	code remoting.RequestCode, fields map[string]string, body string,
) processor.Reply {
	b.t.Helper()
	r := b.call(code, fields, body)
	if r.Code != remoting.Success {
		b.t.Fatalf("code %d %v: answer %d %q", code, fields, r.Code, r.Remark)
	}
	return r
}

// fails runs a request that must be refused with a remark that contains text.
func (b *bench) fails(
	code remoting.RequestCode, fields map[string]string, body string, want remoting.ResponseCode,
	text string,
) {
	b.t.Helper()
	r := b.call(code, fields, body)
	if r.Code != want || !strings.Contains(r.Remark, text) {
		b.t.Fatalf("code %d %v: answer %d %q, want %d %q", code, fields, r.Code, r.Remark, want, text)
	}
}

// line is one line of a capture of RocketMQ 5.5.0, see testdata.
type line struct {
	Conn   int
	Event  string // "": a request; answer; told: a request to the client; close
	Code   int32
	Opaque int
	Fields map[string]string
	Body   string
	Remark string
}

func readLines(t *testing.T, name string) []line {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	for text := range strings.Lines(string(data)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// replay sends the requests of a capture and compares answers and what clients were told.
func (b *bench) replay(name string) {
	conns := map[int]*client{}
	var got processor.Reply
	var want []string
	for i, l := range readLines(b.t, name) {
		ch := conns[l.Conn]
		if ch == nil {
			ch = &client{fmt.Sprintf("127.0.0.1:%d", l.Conn)}
			conns[l.Conn] = ch
		}
		where := fmt.Sprintf("%s:%d", name, i+1)
		switch l.Event {
		case "":
			c := &processor.Caller{Channel: ch, Version: 513, Language: remoting.LanguageOther}
			got = b.callFrom(c, remoting.RequestCode(l.Code), l.Fields, l.Body)
		case "told":
			want = append(want, fmt.Sprintf("%s %d %s", ch.addr, l.Code, l.Fields["consumerGroup"]))
		case "close":
			b.Members.ChannelClosed(ch)
		case "answer":
			b.compare(where, l, got)
			sort.Strings(want)
			if told := b.takeTold(); !slices.Equal(told, want) {
				b.t.Errorf("%s: told %q, want %q", where, told, want)
			}
			want = nil
		}
	}
}

func (b *bench) compare(where string, want line, got processor.Reply) {
	if strings.Contains(want.Remark, "illegal fieldName input 99") {
		return // a bare identifier as name, which the parser here accepts
	}
	if int32(got.Code) != want.Code {
		b.t.Errorf("%s: answer %d %q, want %d %q", where, got.Code, got.Remark, want.Code, want.Remark)
	}
	// The text of a Java exception cannot be the same.
	if !strings.Contains(want.Remark, "Exception") && got.Remark != want.Remark {
		b.t.Errorf("%s: remark %q, want %q", where, got.Remark, want.Remark)
	}
	if d := cmp.Diff(want.Fields, fieldsOf(b.t, got)); d != "" {
		b.t.Errorf("%s: fields %s", where, d)
	}
	if d := cmp.Diff(sortedJSON(b.t, want.Body), sortedJSON(b.t, string(got.Body))); d != "" {
		b.t.Errorf("%s: body %s", where, d)
	}
}

// sortedJSON parses a body and sorts its arrays: they are sets in RocketMQ.
func sortedJSON(t *testing.T, text string) any {
	t.Helper()
	if text == "" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
			sort.Slice(v, func(i, j int) bool { return fmt.Sprint(v[i]) < fmt.Sprint(v[j]) })
		}
	}
	walk(v)
	return v
}

// TestGoldenClient replays heartbeats, locks, member lists and leaving as RocketMQ answered them.
func TestGoldenClient(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("TopicProbeClient")
	b.replay("probe-client.jsonl")
	for _, name := range b.Topics.Names() {
		if name == protocol.RetryPrefix {
			t.Fatal("a retry topic without a group")
		}
	}
	if _, ok := b.Topics.Find("%RETRY%PROBE_CG_CLIENT"); !ok {
		t.Fatal("no retry topic after a heartbeat")
	}
}

// TestGoldenOffset replays offset calls on known and unknown groups, topics and queues.
func TestGoldenOffset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("TopicProbeOffset")
	b.put("TopicProbeOffset", 0, 1)
	b.replay("probe-offset.jsonl")
}

// TestGoldenMembers replays clients that join, change, leave and send short heartbeats.
func TestGoldenMembers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"java-push-rebalance.jsonl", "java-push-heartbeat-v2.jsonl"} {
		newBench(t).replay(name)
	}
}

// TestManySubscriptions: a heartbeat of ten thousand subscriptions is answered like any other.
func TestManySubscriptions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	subs := make([]protocol.SubscriptionData, 10_000)
	for i := range subs {
		subs[i] = protocol.SubscriptionData{
			Topic: fmt.Sprintf("T%d", i), SubString: "*", SubVersion: 1,
		}
	}
	body := string(protocol.Marshal(protocol.HeartbeatData{
		ClientID: "c", ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: "g", MessageModel: protocol.Clustering, SubscriptionDataSet: subs,
		}},
	}))
	for range 2 {
		b.ok(remoting.HeartBeat, nil, body)
	}
	if told := b.takeTold(); len(told) != 1 {
		t.Fatalf("told %q", told)
	}
	if s, _ := b.Members.Subscription([]byte("g"), []byte("T9999")); s == nil {
		t.Fatal("the last subscription is missing")
	}
}
