// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/storage/record"
)

// Variable parts of a frame have a fixed width, so that a frame is encoded once and then patched:
// an opaque of 9 digits, a born time of 13, and of an id and a key their last 12 hex digits.
const (
	opaqueBase  = 100_000_000 // smallest opaque; base + slot
	opaqueWidth = 9
	bornSample  = 9_876_543_210_987
	bornWidth   = 13
	idPrefix    = 20 // hex digits of an id that one connection keeps
	idWidth     = 12 // hex digits that number its messages
	opaqueAtBin = 13 // of the opaque in a frame with a binary header, length field included
	// sysFlags of compressed messages have three digits, and the plain one is written as 000.
	sysFlagSample = 777 // and this one has no digit in common with it:
	sysFlagOther  = 888
	sysFlagWidth  = 3
)

// spot is where an entry of a body, or of the header's properties, has its variable parts.
type spot struct {
	id   int // of the last idWidth digits of UNIQ_KEY; -1: none
	key  int // the same of KEYS; -1: none
	body int // of the message body; -1: in no body
}

// template is the encoded head of a request for one queue and one tag.
type template struct {
	target   int // index in the sender's targets
	head     []byte
	opaqueAt int
	binary   bool
	bornAt   int
	sysAt    int     // of one of the three digits sysFlagSample
	props    spot    // in head
	signer   *signer // nil: requests are not signed
}

// payload is the encoded body of requests, the same for all queues and tags but for its batch
// entries' tags.
type payload struct {
	bytes   []byte
	spots   []spot // one for each message
	content int    // bytes of the messages' bodies together
	sysFlag int32  // of compression
}

// target is one queue that is written to.
type target struct {
	topic  string
	broker string
	addr   string
	queue  int32
}

// frameMaker builds templates for one connection.
type frameMaker struct {
	cfg    *Produce
	prefix string // idPrefix hex digits, unlike those of any other connection
}

func (m *frameMaker) sampleID() string { return m.prefix + strings.Repeat("F", idWidth) }

func (m *frameMaker) sampleKey() string { return "K" + m.prefix[:7] + strings.Repeat("E", idWidth) }

// properties builds the property text of a message with tag number tag; negative: none.
func (m *frameMaker) properties(tag int) []byte {
	p := record.AppendProperty(nil, "UNIQ_KEY", m.sampleID())
	p = record.AppendProperty(p, "WAIT", "true")
	if tag >= 0 {
		p = record.AppendProperty(p, "TAGS", tagName(tag))
	}
	if m.cfg.Keys {
		p = record.AppendProperty(p, "KEYS", m.sampleKey())
	}
	if n := m.cfg.PropertySize; n > 0 {
		p = record.AppendProperty(p, "load", strings.Repeat("p", n))
	}
	for _, own := range m.cfg.Properties {
		name, value, _ := strings.Cut(own, "=")
		p = record.AppendProperty(p, name, value)
	}
	if m.cfg.DelayLevel > 0 {
		p = record.AppendProperty(p, "DELAY", strconv.Itoa(m.cfg.DelayLevel))
	}
	return p
}

func tagName(tag int) string { return "tag" + string(appendInt(nil, tag)) }

func appendInt(dst []byte, n int) []byte {
	if n >= 10 {
		dst = appendInt(dst, n/10)
	}
	return append(dst, byte('0'+n%10))
}

// head encodes everything of a request but its body.
func (m *frameMaker) head(at int, t *target, tag int) template {
	batch := m.cfg.Batch > 1
	code := remoting.SendMessageV2
	var props []byte
	if batch {
		code = remoting.SendBatchMessage
		props = record.AppendProperty(nil, "WAIT", "true")
	} else {
		props = m.properties(tag)
	}
	queues := int32(m.cfg.Queues)
	if queues == 0 {
		queues = defaultTopicQueues
	}
	h := protocol.SendRequest{
		Group: []byte(m.cfg.Group), Topic: []byte(t.topic), DefaultTopic: []byte(protocol.TBW102),
		DefaultTopicQueues: queues, QueueID: t.queue, BornMS: bornSample,
		Properties: props, Batch: batch, BrokerName: []byte(t.broker), MaxReconsumeTimes: -1,
	}
	rh := remoting.NewRequest(code, opaqueBase)
	if m.cfg.Binary {
		rh.Serialize = remoting.Binary
	}
	encode := func(sysFlag int32) []byte {
		h.SysFlag = sysFlag
		e := remoting.Begin(nil, rh)
		m.cfg.Credentials.around(&h).AppendFields(&e)
		return e.EndRegions(0)
	}
	sysAt := -1
	var head []byte
	if m.cfg.Compress != "" {
		head = encode(sysFlagSample)
		for i, c := range encode(sysFlagOther) {
			if c != head[i] {
				sysAt = i
				break
			}
		}
	} else {
		head = encode(0)
	}
	var s *signer
	if m.cfg.Credentials != nil {
		s = newSigner(m.cfg.Credentials, head)
	}
	return template{
		sysAt: sysAt, signer: s,
		target: at, head: head, binary: m.cfg.Binary,
		opaqueAt: opaqueIn(head, m.cfg.Binary),
		bornAt:   bytes.Index(head, appendInt(nil, bornSample)),
		props: spot{
			id: lastDigits(head, m.sampleID()), key: lastDigits(head, m.sampleKey()), body: -1,
		},
	}
}

