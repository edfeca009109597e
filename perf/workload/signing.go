// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Credentials sign each request, for brokers with access control (RocketMQ's AclClientRPCHook). Sends
// and pulls that are signed have the binary header form, in which values stand as they are signed.
type Credentials struct{ AccessKey, SecretKey string }

func (c *Credentials) complete() bool { return c == nil || c.AccessKey != "" && c.SecretKey != "" }

const (
	fieldAccessKey = "AccessKey"
	fieldSignature = "Signature"
	signatureWidth = 28 // of a SHA-1 in base64
)

// signedHeader is a header with what access control asks for.
type signedHeader struct {
	remoting.Header // nil: no other fields
	accessKey       string
	signature       string
}

// AppendFields implements remoting.Header.
func (h *signedHeader) AppendFields(e *remoting.Encoder) {
	if h.Header != nil {
		h.Header.AppendFields(e)
	}
	e.String(fieldAccessKey, h.accessKey)
	e.String(fieldSignature, h.signature)
}

// around returns h with room for a signature; h itself without credentials.
func (c *Credentials) around(h remoting.Header) remoting.Header {
	if c == nil {
		return h
	}
	return &signedHeader{h, c.AccessKey, strings.Repeat("=", signatureWidth)}
}

// appendSigned appends a request without a body, in the binary header form.
func (c *Credentials) appendSigned(dst []byte, rh remoting.Head, h remoting.Header) []byte {
	from := len(dst)
	e := remoting.Begin(dst, rh)
	c.around(h).AppendFields(&e)
	dst = e.End(nil)
	newSigner(c, dst[from:]).sign(dst[from:], nil)
	return dst
}

// prepare signs a request that a pool sends, in whatever form.
func (c *Credentials) prepare(_ context.Context, _ string, r *invoke.Request) error {
	h := &signedHeader{r.Header, c.AccessKey, strings.Repeat("=", signatureWidth)}
	e := remoting.Begin(nil, remoting.Head{Serialize: remoting.Binary})
	h.AppendFields(&e)
	frame := e.End(nil)
	s := newSigner(c, frame)
	s.sign(frame, r.Body)
	h.signature = string(frame[s.at:][:signatureWidth])
	r.Header = h
	return nil
}

// pool is the configuration of a pool whose requests are signed.
func (c *Credentials) pool(cfg invoke.Config) invoke.Config {
	if c != nil {
		cfg.Prepare = c.prepare
	}
	return cfg
}

// signer signs frames that have the fields of one head at the same places. One goroutine uses it.
type signer struct {
	mac    hash.Hash
	values [][2]int // where the values of the fields are, by the order of the fields' names
	at     int      // where the signature is
	sum    []byte
}

// Of a frame with a binary header: where its remark begins, which requests do not have.
const remarkAtBin = 21

// newSigner takes a frame apart that begins with a binary header and has room for a signature.
func newSigner(c *Credentials, frame []byte) *signer {
	s := &signer{mac: hmac.New(sha1.New, []byte(c.SecretKey))}
	type field struct {
		name  string
		value [2]int
	}
	var fields []field
	at := remarkAtBin
	at += 4 + int(binary.BigEndian.Uint32(frame[at:]))
	end := at + 4 + int(binary.BigEndian.Uint32(frame[at:]))
	for at += 4; at < end; {
		n := int(binary.BigEndian.Uint16(frame[at:]))
		name := string(frame[at+2:][:n])
		at += 2 + n
		n = int(binary.BigEndian.Uint32(frame[at:]))
		at += 4
		if name == fieldSignature {
			s.at = at
		} else {
			fields = append(fields, field{name, [2]int{at, at + n}})
		}
		at += n
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for _, f := range fields {
		s.values = append(s.values, f.value)
	}
	return s
}

// sign puts base64(HMAC-SHA1(secret, values, body)) into a head (RocketMQ's AclUtils).
func (s *signer) sign(head, body []byte) {
	s.mac.Reset()
	for _, v := range s.values {
		s.mac.Write(head[v[0]:v[1]])
	}
	s.mac.Write(body)
	s.sum = s.mac.Sum(s.sum[:0])
	base64.StdEncoding.Encode(head[s.at:][:signatureWidth], s.sum)
}
