// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// raw is a connection for frames made by hand. It shares no code with what it tests.
type raw struct {
	conn   net.Conn
	in     *bufio.Reader
	opaque int32
}

// header is a frame's JSON header, or the parts of it that a test looks at.
type header struct {
	Code      int               `json:"code"`
	Flag      int               `json:"flag"`
	Opaque    int32             `json:"opaque"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Remark    string            `json:"remark,omitempty"`
	ExtFields map[string]string `json:"extFields,omitempty"`
	Body      []byte            `json:"-"`
	Binary    bool              `json:"-"`
}

func dialRaw(address string) (*raw, error) {
	conn, err := net.DialTimeout("tcp", address, 3*time.Second)
	if err != nil {
		return nil, err
	}
	return &raw{conn: conn, in: bufio.NewReader(conn)}, nil
}

func (r *raw) close() { _ = r.conn.Close() }

// frame puts lengths around a header and a body.
func frame(head, body []byte) []byte {
	out := make([]byte, 8, 8+len(head)+len(body))
	binary.BigEndian.PutUint32(out, uint32(4+len(head)+len(body)))
	binary.BigEndian.PutUint32(out[4:], uint32(len(head)))
	return append(append(out, head...), body...)
}

// call sends one request and waits for its answer, passing over requests of the server.
func (r *raw) call(code int, fields map[string]string, body []byte, limit time.Duration) (*header, error) {
	r.opaque++
	head, err := json.Marshal(map[string]any{
		"code": code, "flag": 0, "language": "OTHER", "opaque": r.opaque, "version": 513,
		"serializeTypeCurrentRPC": "JSON", "extFields": fields,
	})
	if err != nil {
		return nil, err
	}
	if _, err := r.conn.Write(frame(head, body)); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(limit)
	for {
		a, err := r.next(deadline)
		if err != nil {
			return nil, err
		}
		if a.Flag&1 == 1 && a.Opaque == r.opaque {
			return a, nil
		}
	}
}

// next reads one frame.
func (r *raw) next(deadline time.Time) (*header, error) {
	_ = r.conn.SetReadDeadline(deadline)
	word := make([]byte, 8)
	if _, err := io.ReadFull(r.in, word); err != nil {
		return nil, err
	}
	total := binary.BigEndian.Uint32(word)
	size := binary.BigEndian.Uint32(word[4:]) & 0xffffff
	if total < 4 || total > 64<<20 || size > total-4 {
		return nil, fmt.Errorf("frame of %d bytes with a header of %d", total, size)
	}
	rest := make([]byte, total-4)
	if _, err := io.ReadFull(r.in, rest); err != nil {
		return nil, err
	}
	a := &header{Body: rest[size:]}
	if word[4] != 0 {
		return decodeBinary(a, rest[:size])
	}
	if err := json.Unmarshal(rest[:size], a); err != nil {
		return nil, fmt.Errorf("header %q: %w", rest[:size], err)
	}
	return a, nil
}

// decodeBinary reads a ROCKETMQ header: code, language, version, opaque, flag, remark, fields.
func decodeBinary(a *header, b []byte) (*header, error) {
	a.Binary = true
	take := func(n int) []byte {
		if len(b) < n {
			n = len(b)
		}
		part := b[:n]
		b = b[n:]
		return part
	}
	if len(b) < 21 {
		return nil, fmt.Errorf("binary header of %d bytes", len(b))
	}
	a.Code = int(int16(binary.BigEndian.Uint16(take(2))))
	take(1)
	a.Version = int(int16(binary.BigEndian.Uint16(take(2))))
	a.Opaque = int32(binary.BigEndian.Uint32(take(4)))
	a.Flag = int(int32(binary.BigEndian.Uint32(take(4))))
	a.Remark = string(take(int(binary.BigEndian.Uint32(take(4)))))
	take(4)
	a.ExtFields = map[string]string{}
	for len(b) >= 6 {
		name := string(take(int(binary.BigEndian.Uint16(take(2)))))
		if len(b) < 4 {
			return nil, fmt.Errorf("binary field %s has no value", name)
		}
		a.ExtFields[name] = string(take(int(binary.BigEndian.Uint32(take(4)))))
	}
	return a, nil
}