func opaqueIn(head []byte, binaryForm bool) int {
	if binaryForm {
		return opaqueAtBin
	}
	mark := []byte(`"opaque":`)
	return bytes.Index(head, mark) + len(mark)
}

// lastDigits returns where the variable digits of sample begin in b; -1 when it is not there.
func lastDigits(b []byte, sample string) int {
	i := bytes.Index(b, []byte(sample))
	if i < 0 {
		return -1
	}
	return i + len(sample) - idWidth
}

// payload encodes the body of a request whose messages have these bodies, one after the other.
func (m *frameMaker) payload(bodies []rawBody) payload {
	if m.cfg.Batch == 1 {
		b := bodies[0]
		return payload{
			bytes: b.bytes, spots: []spot{{id: -1, key: -1, body: 0}}, content: len(b.bytes),
			sysFlag: b.sysFlag,
		}
	}
	var p payload
	for i, body := range bodies {
		tag := -1
		if m.cfg.Tags > 0 {
			tag = i % m.cfg.Tags
		}
		at := len(p.bytes)
		p.bytes = record.AppendBatchEntry(p.bytes, 0, body.bytes, m.properties(tag))
		entry := p.bytes[at:]
		s := spot{
			id: lastDigits(entry, m.sampleID()), key: lastDigits(entry, m.sampleKey()),
			body: bytes.Index(entry, body.bytes),
		}
		for _, v := range []*int{&s.id, &s.key, &s.body} {
			if *v >= 0 {
				*v += at
			}
		}
		p.spots = append(p.spots, s)
		p.content += len(body.bytes)
	}
	return p
}

// payloads encodes the bodies of requests, which take them in turn.
func (m *frameMaker) payloads(bodies []rawBody) []payload {
	list := make([]payload, len(bodies))
	for i := range list {
		batch := make([]rawBody, m.cfg.Batch)
		for j := range batch {
			batch[j] = bodies[(i*m.cfg.Batch+j)%len(bodies)]
		}
		list[i] = m.payload(batch)
	}
	return list
}

// patch is what differs from one request to the next.
type patch struct {
	opaque int32
	bornMS [bornWidth]byte // decimal
	id     uint64          // of the first message; the others count on
	stamp  *measure.Stamp  // nil: bodies are not numbered
}

// appendFrame appends one request to dst: two copies and a few patched digits, no allocation when
// dst has room. A signature comes last.
func appendFrame(dst []byte, t *template, body *payload, p *patch) []byte {
	at := len(dst)
	dst = append(dst, t.head...)
	head := dst[at:]
	if t.binary {
		binary.BigEndian.PutUint32(head[t.opaqueAt:], uint32(p.opaque))
	} else {
		putDecimal(head[t.opaqueAt:t.opaqueAt+opaqueWidth], int64(p.opaque))
	}
	binary.BigEndian.PutUint32(head, uint32(len(t.head)-4+len(body.bytes)))
	copy(head[t.bornAt:], p.bornMS[:])
	if t.sysAt >= 0 {
		putDecimal(head[t.sysAt:t.sysAt+sysFlagWidth], int64(body.sysFlag))
	}
	if t.props.id >= 0 {
		putHex(head[t.props.id:], p.id)
	}
	if t.props.key >= 0 {
		putHex(head[t.props.key:], p.id)
	}
	dst = append(dst, body.bytes...)
	head, b := dst[at:at+len(t.head)], dst[at+len(t.head):]
	if len(body.spots) > 1 || p.stamp != nil {
		patchBody(b, body, p)
	}
	if t.signer != nil {
		t.signer.sign(head, b)
	}
	return dst
}

func patchBody(b []byte, body *payload, p *patch) {
	for i := range body.spots {
		s := &body.spots[i]
		size := len(b)
		if len(body.spots) > 1 {
			size = int(binary.BigEndian.Uint32(b[s.body-4:])) // as the batch entry states it
		}
		if s.id >= 0 {
			putHex(b[s.id:], p.id+uint64(i))
		}
		if s.key >= 0 {
			putHex(b[s.key:], p.id+uint64(i))
		}
		if p.stamp != nil {
			p.stamp.Put(b[s.body : s.body+size])
			p.stamp.Number++
		}
	}
}

// putDecimal fills dst with the digits of n, leading zeros included.
func putDecimal(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

const hexDigits = "0123456789ABCDEF"

// putHex fills the first idWidth bytes of dst with the lowest digits of n.
func putHex(dst []byte, n uint64) {
	_ = dst[idWidth-1]
	for i := idWidth - 1; i >= 0; i-- {
		dst[i] = hexDigits[n&15]
		n >>= 4
	}
}
