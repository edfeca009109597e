// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"fmt"
)

// Field is one extension field. RocketMQ calls these extFields or the custom header; every value is
// text, numbers and booleans included.
type Field struct{ Name, Value []byte }

// Fields are the extension fields in the order of the wire. Of equal names the last one counts.
type Fields []Field

// Get returns the value of a field. ok is false when it is absent, which is not the same as empty.
func (fs Fields) Get(name string) (value []byte, ok bool) {
	for i := len(fs) - 1; i >= 0; i-- {
		if string(fs[i].Name) == name {
			return fs[i].Value, true
		}
	}
	return nil, false
}

// Command is one decoded frame. It is made to be reused: in the steady state Decode allocates
// nothing. Every slice in it is borrowed, from the frame or from the command's own scratch, and is
// valid until the frame's memory is reused or the next Decode, whichever comes first. The zero
// value is ready for Decode. A Command belongs to one goroutine at a time and must not be copied
// by assignment while its slices are in use; see Clone.
type Command struct {
	Code      int32 // a RequestCode or a ResponseCode, by FlagResponse
	Flag      int32
	Language  Language
	Version   int32 // ordinal of the sender's version in RocketMQ's MQVersion
	Opaque    Opaque
	Serialize SerializeType
	Remark    []byte // nil: absent
	HasFields bool   // extension fields are there, maybe none
	Fields    Fields
	Body      []byte // nil: none; an empty body does not exist on the wire

	// Shapes makes the decoding of similar JSON headers cheap; nil: each is read from scratch. Commands
	// that one goroutine decodes may share it.
	Shapes *Shapes

	// scratch holds the values whose text in the frame has escapes. An unescaped value is never
	// longer than its text, so room for the whole header means that scratch cannot move while
	// Fields and Remark point into it.
	scratch []byte
}

// IsResponse reports whether the frame is an answer.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneway reports whether the sender of a request expects no answer.
func (c *Command) IsOneway() bool { return c.Flag&FlagOneway != 0 }

// Request returns the code as that of a request.
func (c *Command) Request() RequestCode { return RequestCode(c.Code) }

// Reply returns the head of an answer to c: same opaque, same header form, language JAVA because
// that is the only word which every client has met from a server.
func (c *Command) Reply(code ResponseCode) Head {
	return Head{
		Code: int32(code), Flag: FlagResponse, Language: LanguageJava, Version: ProtocolVersion,
		Opaque: c.Opaque, Serialize: c.Serialize,
	}
}

// Decode reads a frame, given without its length field, into c.
//
// Cost: no allocation and one pass for what RocketMQ's clients send; escaped values are copied into
// the scratch of c. A JSON header that the fast scanner does not know is read again by a tolerant
// parser, which allocates, takes what RocketMQ's own parser takes, and alone refuses. Every length
// is checked against the bytes that are there. The error wraps ErrMalformed, and c then holds
// nothing of use.
func (c *Command) Decode(frame []byte) error {
	c.reset()
	if len(frame) < markSize {
		return fmt.Errorf("remoting: frame of %d bytes: %w", len(frame), ErrMalformed)
	}
	mark := binary.BigEndian.Uint32(frame)
	size := int(mark & headerLenMax)
	if size > len(frame)-markSize {
		return fmt.Errorf("remoting: header of %d bytes in a frame of %d: %w",
			size, len(frame), ErrMalformed)
	}
	end := markSize + size
	header := frame[markSize:end:end]
	if end < len(frame) {
		c.Body = frame[end:]
	}
	c.Serialize = SerializeType(mark >> 24)
	switch c.Serialize {
	case JSON:
		if c.Shapes.scan(c, header) {
			return nil
		}
		return c.parseJSON(header)
	case Binary:
		return c.readBinary(header)
	}
	return fmt.Errorf("remoting: serialize type %d: %w", c.Serialize, ErrMalformed)
}

