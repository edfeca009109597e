// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	lengthSize = 4        // bytes of the length field before a frame
	frameMax   = 65 << 20 // bytes behind it: of the largest message that a broker can be set to take
)

// readFrame returns the next frame with its length field, in memory of its own.
func readFrame(r io.Reader) ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < lengthSize || n > frameMax {
		return nil, fmt.Errorf("faultproxy: frame of %d bytes, want %d to %d", n, lengthSize, frameMax)
	}
	frame := make([]byte, lengthSize+n)
	copy(frame, length[:])
	_, err := io.ReadFull(r, frame[lengthSize:])
	return frame, err
}

// replaceInBody returns the frame with one text replaced by another in its body.
func replaceInBody(frame []byte, from, to string) []byte {
	header := int(binary.BigEndian.Uint32(frame[lengthSize:]) & 0xffffff)
	at := 2*lengthSize + header
	if at > len(frame) || !bytes.Contains(frame[at:], []byte(from)) {
		return frame
	}
	body := bytes.ReplaceAll(frame[at:], []byte(from), []byte(to))
	out := append(bytes.Clone(frame[:at]), body...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-lengthSize))
	return out
}

// withOpaque returns the frame of c under another opaque.
func withOpaque(c *remoting.Command, opaque remoting.Opaque) []byte {
	e := remoting.Begin(nil, remoting.Head{
		Code: c.Code, Flag: c.Flag, Language: c.Language, Version: c.Version, Opaque: opaque,
		Serialize: c.Serialize,
	})
	if c.Remark != nil {
		e.RemarkBytes(c.Remark)
	}
	for _, f := range c.Fields {
		e.Bytes(string(f.Name), f.Value)
	}
	return e.End(c.Body)
}

// queueOf names topic and queue of a send, in either form of its header.
func queueOf(c *remoting.Command) string {
	topic, ok := c.Fields.Get("b")
	queue, _ := c.Fields.Get("e")
	if !ok {
		topic, _ = c.Fields.Get("topic")
		queue, _ = c.Fields.Get("queueId")
	}
	return string(topic) + "/" + string(queue)
}

// forgedSuccess is the answer of a broker that has stored c.
func forgedSuccess(c *remoting.Command) []byte {
	e := remoting.Begin(nil, c.Reply(remoting.Success))
	h := protocol.SendResponse{MsgID: bytes.Repeat([]byte{'0'}, 32)}
	h.AppendFields(&e)
	return e.End(nil)
}

// isSend reports whether c is a send that expects an answer.
func isSend(c *remoting.Command) bool {
	if c.IsResponse() || c.IsOneway() {
		return false
	}
	switch c.Request() {
	case remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage:
		return true
	default:
		return false
	}
}
