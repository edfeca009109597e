// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"fmt"
)

// Layout of one entry of a client batch (RocketMQ MessageDecoder.encodeMessages): what of a record
// the producer decides.
const (
	entryTotalSize = 0  // int32, the entry in bytes, this field included
	entryMagic     = 4  // int32, ignored
	entryBodyCRC   = 8  // int32, ignored
	entryFlag      = 12 // int32
	entryBodyLen   = 16 // int32, then the body, int16 property length, properties
	entryBody      = 20
	entryMin       = entryBody + 2
)

// BatchError says which entry of a batch is wrong, and why.
type BatchError struct {
	Index  int // of the entry, from 0
	Reason string
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("record: read batch: entry %d: %s", e.Index, e.Reason)
}

// BatchReader walks the body of a client batch. It is a plain value; the zero value has no entry.
//
//	r := record.NewBatchReader(body)
//	for {
//		flag, body, props, ok := r.Next()
//		if !ok {
//			return r.Err()
//		}
//		...
//	}
type BatchReader struct {
	rest  []byte
	index int
	err   *BatchError
}

// NewBatchReader returns a reader over body, which it only reads.
func NewBatchReader(body []byte) BatchReader { return BatchReader{rest: body} }

// Next returns the next entry; body and props alias the batch. ok is false at the end and from the
// first bad entry on; Err tells which. Every length is checked: an entry must be exactly as long as
// it says. Cost: no allocation unless the entry is bad.
func (r *BatchReader) Next() (flag int32, body, props []byte, ok bool) {
	b := r.rest
	if len(b) == 0 || r.err != nil {
		return 0, nil, nil, false
	}
	be := binary.BigEndian
	if len(b) < entryMin {
		return r.fail("%d bytes left, the smallest entry has %d", len(b), entryMin)
	}
	size := int64(int32(be.Uint32(b[entryTotalSize:])))
	if size < entryMin {
		return r.fail("it says it has %d bytes, the smallest entry has %d", size, entryMin)
	}
	if size > int64(len(b)) {
		return r.fail("it says it has %d bytes, %d are left", size, len(b))
	}
	bodyLen := int64(int32(be.Uint32(b[entryBodyLen:])))
	if bodyLen < 0 || bodyLen > size-entryMin {
		return r.fail("its body says it has %d bytes, the entry %d", bodyLen, size)
	}
	p := entryBody + bodyLen
	body = b[entryBody:p:p]
	propsLen := int64(be.Uint16(b[p:]))
	if propsLen > MaxProperties {
		return r.fail("its properties have %d bytes, the limit is %d", propsLen, MaxProperties)
	}
	p += 2
	if p+propsLen != size {
		return r.fail("its parts have %d bytes, the entry says %d", p+propsLen, size)
	}
	r.rest = b[size:]
	r.index++
	return int32(be.Uint32(b[entryFlag:])), body, b[p:size:size], true
}

// Index returns how many entries were read.
func (r *BatchReader) Index() int { return r.index }

// Err returns nil at the proper end of the batch, else a *BatchError.
func (r *BatchReader) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// fail remembers what is wrong with the current entry.
func (r *BatchReader) fail(format string, args ...any) (int32, []byte, []byte, bool) {
	r.err = &BatchError{Index: r.index, Reason: fmt.Sprintf(format, args...)}
	return 0, nil, nil, false
}

// BatchEntrySize returns how many bytes AppendBatchEntry adds.
func BatchEntrySize(body, props []byte) int { return entryMin + len(body) + len(props) }

// AppendBatchEntry adds one message to a batch body. props must be within MaxProperties.
func AppendBatchEntry(dst []byte, flag int32, body, props []byte) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(BatchEntrySize(body, props)))
	dst = be.AppendUint64(dst, 0) // magic and body CRC, which nobody reads
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	dst = be.AppendUint16(dst, uint16(len(props)))
	return append(dst, props...)
}
