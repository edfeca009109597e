// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Property text is name, 0x01, value, 0x02, repeated (RocketMQ MessageDecoder).
const (
	nameEnd  = 0x01
	valueEnd = 0x02
)

// PropertyCRC32 names the property that holds the check sum of the whole record.
const PropertyCRC32 = "__CRC32#"

// propertyCRCSize is the size of that property: name, 0x01, ten digits, 0x02.
const (
	propertyCRCDigits = 10
	propertyCRCSize   = len(PropertyCRC32) + 1 + propertyCRCDigits + 1
)

// NextProperty cuts the first property off props. Entries with an empty name or an empty value, or
// without a 0x01, are passed over, as RocketMQ does; a missing final 0x02 is accepted. ok is false
// at the end. name and value alias props.
func NextProperty(props []byte) (name, value, rest []byte, ok bool) {
	for len(props) > 0 {
		entry := props
		if end := bytes.IndexByte(props, valueEnd); end >= 0 {
			entry, props = props[:end], props[end+1:]
		} else {
			props = nil
		}
		at := bytes.IndexByte(entry, nameEnd)
		if at > 0 && at < len(entry)-1 {
			return entry[:at:at], entry[at+1 : len(entry) : len(entry)], props, true
		}
	}
	return nil, nil, nil, false
}

// Property returns the value of a property, aliasing props. Of several with one name the last
// counts, as in RocketMQ. Cost: no allocation, one pass.
func Property(props []byte, name string) (value []byte, ok bool) {
	for {
		n, v, rest, more := NextProperty(props)
		if !more {
			return value, ok
		}
		if string(n) == name {
			value, ok = v, true
		}
		props = rest
	}
}

// EachProperty calls do for each property in order until it returns false. The slices alias props.
func EachProperty(props []byte, do func(name, value []byte) bool) {
	for {
		n, v, rest, more := NextProperty(props)
		if !more || !do(n, v) {
			return
		}
		props = rest
	}
}

// AppendProperty adds a property to dst. A final 0x02 that dst lacks is added first. An entry that
// no reader would see (empty name or value) is not written. The caller refuses 0x01 and 0x02 in
// name and value; see ValidProperty.
func AppendProperty[V string | []byte](dst []byte, name string, value V) []byte {
	if name == "" || len(value) == 0 {
		return dst
	}
	if len(dst) > 0 && dst[len(dst)-1] != valueEnd {
		dst = append(dst, valueEnd)
	}
	dst = append(dst, name...)
	dst = append(dst, nameEnd)
	dst = append(dst, value...)
	return append(dst, valueEnd)
}

// ValidProperty reports whether text may be the name or value of a property: not empty and without
// the two separators.
func ValidProperty[V string | []byte](text V) bool {
	for i := 0; i < len(text); i++ {
		if text[i] == nameEnd || text[i] == valueEnd {
			return false
		}
	}
	return len(text) > 0
}

// DeleteProperty appends props without the properties of those names to dst, which may be props[:0].
// All other bytes stay as they are.
func DeleteProperty(dst, props []byte, names ...string) []byte {
	for len(props) > 0 {
		entry := props
		if end := bytes.IndexByte(props, valueEnd); end >= 0 {
			entry = props[:end+1]
		}
		props = props[len(entry):]
		at := bytes.IndexByte(entry, nameEnd)
		if at < 0 || !slices.Contains(names, string(entry[:at])) {
			dst = append(dst, entry...)
		}
	}
	return dst
}

// TagsCode returns the hash of a tag that queues keep and subscriptions ask for: Java's String
// hash, over UTF-16 units, with 32-bit wrap-around. No tag is 0.
func TagsCode(tag []byte) int64 { return int64(HashMore(0, tag)) }

// HashMore continues Java's String hash h of a text with what follows it; the hash of nothing is 0.
func HashMore(h int32, text []byte) int32 {
	const p2, p3, p4 = 31 * 31, 31 * 31 * 31, 31 * 31 * 31 * 31
	for i := 0; i < len(text); {
		if b := text[i:]; len(b) >= 4 && (b[0]|b[1]|b[2]|b[3]) < utf8.RuneSelf {
			// Four at once: one chain of multiplications instead of four.
			h = p4*h + p3*int32(b[0]) + p2*int32(b[1]) + 31*int32(b[2]) + int32(b[3])
			i += 4
			continue
		}
		if c := text[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
		i += n
	}
	return h
}

// putPropertyCRC writes the property with the check sum. RocketMQ writes the decimal digits with
// the least significant first and pads with zeros (MessageExtEncoder, UtilAll), so 123 is
// "3210000000".
func putPropertyCRC(dst []byte, sum uint32) {
	p := copy(dst, PropertyCRC32)
	dst[p] = nameEnd
	for i := range propertyCRCDigits {
		dst[p+1+i] = '0' + byte(sum%10)
		sum /= 10
	}
	dst[p+1+propertyCRCDigits] = valueEnd
}

// parsePropertyCRC reads what putPropertyCRC writes.
func parsePropertyCRC(b []byte) (sum uint64, ok bool) {
	n := len(PropertyCRC32)
	if string(b[:n]) != PropertyCRC32 || b[n] != nameEnd || b[len(b)-1] != valueEnd {
		return 0, false
	}
	for i := len(b) - 2; i > n; i-- {
		if b[i] < '0' || b[i] > '9' {
			return 0, false
		}
		sum = sum*10 + uint64(b[i]-'0')
	}
	return sum, true
}
