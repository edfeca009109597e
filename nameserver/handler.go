// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/nameserver/route"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// leftOver is what the reference leaves in the remark of answers whose handler sets none.
const leftOver = "not set any response code"

// link is what a loop keeps for a connection that has registered a broker.
type link struct {
	session  route.Session
	decoding int // registrations with the bodies worker
}

// handler serves the connections of one loop.
type handler struct{ s *Server }

func (h *handler) Open(*eventloop.Conn) {}

func (h *handler) ReadDone() {}

// Close removes the brokers that were registered over the connection, at once.
func (h *handler) Close(c *eventloop.Conn, cause error) {
	l, ok := c.Value().(*link)
	if !ok {
		return
	}
	h.s.leave(l.session)
	events := h.s.table.CloseSession(l.session)
	if len(events) > 0 {
		h.s.cfg.Log.Warn("connection of a broker closed", "addr", c.RemoteAddr().String(), "err", cause)
	}
	h.s.handle(events)
}

// link returns the connection's entry, making it.
func (h *handler) link(c *eventloop.Conn) *link {
	if l, ok := c.Value().(*link); ok {
		return l
	}
	l := &link{session: route.Session(h.s.sessions.Add(1))}
	c.SetValue(l)
	return l
}

func (h *handler) Command(c *eventloop.Conn, cmd *remoting.Command) {
	if cmd.IsResponse() {
		return
	}
	switch cmd.Request() {
	case remoting.RegisterBroker:
		h.register(c, cmd)
	case remoting.PutKVConfig:
		h.offLoop(c, cmd, h.s.putKV)
	case remoting.DeleteKVConfig:
		h.offLoop(c, cmd, h.s.deleteKV)
	case remoting.UpdateNamesrvConfig:
		h.offLoop(c, cmd, h.s.updateConfig)
	default:
		send(c, cmd, h.s.answer(cmd))
	}
}

// offLoop answers a request from the files worker.
func (h *handler) offLoop(
	c *eventloop.Conn, cmd *remoting.Command, f func(*remoting.Command) answer,
) {
	owned, ref := cmd.Clone(), c.Ref()
	ok := h.s.files.submit(func() { ref.Post(&sendTask{owned, f(owned)}) })
	if !ok {
		send(c, cmd, busy())
	}
}

func busy() answer {
	return answer{
		code:   remoting.SystemBusy,
		remark: "[OVERLOAD]system busy, start flow control for a while",
	}
}

// sendTask brings an answer back to the loop of its connection.
type sendTask struct {
	cmd    *remoting.Command
	answer answer
}

func (t *sendTask) Run(c *eventloop.Conn) {
	if c != nil {
		send(c, t.cmd, t.answer)
	}
}

// field is one header field of an answer.
type field struct{ name, value string }

// answer is what a request gets. The zero value is SUCCESS alone.
type answer struct {
	code   remoting.ResponseCode
	remark string
	fields []field
	empty  bool // writes an empty field map when there are no fields, as headers without values do
	body   []byte
}

func send(c *eventloop.Conn, cmd *remoting.Command, a answer) {
	if cmd.IsOneway() {
		return
	}
	e := remoting.Begin(c.Reserve(), cmd.Reply(a.code))
	if a.remark != "" {
		e.Remark(a.remark)
	}
	for _, f := range a.fields {
		e.String(f.name, f.value)
	}
	if a.empty && len(a.fields) == 0 {
		e.EmptyFields()
	}
	c.Commit(e.End(a.body))
}

func failed(code remoting.ResponseCode, format string, args ...any) answer {
	return answer{code: code, remark: fmt.Sprintf(format, args...)}
}

// refused turns an error of a decoder into an answer.
func refused(err error) answer {
	if e, ok := err.(*remoting.Error); ok { //nolint:errorlint // decoders return it unwrapped
		return answer{code: e.Code, remark: e.Remark}
	}
	return answer{code: remoting.SystemError, remark: err.Error()}
}

// required reads fields that must be there. The reference looks null up in its tables; here the
// answer names the field.
func required(cmd *remoting.Command, names ...string) (values []string, err error) {
	for _, name := range names {
		v, ok := cmd.Fields.Get(name)
		if !ok {
			return nil, remoting.Errorf(remoting.SystemError, "the field %s is missing", name)
		}
		values = append(values, string(v))
	}
	return values, nil
}

func optional(cmd *remoting.Command, name string) string {
	v, _ := cmd.Fields.Get(name)
	return string(v)
}

func fastJSON(v any) answer { return answer{body: protocol.MarshalFastJSON(v)} }

func nowMS() int64 { return time.Now().UnixMilli() }
