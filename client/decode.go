// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/record"
)

// decoder turns the records of pull answers of one queue into messages. Bodies share the memory of
// the answer unless they are compressed, and all texts of an answer share one string, so that a
// message without user properties costs no allocation of its own. One goroutine uses it.
type decoder struct {
	source   Queue
	physical string                   // the topic as brokers know it
	plain    func(name string) string // takes a namespace off

	text  strings.Builder // of the answer at hand
	keys  []string
	hosts [2]hostText // of the last message: born, store
}

// hostText keeps the text of an address that is likely to come again.
type hostText struct {
	addr netip.AddrPort
	text string
}

func newDecoder(source Queue, physical string, plain func(string) string) decoder {
	return decoder{source: source, physical: physical, plain: plain}
}

// measure walks over the records of an answer. n counts those that are whole; texts is about how
// many bytes of text they will need. rest is what follows the last whole one.
func measure(body []byte) (n, texts int) {
	for len(body) > 0 {
		v, err := record.Parse(body)
		if err != nil {
			break
		}
		n++
		texts += len(v.Properties()) + 2*len(v.Topic()) + offsetIDSize
		body = body[v.TotalSize():]
	}
	return n, texts
}

// offsetIDSize is the length of an offset message id of an IPv4 host.
const offsetIDSize = 32

// start prepares for an answer whose texts take about that many bytes.
func (d *decoder) start(texts int) {
	d.text = strings.Builder{}
	d.text.Grow(texts)
	d.keys = nil
}

// end lets go of the answer.
func (d *decoder) end() {
	d.text = strings.Builder{}
	d.keys = nil
}

// keep returns a string with the bytes of b, in the memory that the answer's texts share. A builder
// never changes what it has handed out.
func (d *decoder) keep(b []byte) string {
	from := d.text.Len()
	d.text.Write(b)
	return d.text.String()[from:]
}

func (d *decoder) host(which int, addr netip.AddrPort) string {
	h := &d.hosts[which]
	if h.addr != addr {
		*h = hostText{addr, addr.String()}
	}
	return h.text
}

// fill writes into m what the record means to the application. body is already decompressed.
func (d *decoder) fill(m *Received, v record.View, offsetDelta int64, body []byte) {
	var scratch [2 * offsetIDSize]byte
	id := d.keep(record.AppendOffsetID(scratch[:0], v.StoreHost(), v.PhysicalOffset()))
	m.Topic, m.Body = d.source.Topic, body
	if t := v.Topic(); string(t) != d.physical {
		m.Topic = d.plain(d.keep(t))
	}
	m.ID, m.OffsetID = id, id
	m.BornHost, m.StoreHost = d.host(0, v.BornHost()), d.host(1, v.StoreHost())
	m.Source, m.Offset = d.source, int64(v.QueueOffset())+offsetDelta
	m.Attempt = int(v.ReconsumeTimes()) + 1
	m.BornAt, m.StoredAt = time.UnixMilli(v.BornMS()), time.UnixMilli(v.StoreMS())
	for props := v.Properties(); ; {
		name, value, rest, ok := record.NextProperty(props)
		if !ok {
			break
		}
		if string(name) == propCorrelation {
			m.asked = questionOf(v.Properties())
		}
		d.property(m, name, value)
		props = rest
	}
}

func (d *decoder) property(m *Received, name, value []byte) {
	switch string(name) {
	case propTags:
		m.Tag = d.keep(value)
	case propKeys:
		m.Keys = d.split(d.keep(value))
	case propOrderingKey:
		m.OrderingKey = d.keep(value)
	case propUniqueID:
		if m.ID == m.OffsetID { // RocketMQ 4.9 adds that of the batch's request at the end
			m.ID = d.keep(value)
		}
	case propRetryTopic:
		if protocol.IsRetryTopic(d.source.Topic) {
			m.Topic = d.plain(d.keep(value))
		}
	default:
		if reserved[string(name)] || isReserved(string(name)) {
			return
		}
		if m.Properties == nil {
			m.Properties = map[string]string{}
		}
		m.Properties[d.keep(name)] = d.keep(value)
	}
}

// split cuts keys apart; the pieces of an answer share one array.
func (d *decoder) split(text string) []string {
	from := len(d.keys)
	for k := range strings.FieldsSeq(text) {
		d.keys = append(d.keys, k)
	}
	return d.keys[from:len(d.keys):len(d.keys)]
}

// unwrap takes an inner batch apart and gives each a record of its own: message i has the record's
// offset plus i. body is already decompressed.
func unwrap(v record.View, body []byte, each func(record.View)) error {
	r := record.NewBatchReader(body)
	d := v.Draft()
	for i := int64(0); ; i++ {
		_, inner, props, ok := r.Next()
		if !ok {
			return r.Err()
		}
		// Encoding the element as a record of its own keeps one way of reading records.
		d.Body, d.Properties, d.SysFlag = inner, props, v.SysFlag()&^(sysUnwrap|sysCompressed)
		at := v.Place()
		at.Queue += record.QueueOffset(i)
		b := make([]byte, d.Size())
		d.Encode(b, at)
		one, err := record.Parse(b)
		if err != nil {
			return fmt.Errorf("element %d of an inner batch: %w", i, err)
		}
		each(one)
	}
}

// tagOf returns the tag of a record without making anything of it.
func tagOf(v record.View) []byte {
	tag, _ := record.Property(v.Properties(), propTags)
	return tag
}

// wants checks the tag of a message again: brokers compare hashes only.
func wants(sub *protocol.SubscriptionData, tag []byte) bool {
	if len(sub.TagsSet) == 0 || !sub.IsTag() {
		return true
	}
	for _, t := range sub.TagsSet {
		if t == string(tag) {
			return true
		}
	}
	return false
}

// Clone returns a copy that shares no memory with m. A message shares its body's memory with the
// others of the same answer of a broker, up to 1 MiB: keep a clone where one message is kept for
// long.
func (m *Received) Clone() *Received {
	c := *m
	c.Topic, c.Tag = strings.Clone(m.Topic), strings.Clone(m.Tag)
	c.OrderingKey = strings.Clone(m.OrderingKey)
	c.ID, c.OffsetID = strings.Clone(m.ID), strings.Clone(m.OffsetID)
	c.BornHost, c.StoreHost = strings.Clone(m.BornHost), strings.Clone(m.StoreHost)
	c.Body = slices.Clone(m.Body)
	c.Keys = slices.Clone(m.Keys)
	for i, k := range c.Keys {
		c.Keys[i] = strings.Clone(k)
	}
	c.Properties = maps.Clone(m.Properties)
	for k, v := range m.Properties {
		delete(c.Properties, k)
		c.Properties[strings.Clone(k)] = strings.Clone(v)
	}
	if m.Queue != nil {
		q := *m.Queue
		c.Queue = &q
	}
	return &c
}
