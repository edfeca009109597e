// SPDX-License-Identifier: Apache-2.0

// Package record owns the byte layout of one stored message: how it is built, read and checked.
//
// The same bytes are the CommitLog on disk, the body of a pull response and the body of a
// view-message response, which is why sendfile works: the broker and the client share this codec.
// The layout is that of Apache RocketMQ (MessageExtEncoder, MessageDecoder) and is described in
// storage/docs/format/commitlog.md. Where records lie in files is the concern of commitlog.
//
// Nothing here blocks or keeps state; everything may be called from any goroutine. Encoders write
// into space of the caller, decoders return slices of the caller's bytes.
//
//	d := record.Draft{Topic: []byte("Hello"), Body: []byte("hi"), BornHost: from, StoreHost: here}
//	dst := make([]byte, d.Size())
//	d.Encode(dst, record.Place{Queue: 42, Physical: 4096, StoreMS: now})
//	v, err := record.Parse(dst)
package record
