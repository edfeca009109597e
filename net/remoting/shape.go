// SPDX-License-Identifier: Apache-2.0

package remoting

import "encoding/binary"

// Shapes remembers what JSON headers looked like. A client sends the same header again and again with
// other values in a few places, and the same values in most: what is the same is compared, which
// takes half the time of reading it, and only the rest is read. A header that looks different is
// read from scratch. It belongs to whoever decodes commands one after the other, and takes 64 KiB at most.
type Shapes struct {
	known [8]shape
}

const (
	shapeMax = 4 << 10 // bytes of a header that is remembered
	slotsMax = 64      // values of it
	shapeKey = 16      // first bytes of a header, by which its shape is found
)

// shape is one header and where its values are.
type shape struct {
	text   []byte
	slots  []slot
	rest   int    // where in text the last value ends
	fields bool   // it has extension fields, maybe none
	misses uint16 // headers since the last that looked like it
}

// slot is a value and the text in front of it, from the end of the value before.
type slot struct {
	kind   slotKind
	varies bool  // the value was another one in some header
	lead   int32 // bytes of the text in front of the value
	size   int32 // bytes of that text and the value, with its quotes
	number int32 // the value as a number, or the language
	name   int32 // where in that text the name of an extension field begins
	after  int32 // and ends
	// Of a value that does not vary: how many values from this one on do not, and the bytes from the
	// text in front of it to the next value that varies. They are compared at once.
	run, span int32
}

type slotKind uint8

const (
	slotSkipped slotKind = iota
	slotCode
	slotFlag
	slotVersion
	slotOpaque
	slotLanguage
	slotRemark
	slotText   // an extension field with a string
	slotScalar // an extension field with a number or a truth value
)

// scan is scanJSON. Without Shapes it is nothing more.
func (s *Shapes) scan(c *Command, h []byte) bool {
	if s == nil || len(h) < shapeKey {
		return c.scanJSON(h)
	}
	key := binary.LittleEndian.Uint64(h) ^ binary.LittleEndian.Uint64(h[8:])*0x9E3779B97F4A7C15
	e := &s.known[key*0x9E3779B97F4A7C15>>61]
	if e.read(c, h) {
		e.misses = 0
		return true
	}
	body, serialize := c.Body, c.Serialize
	c.reset()
	c.Body, c.Serialize = body, serialize
	if !c.scanJSON(h) {
		return false
	}
	if e.misses < 1<<15 {
		e.misses++
	}
	if e.misses&(e.misses-1) == 0 { // the longer none looks like it, the more rarely one is learned
		e.learn(h)
	}
	return true
}

// read reads a header that looks like the one that was learned. false: it does not, and c is to be reset.
func (e *shape) read(c *Command, h []byte) bool {
	if len(e.slots) == 0 {
		return false
	}
	if cap(c.Fields) < len(e.slots) {
		c.Fields = make(Fields, 0, slotsMax)
	}
	fields, n := c.Fields[:len(e.slots)], 0
	at, from := 0, 0 // in h and in e.text
	known := -1      // values before this one, and the text in front of it, are those in e.text
	for i := range e.slots {
		s := &e.slots[i]
		lead, size := int(s.lead), int(s.size)
		value, same := at+lead, i < known
		if !same && !s.varies {
			span := int(s.span)
			if same = len(h)-at >= span && string(h[at:at+span]) == string(e.text[from:from+span]); same {
				known = i + int(s.run)
			} else {
				same = e.sameYet(i, h[at:], e.text[from:from+size+1])
			}
		}
		if !same && i != known && (len(h) <= value || string(h[at:value]) != string(e.text[from:from+lead])) {
			return false
		}
		from += size
		end := at + size
		switch s.kind {
		case slotText, slotRemark:
			var text []byte
			if same {
				text = h[value+1 : end-1 : end-1]
			} else if text, end = c.scanText(h, value); end < 0 {
				return false
			}
			if s.kind == slotRemark {
				c.Remark = text
			} else {
				name, after := at+int(s.name), at+int(s.after)
				f := &fields[n]
				f.Name, f.Value = h[name:after:after], text
				n++
			}
		case slotScalar:
			if !same && value < len(h) {
				end = scanScalar(h, value)
			}
			if end < 0 || end > len(h) {
				return false
			}
			name, after := at+int(s.name), at+int(s.after)
			fields[n] = Field{h[name:after:after], h[value:end:end]}
			n++
		case slotSkipped:
			if !same {
				end = skipValue(h, value)
			}
		default:
			number := s.number
			if !same {
				number, end = c.scanNumber(s.kind, h, value)
			}
			c.setNumber(s.kind, number)
		}
		if end < 0 {
			return false
		}
		at = end
	}
	if string(h[at:]) != string(e.text[e.rest:]) {
		return false
	}
	c.Fields, c.HasFields = fields[:n], e.fields
	return true
}