// reset forgets the last frame and gives back space that only an unusual frame needed.
func (c *Command) reset() {
	scratch, fields := c.scratch[:0], c.Fields[:0]
	if cap(scratch) > scratchKeep {
		scratch = nil
	}
	if cap(fields) > fieldsKeep {
		fields = nil
	}
	*c = Command{scratch: scratch, Fields: fields, Shapes: c.Shapes}
}

// Memory is about how many bytes a Clone takes.
func (c *Command) Memory() int {
	const field = 6 * 8 // two slices
	return c.size() + len(c.Fields)*field
}

func (c *Command) size() int {
	size := len(c.Remark) + len(c.Body)
	for _, f := range c.Fields {
		size += len(f.Name) + len(f.Value)
	}
	return size
}

// Clone returns a copy that shares no memory with c or its frame, for use by another goroutine or
// after the frame is gone. It allocates three times at most.
func (c *Command) Clone() *Command {
	mem := make([]byte, 0, c.size())
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		at := len(mem)
		mem = append(mem, b...)
		return mem[at:len(mem):len(mem)]
	}
	d := *c
	d.scratch, d.Shapes = nil, nil
	d.Remark, d.Body = keep(c.Remark), keep(c.Body)
	d.Fields = make(Fields, len(c.Fields))
	for i, f := range c.Fields {
		d.Fields[i] = Field{Name: keep(f.Name), Value: keep(f.Value)}
	}
	return &d
}

// readBinary reads a header of the ROCKETMQ form. An empty value counts as absent, as it does for
// RocketMQSerializable.mapDeserialize, which cannot tell it from null.
func (c *Command) readBinary(h []byte) error {
	if len(h) < binaryHeaderMin {
		return fmt.Errorf("remoting: binary header of %d bytes: %w", len(h), ErrMalformed)
	}
	c.Code = int32(int16(binary.BigEndian.Uint16(h[offBinCode:])))
	c.Language = languageAt(int32(h[offBinLanguage]))
	c.Version = int32(int16(binary.BigEndian.Uint16(h[offBinVersion:])))
	c.Opaque = Opaque(binary.BigEndian.Uint32(h[offBinOpaque:]))
	c.Flag = int32(binary.BigEndian.Uint32(h[offBinFlag:]))
	remark, rest, ok := cutBytes(h[offBinRemarkLen:])
	if !ok {
		return fmt.Errorf("remoting: remark longer than its header of %d bytes: %w",
			len(h), ErrMalformed)
	}
	if len(remark) > 0 {
		c.Remark = remark
	}
	entries, _, ok := cutBytes(rest)
	if !ok {
		return fmt.Errorf("remoting: fields longer than their header of %d bytes: %w",
			len(h), ErrMalformed)
	}
	c.HasFields = len(entries) > 0
	for len(entries) > 0 {
		if len(entries) < 2 {
			return fmt.Errorf("remoting: field name length cut off: %w", ErrMalformed)
		}
		n := int(int16(binary.BigEndian.Uint16(entries)))
		if n < 0 || n > len(entries)-2 {
			return fmt.Errorf("remoting: field name of %d bytes, %d left: %w",
				n, len(entries)-2, ErrMalformed)
		}
		name := entries[2 : 2+n : 2+n]
		var value []byte
		if value, entries, ok = cutBytes(entries[2+n:]); !ok {
			return fmt.Errorf("remoting: value of field %.32q longer than the header: %w",
				name, ErrMalformed)
		}
		if len(name) == 0 || len(value) == 0 {
			continue
		}
		if !c.addField(name, value) {
			return fmt.Errorf("remoting: more than %d fields: %w", fieldsMax, ErrMalformed)
		}
	}
	return nil
}

// cutBytes splits b after an int32 length and as many bytes; ok is false when they are not there.
func cutBytes(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	b = b[4:]
	if uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// addField appends a field unless there are too many. The bound keeps the memory for a header near
// its size: a field needs five bytes of text and 48 bytes here.
func (c *Command) addField(name, value []byte) bool {
	if len(c.Fields) >= fieldsMax {
		return false
	}
	c.Fields = append(c.Fields, Field{Name: name, Value: value})
	return true
}
