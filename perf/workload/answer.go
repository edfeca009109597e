// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/binary"

	"github.com/skylarkmq/skylark/net/remoting"
)

// answer is what a producer needs of a response.
type answer struct {
	code   int32
	opaque int32
}

var (
	markOpaque = []byte(`"opaque":`) // read only
	markCode   = []byte(`"code":`)   // read only
)

// scanAnswer reads code and opaque of a response frame, given without its length field. It
// looks for two words instead of parsing: inside a JSON string their quotes would be
// escaped, and no answer to a send has a field of that name. ok is false when the frame is not of
// the expected form; the caller then decodes it in full, which is also the oracle of its test.
func scanAnswer(frame []byte) (a answer, ok bool) {
	a, flags, ok := scanHead(frame)
	return a, ok && (flags < 0 || flags&remoting.FlagResponse != 0)
}

// scanHead reads code and opaque of any frame. flags is -1 in the JSON form, where it is not read.
func scanHead(frame []byte) (a answer, flags int, ok bool) {
	const binaryHeadMin = 17
	if len(frame) < 4 {
		return a, 0, false
	}
	mark := binary.BigEndian.Uint32(frame)
	size := int(mark & 0xFFFFFF)
	if size > len(frame)-4 {
		return a, 0, false
	}
	head := frame[4 : 4+size]
	if remoting.SerializeType(mark>>24) == remoting.Binary {
		if len(head) < binaryHeadMin {
			return a, 0, false
		}
		a.code = int32(int16(binary.BigEndian.Uint16(head)))
		a.opaque = int32(binary.BigEndian.Uint32(head[5:]))
		return a, int(head[12]), true
	}
	if a.code, ok = numberAfter(head, markCode); !ok {
		return a, 0, false
	}
	a.opaque, ok = numberAfter(head, markOpaque)
	return a, -1, ok
}

// numberAfter reads the non-negative number behind the only mark in b.
func numberAfter(b, mark []byte) (n int32, ok bool) {
	i := bytes.Index(b, mark)
	if i < 0 {
		return 0, false
	}
	b = b[i+len(mark):]
	i = 0
	for ; i < len(b) && i < 10 && b[i] >= '0' && b[i] <= '9'; i++ {
		n = n*10 + int32(b[i]-'0')
	}
	return n, i > 0 && n >= 0 && i < len(b) && (b[i] == ',' || b[i] == '}')
}

// answerOf reads a response frame by whichever way understands it. cmd is scratch.
func answerOf(frame []byte, cmd *remoting.Command) (answer, error) {
	if a, ok := scanAnswer(frame); ok {
		return a, nil
	}
	if err := cmd.Decode(frame); err != nil {
		return answer{}, err
	}
	if !cmd.IsResponse() {
		return answer{code: -1, opaque: -1}, nil // a request of the broker: nobody's answer
	}
	return answer{code: cmd.Code, opaque: int32(cmd.Opaque)}, nil
}
