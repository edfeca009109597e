// SPDX-License-Identifier: Apache-2.0

package nameserver_test

import (
	"context"
	"encoding/binary"
	"flag"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

var backend = flag.String("backend", "", "backend of package eventloop")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, // the pool that gnet's package starts on import never ends
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// fields is a request header of plain texts.
type fields map[string]string

func (f fields) AppendFields(e *remoting.Encoder) {
	for name, value := range f {
		e.String(name, value)
	}
}

func config(dir string) nameserver.Config {
	cfg := nameserver.DefaultConfig()
	cfg.Listen, cfg.Dir, cfg.Backend = "127.0.0.1:0", dir, *backend
	return cfg
}

// start runs a name server with its files in dir, "" for a fresh one.
func start(t testing.TB, dir string, change func(*nameserver.Config)) *nameserver.Server {
	t.Helper()
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "namesrv")
	}
	cfg := config(dir)
	if change != nil {
		change(&cfg)
	}
	s, err := nameserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// caller is one connection to a name server. It speaks as a 5.5.0 client unless told otherwise.
type caller struct {
	t    testing.TB
	pool *invoke.Pool
	conn *invoke.Conn
}

func dial(t testing.TB, s *nameserver.Server) *caller {
	t.Helper()
	pool := invoke.NewPool(invoke.Config{})
	t.Cleanup(func() { _ = pool.Close() })
	conn, err := pool.Dial(within(t), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return &caller{t, pool, conn}
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (c *caller) call(code remoting.RequestCode, f fields, body []byte) *invoke.Response {
	c.t.Helper()
	r, err := c.conn.Call(within(c.t), &invoke.Request{Code: code, Header: f, Body: body})
	if err != nil {
		c.t.Fatalf("%v: %v", code, err)
	}
	return r
}

// want makes a call that must be answered with code and remark.
func (c *caller) want(
	code remoting.ResponseCode, remark string, request remoting.RequestCode, f fields, body string,
) *invoke.Response {
	c.t.Helper()
	r := c.call(request, f, []byte(body))
	if r.Code != code || r.Remark != remark {
		c.t.Errorf("%v %v: got %d %q, want %d %q", request, f, r.Code, r.Remark, code, remark)
	}
	return r
}

func field(r *invoke.Response, name string) string {
	v, _ := r.Command.Fields.Get(name)
	return string(v)
}

func brokerFields(name, id, addr string) fields {
	return fields{
		"brokerName": name, "brokerAddr": addr, "clusterName": "C", "brokerId": id,
		"haServerAddr": "ha" + addr, "enableActingMaster": "false",
	}
}

func registerBody(counter int64, topics ...string) []byte {
	table := map[string]*protocol.TopicConfig{}
	for _, name := range topics {
		table[name] = &protocol.TopicConfig{
			TopicName: name, Perm: 6, ReadQueueNums: 8,
			WriteQueueNums: 8,
		}
	}
	return protocol.Marshal(&protocol.RegisterBrokerBody{TopicConfigs: protocol.TopicConfigWrapper{
		DataVersion: protocol.DataVersion{Counter: counter, Timestamp: 1}, TopicConfigTable: table,
	}})
}

// register registers a broker with topics A and B.
func (c *caller) register(name, id, addr string) {
	c.t.Helper()
	c.want(0, "", remoting.RegisterBroker, brokerFields(name, id, addr),
		string(registerBody(1, "A", "B")))
}

// hasRoute reports whether topic A has a route.
func (c *caller) hasRoute() bool {
	c.t.Helper()
	return c.call(remoting.GetRouteInfoByTopic, fields{"topic": "A"}, nil).Code == remoting.Success
}

// eventually waits for what happens on another connection, which no answer tells of.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// raw writes a frame with a given JSON header to nc and reads the answer.
func raw(t testing.TB, nc net.Conn, header, body string) *remoting.Command {
	t.Helper()
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(append(frame, header...), body...)
	if _, err := nc.Write(frame); err != nil {
		t.Fatal(err)
	}
	return readFrame(t, nc)
}

func readFrame(t testing.TB, nc net.Conn) *remoting.Command {
	t.Helper()
	if err := nc.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(nc, head); err != nil {
		t.Fatalf("no answer: %v", err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(nc, frame); err != nil {
		t.Fatal(err)
	}
	cmd := &remoting.Command{}
	if err := cmd.Decode(frame); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func dialRaw(t testing.TB, s *nameserver.Server) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}
