// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Head is the fixed part of a header to be written.
type Head struct {
	Code      int32
	Flag      int32
	Language  Language
	Version   int32
	Opaque    Opaque
	Serialize SerializeType
}

// NewRequest returns the head of a JSON request of this implementation's client side.
func NewRequest(code RequestCode, opaque Opaque) Head {
	return Head{
		Code: int32(code), Language: LanguageGo, Version: ProtocolVersion, Opaque: opaque,
	}
}

// Header is a typed header that can write its fields.
type Header interface {
	// AppendFields writes the fields; absent optional ones are left out.
	AppendFields(e *Encoder)
}

// Encoder builds one frame at the end of a buffer. It is a value that lives on the caller's stack,
// and it allocates only when the buffer grows. Calls come in this order: Begin, at most one Remark,
// any number of fields, one End. At most 16 MiB of header fit a frame; see End for what happens
// beyond. The binary form cuts a field's name at 32767 bytes.
type Encoder struct {
	buf    []byte
	head   Head
	start  int // of the frame in buf
	fields int // of the length of the binary field section in buf; 0: no field yet
}

// Begin starts a frame after dst. A head whose code or version does not fit the 16 bits of the
// binary form is written as JSON: RocketMQ truncates such codes (all POP codes), and peers take
// either form at any time.
func Begin(dst []byte, h Head) Encoder {
	if h.Serialize == Binary && (int32(int16(h.Code)) != h.Code ||
		int32(int16(h.Version)) != h.Version) {
		h.Serialize = JSON
	}
	e := Encoder{head: h, start: len(dst)}
	e.buf = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	e.writeHead()
	return e
}

