// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// recordSummary is what the recordings keep of a stored message.
type recordSummary struct {
	Topic          string            `json:"topic"`
	QueueID        int32             `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	Flag           int32             `json:"flag"`
	SysFlag        int32             `json:"sysFlag"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	Body           string            `json:"body"`
	Properties     map[string]string `json:"properties"`
}

// summarize takes stored messages apart. It is written anew here, since the store's own codec is
// what the comparison checks.
func summarize(b []byte) ([]recordSummary, error) {
	var out []recordSummary
	for len(b) > 0 {
		if len(b) < 4 {
			return out, fmt.Errorf("%d bytes left", len(b))
		}
		size := int(binary.BigEndian.Uint32(b))
		if size < 91 || size > len(b) {
			return out, fmt.Errorf("record of %d bytes in %d", size, len(b))
		}
		r, err := summarizeOne(b[:size])
		if err != nil {
			return out, err
		}
		out = append(out, r)
		b = b[size:]
	}
	return out, nil
}

func summarizeOne(b []byte) (recordSummary, error) {
	r := recordSummary{
		QueueID:     int32(binary.BigEndian.Uint32(b[12:])),
		Flag:        int32(binary.BigEndian.Uint32(b[16:])),
		QueueOffset: int64(binary.BigEndian.Uint64(b[20:])),
		SysFlag:     int32(binary.BigEndian.Uint32(b[36:])),
		Properties:  map[string]string{},
	}
	if r.SysFlag&(1<<4|1<<5) != 0 {
		return r, fmt.Errorf("IPv6 hosts on a loopback of IPv4")
	}
	r.ReconsumeTimes = int32(binary.BigEndian.Uint32(b[72:]))
	bodyLen := int(binary.BigEndian.Uint32(b[84:]))
	rest := b[88:]
	if bodyLen < 0 || bodyLen+3 > len(rest) {
		return r, fmt.Errorf("body of %d bytes in a record of %d", bodyLen, len(b))
	}
	r.Body, rest = string(rest[:bodyLen]), rest[bodyLen:]
	topicLen := int(rest[0])
	r.Topic, rest = string(rest[1:1+topicLen]), rest[1+topicLen:]
	size := int(binary.BigEndian.Uint16(rest))
	if size+2 != len(rest) {
		return r, fmt.Errorf("properties of %d bytes, %d are left", size, len(rest)-2)
	}
	for _, pair := range strings.Split(string(rest[2:]), "\x02") {
		if key, value, ok := strings.Cut(pair, "\x01"); ok {
			r.Properties[key] = value
		}
	}
	return r, nil
}

func diffRecords(want []recordSummary, body []byte) []string {
	got, err := summarize(body)
	if err != nil {
		return []string{err.Error()}
	}
	if len(got) != len(want) {
		return []string{fmt.Sprintf("%d records, want %d", len(got), len(want))}
	}
	var faults []string
	for i, w := range want {
		g := got[i]
		if w.Properties["UNIQ_KEY"] != "" && len(w.Properties["UNIQ_KEY"]) >= 32 {
			w.Properties, g.Properties = withoutKey(w.Properties), withoutKey(g.Properties)
		}
		if fmt.Sprint(g) != fmt.Sprint(w) { // maps print in the order of their keys
			faults = append(faults, fmt.Sprintf("record %d is %+v, want %+v", i, g, w))
		}
	}
	return faults
}

// withoutKey leaves out the value of an id that the broker made up, not that it is there.
func withoutKey(properties map[string]string) map[string]string {
	out := maps.Clone(properties)
	if _, ok := out["UNIQ_KEY"]; ok && slices.Contains([]int{32, 56, 64}, len(out["UNIQ_KEY"])) {
		out["UNIQ_KEY"] = "made by the broker"
	}
	return out
}