// sameYet looks at one value of several of which one has changed, and notes if it is this. old goes one
// byte beyond the value, where a longer number would go on.
func (e *shape) sameYet(i int, h, old []byte) bool {
	if len(h) >= len(old) && string(h[:len(old)]) == string(old) {
		return true
	}
	e.slots[i].varies = true
	e.plan()
	return false
}

// plan says what is compared at once.
func (e *shape) plan() {
	for i := len(e.slots) - 1; i >= 0; i-- {
		s := &e.slots[i]
		s.run, s.span = 1, s.size
		switch {
		case s.varies:
			s.run, s.span = 0, 0
		case i+1 == len(e.slots):
		case e.slots[i+1].varies:
			s.span += e.slots[i+1].lead
		default:
			s.run += e.slots[i+1].run
			s.span += e.slots[i+1].span
		}
	}
}

// scanNumber reads the value of a member that is a number here.
func (c *Command) scanNumber(kind slotKind, h []byte, i int) (number int32, end int) {
	if kind == slotLanguage {
		word, end := c.scanText(h, i)
		return int32(languageOf(word)), end
	}
	end = scanInt32(h, i, &number)
	return number, end
}

func (c *Command) setNumber(kind slotKind, number int32) {
	switch kind {
	case slotCode:
		c.Code = number
	case slotFlag:
		c.Flag = number
	case slotVersion:
		c.Version = number
	case slotOpaque:
		c.Opaque = Opaque(number)
	case slotLanguage:
		c.Language = Language(number)
	default: // has no number
	}
}

// learn takes a header, which the scanner has read, in the place of the one that was known.
func (e *shape) learn(h []byte) {
	e.slots, e.fields, e.rest = e.slots[:0], false, 0
	if len(h) > shapeMax {
		return
	}
	e.text = append(e.text[:0], h...)
	if e.learnObject(skipSpace(h, 0), true) < 0 {
		e.slots = e.slots[:0]
	}
	e.plan()
}

// learnObject notes the values of the object that begins at i, and returns its end; -1: it is not worth
// knowing.
func (e *shape) learnObject(i int, top bool) int {
	h := e.text
	if i = skipSpace(h, i+1); h[i] == '}' {
		return i + 1
	}
	for {
		name, at := scanName(h, i)
		if at < 0 {
			return -1
		}
		if top && string(name) == "extFields" {
			if e.fields || h[at] != '{' {
				return -1 // the last one counts
			}
			e.fields = true
			i = e.learnObject(at, false)
		} else {
			i = e.learnValue(name, i+1, at, top)
		}
		if i < 0 {
			return -1
		}
		if i = skipSpace(h, i); h[i] == '}' {
			return i + 1
		}
		i = skipSpace(h, i+1)
	}
}

// learnValue notes the value at i of the member whose name begins at nameAt, and returns its end.
func (e *shape) learnValue(name []byte, nameAt, i int, top bool) int {
	h, kind := e.text, slotText
	if top {
		kind = topKind(name)
	} else if h[i] != '"' {
		kind = slotScalar
	}
	var c Command
	var number int32
	var end int
	plain := true
	switch {
	case h[i] == '"':
		var text []byte
		text, end = c.scanText(h, i)
		plain = end-i == len(text)+2
		number = int32(languageOf(text))
	case kind == slotSkipped:
		end = skipValue(h, i)
	default:
		end = scanScalar(h, i)
		scanInt32(h, i, &number)
	}
	if end < 0 || len(e.slots) == slotsMax {
		return -1
	}
	e.slots = append(e.slots, slot{
		kind: kind, varies: !plain, lead: int32(i - e.rest), size: int32(end - e.rest), number: number,
		name: int32(nameAt - e.rest), after: int32(nameAt + len(name) - e.rest),
	})
	e.rest = end
	return end
}

func topKind(name []byte) slotKind {
	switch string(name) {
	case "code":
		return slotCode
	case "flag":
		return slotFlag
	case "version":
		return slotVersion
	case "opaque":
		return slotOpaque
	case "language":
		return slotLanguage
	case "remark":
		return slotRemark
	}
	return slotSkipped
}