func (e *Encoder) writeHead() {
	h := e.head
	if h.Serialize == Binary {
		language := h.Language
		if language < 0 {
			language = LanguageOther
		}
		b := binary.BigEndian.AppendUint16(e.buf, uint16(h.Code))
		b = append(b, byte(language))
		b = binary.BigEndian.AppendUint16(b, uint16(h.Version))
		b = binary.BigEndian.AppendUint32(b, uint32(h.Opaque))
		b = binary.BigEndian.AppendUint32(b, uint32(h.Flag))
		e.buf = append(b, 0, 0, 0, 0) // remark length
		return
	}
	b := e.buf
	if h.Code == int32(Success) && h.Flag == FlagResponse && h.Language == LanguageJava {
		b = append(b, `{"code":0,"flag":1,"language":"JAVA","opaque":`...) // nearly every answer
	} else {
		b = appendHeadStart(b, &h)
	}
	b = strconv.AppendInt(b, int64(h.Opaque), 10)
	b = append(b, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	e.buf = strconv.AppendInt(b, int64(h.Version), 10)
}

func appendHeadStart(b []byte, h *Head) []byte {
	b = append(b, `{"code":`...)
	b = strconv.AppendInt(b, int64(h.Code), 10)
	b = append(b, `,"flag":`...)
	b = strconv.AppendInt(b, int64(h.Flag), 10)
	if name := h.Language.String(); name != "" {
		b = append(b, `,"language":"`...)
		b = append(b, name...)
		b = append(b, '"')
	}
	return append(b, `,"opaque":`...)
}

// Remark writes the remark; it comes before the first field. A remark over 32 KiB is cut, since its
// text often repeats what a peer sent.
func (e *Encoder) Remark(s string) {
	s = cutText(s)
	e.beginRemark(len(s))
	if e.head.Serialize == Binary {
		e.buf = append(e.buf, s...)
		return
	}
	e.buf = append(appendJSONText(e.buf, s), '"')
}

// RemarkBytes is Remark for bytes, which are copied.
func (e *Encoder) RemarkBytes(b []byte) {
	b = cutText(b)
	e.beginRemark(len(b))
	if e.head.Serialize == Binary {
		e.buf = append(e.buf, b...)
		return
	}
	e.buf = append(appendJSONText(e.buf, b), '"')
}

func (e *Encoder) beginRemark(size int) {
	if e.head.Serialize == Binary {
		at := e.start + offHeader + offBinRemarkLen
		binary.BigEndian.PutUint32(e.buf[at:], uint32(size))
		return
	}
	e.buf = append(e.buf, `,"remark":"`...)
}

// cutText shortens s to remarkLenMax at most, between characters.
func cutText[T string | []byte](s T) T {
	if len(s) <= remarkLenMax {
		return s
	}
	n := remarkLenMax
	for n > remarkLenMax-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// String writes a field.
func (e *Encoder) String(name, value string) {
	at := e.beginField(name)
	if e.head.Serialize == Binary {
		e.buf = append(e.buf, value...)
	} else {
		e.buf = appendJSONText(e.buf, value)
	}
	e.endField(at)
}

// Bytes writes a field from bytes, which are copied.
func (e *Encoder) Bytes(name string, value []byte) {
	at := e.beginField(name)
	if e.head.Serialize == Binary {
		e.buf = append(e.buf, value...)
	} else {
		e.buf = appendJSONText(e.buf, value)
	}
	e.endField(at)
}

// Int writes a field as decimal text.
func (e *Encoder) Int(name string, value int64) {
	at := e.beginField(name)
	e.buf = strconv.AppendInt(e.buf, value, 10)
	e.endField(at)
}

// Bool writes a field as true or false.
func (e *Encoder) Bool(name string, value bool) {
	at := e.beginField(name)
	e.buf = strconv.AppendBool(e.buf, value)
	e.endField(at)
}

// FixedFields are fields that many frames repeat, encoded once in both forms. It is read only.
type FixedFields struct{ json, binary []byte }

// NewFixedFields encodes what write writes with the calls for fields.
func NewFixedFields(write func(e *Encoder)) *FixedFields {
	encode := func(form SerializeType) []byte {
		e := Begin(nil, Head{Serialize: form})
		e.EmptyFields()
		at := e.fields
		if form == Binary {
			at += binaryFieldsLen
		}
		write(&e)
		return e.buf[at:]
	}
	return &FixedFields{json: encode(JSON), binary: encode(Binary)}
}

// Fixed writes the fields of f.
func (e *Encoder) Fixed(f *FixedFields) {
	if e.fields == 0 {
		e.openFields()
	}
	if e.head.Serialize == Binary {
		e.buf = append(e.buf, f.binary...)
		return
	}
	if len(e.buf) > e.fields && len(f.json) > 0 {
		e.buf = append(e.buf, ',')
	}
	e.buf = append(e.buf, f.json...)
}

// EmptyFields makes the frame carry "extFields":{} when no field is written. RocketMQ's servers do
// so in some answers; the binary form cannot express it.
func (e *Encoder) EmptyFields() {
	if e.fields == 0 {
		e.openFields()
	}
}

func (e *Encoder) openFields() {
	if e.head.Serialize == Binary {
		e.fields = len(e.buf)
		e.buf = append(e.buf, 0, 0, 0, 0) // binaryFieldsLen
		return
	}
	e.buf = append(e.buf, `,"extFields":{`...)
	e.fields = len(e.buf)
}

// beginField writes everything before the value and returns where the value starts.
func (e *Encoder) beginField(name string) int {
	if e.fields == 0 {
		e.openFields()
	}
	if e.head.Serialize == Binary {
		name = name[:min(len(name), binaryNameMax)]
		e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(len(name)))
		e.buf = append(e.buf, name...)
		e.buf = append(e.buf, 0, 0, 0, 0)
		return len(e.buf)
	}
	if len(e.buf) > e.fields {
		e.buf = append(e.buf, ',')
	}
	b := append(e.buf, '"')
	b = appendJSONText(b, name) // a relayed request has its sender's names
	b = append(b, '"', ':', '"')
	e.buf = b
	return len(b)
}

func (e *Encoder) endField(at int) {
	if e.head.Serialize == Binary {
		binary.BigEndian.PutUint32(e.buf[at-4:], uint32(len(e.buf)-at))
		return
	}
	e.buf = append(e.buf, '"')
}

// End completes the frame with a copy of body, which may be nil, and returns the buffer. The
// Encoder must not be used afterwards.
//
// A header too large for the 24 bits of its length is dropped: what remains is the head with, in
// an answer, code SystemError and a remark that says so. Senders of larger data put it in the body.
func (e *Encoder) End(body []byte) []byte {
	e.EndRegions(len(body))
	return append(e.buf, body...)
}

// EndRegions is End for a body of bodySize bytes that follows the returned head by other means.
func (e *Encoder) EndRegions(bodySize int) []byte {
	e.closeHeader()
	size := len(e.buf) - e.start - offHeader
	if size > headerLenMax {
		e.shrink(size)
		size = len(e.buf) - e.start - offHeader
	}
	length := int64(markSize) + int64(size) + int64(bodySize)
	if length > math.MaxUint32 {
		panic(fmt.Sprintf("remoting: body of %d bytes cannot be framed", bodySize))
	}
	binary.BigEndian.PutUint32(e.buf[e.start+offLength:], uint32(length))
	mark := uint32(e.head.Serialize)<<24 | uint32(size)
	binary.BigEndian.PutUint32(e.buf[e.start+offMark:], mark)
	return e.buf
}

func (e *Encoder) closeHeader() {
	switch {
	case e.head.Serialize != Binary && e.fields != 0:
		e.buf = append(e.buf, '}', '}')
	case e.head.Serialize != Binary:
		e.buf = append(e.buf, '}')
	case e.fields == 0:
		e.buf = append(e.buf, 0, 0, 0, 0)
	default:
		n := len(e.buf) - e.fields - 4
		binary.BigEndian.PutUint32(e.buf[e.fields:], uint32(n))
	}
}

// shrink starts the frame again without its fields.
func (e *Encoder) shrink(size int) {
	e.buf, e.fields = e.buf[:e.start+offHeader], 0
	response := e.head.Flag&FlagResponse != 0
	if response {
		e.head.Code = int32(SystemError)
	}
	e.writeHead()
	if response {
		e.Remark("header of " + strconv.Itoa(size) + " bytes does not fit a frame")
	}
	e.closeHeader()
}

const hexDigits = "0123456789abcdef"

// appendJSONText appends s as the inside of a JSON string. Bytes from 0x80 on are copied as they
// are: names, keys and properties are UTF-8, and what is not was not ours to repair.
func appendJSONText[T string | []byte](dst []byte, s T) []byte {
	n := plainLen(s)
	dst = append(dst, s[:n]...)
	if n == len(s) {
		return dst
	}
	return appendEscaped(dst, s[n:])
}

func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(dst, s[from:]...)
}

// plainLen returns how many bytes of s need no escape. It looks at eight bytes at once and at the
// last ones singly.
func plainLen[T string | []byte](s T) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		t := s[i : i+8]
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		if specials(w) != 0 {
			return i
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}
