// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is a form of compressed bodies. Receivers know all of them; the zlib form is the one that
// every RocketMQ client ever deployed can read.
type Codec uint8

// The codecs.
const (
	NoCompression Codec = iota
	Zlib
	LZ4 // frame format
	Zstd
)

// Bits of a message's system flag (RocketMQ's MessageSysFlag and CompressionType).
const (
	sysCompressed      = 0x1
	sysCompressionMask = 0x700
	sysLZ4             = 0x100
	sysZstd            = 0x200
	sysZlib            = 0x300 // 0 means zlib, too
	sysUnwrap          = 0xC0  // inner batch that the client takes apart
)

// maxInflated bounds what one stored body may grow to. RocketMQ's default limit of a body is 4 MiB
// before compression; brokers may be set to more.
const maxInflated = 64 << 20

// compressor compresses with one codec and level. The zero value compresses nothing.
type compressor struct {
	codec    Codec
	level    int
	minBytes int
	writers  sync.Pool // of *zlib.Writer or *lz4.Writer; zstd has its own
	zstd     *zstd.Encoder
}

func newCompressor(codec Codec, level, minBytes int) (*compressor, error) {
	c := &compressor{codec: codec, level: level, minBytes: minBytes}
	switch codec {
	case NoCompression, LZ4:
	case Zlib:
		if _, err := zlib.NewWriterLevel(io.Discard, level); err != nil {
			return nil, fmt.Errorf("compression level %d: %w", level, err)
		}
	case Zstd:
		var err error
		c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)),
			zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("compression codec %d is unknown", codec)
	}
	return c, nil
}

// compress returns the body to send and its system flag. A body that is small, does not shrink, or
// cannot be compressed goes as it is.
func (c *compressor) compress(body []byte) ([]byte, int32) {
	if c.codec == NoCompression || len(body) < c.minBytes {
		return body, 0
	}
	var out []byte
	flag := int32(sysCompressed)
	switch c.codec {
	case Zstd:
		flag |= sysZstd
		out = c.zstd.EncodeAll(body, make([]byte, 0, len(body)/2))
	case LZ4:
		flag |= sysLZ4
		w, _ := c.writers.Get().(*lz4.Writer)
		if w == nil {
			w = lz4.NewWriter(nil)
		}
		out = deflate(w, body)
		c.writers.Put(w)
	default:
		flag |= sysZlib
		w, _ := c.writers.Get().(*zlib.Writer)
		if w == nil {
			w, _ = zlib.NewWriterLevel(io.Discard, c.level) // the level was tried before
		}
		out = deflate(w, body)
		c.writers.Put(w)
	}
	if out == nil || len(out) >= len(body) {
		return body, 0
	}
	return out, flag
}

type resetWriter interface {
	io.WriteCloser
	Reset(w io.Writer)
}

func deflate(w resetWriter, body []byte) []byte {
	out := bytes.NewBuffer(make([]byte, 0, len(body)/2))
	w.Reset(out)
	if _, err := w.Write(body); err != nil {
		return nil
	}
	if err := w.Close(); err != nil {
		return nil
	}
	return out.Bytes()
}

// inflate returns the body that a stored one stands for; the same slice when it is not compressed.
func inflate(body []byte, sysFlag int32) ([]byte, error) {
	if sysFlag&sysCompressed == 0 {
		return body, nil
	}
	var r io.Reader
	switch sysFlag & sysCompressionMask {
	case 0, sysZlib:
		z, err := zlib.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("zlib body of %d bytes: %w", len(body), err)
		}
		defer z.Close()
		r = z
	case sysLZ4:
		r = lz4.NewReader(bytes.NewReader(body))
	case sysZstd:
		z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxInflated))
		if err != nil {
			return nil, fmt.Errorf("zstd body of %d bytes: %w", len(body), err)
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("system flag %#x names an unknown compression", sysFlag)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxInflated+1))
	if err != nil {
		return nil, fmt.Errorf("compressed body of %d bytes: %w", len(body), err)
	}
	if len(out) > maxInflated {
		return nil, fmt.Errorf("compressed body of %d bytes inflates beyond %d", len(body), maxInflated)
	}
	return out, nil
}
