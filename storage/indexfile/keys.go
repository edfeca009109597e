// SPDX-License-Identifier: Apache-2.0

package indexfile

import (
	"bytes"

	"github.com/skylarkmq/skylark/storage/record"
)

// The properties that are indexed, as they begin in a property text.
const (
	uniqueKeyIs = "UNIQ_KEY\x01"
	keysIs      = "KEYS\x01"
	tagsIs      = "TAGS\x01"
	valueEnd    = '\x02'
)

var tagsMark = []byte("T#") // read only

// Keys are the texts by which a record can be found. They alias its properties; absent ones are empty.
type Keys struct {
	Unique []byte // its unique id
	Keys   []byte // of the user, separated by spaces
	Tags   []byte
}

// Max is a number of notes that they do not exceed.
func (k *Keys) Max() int { return 2 + (len(k.Keys)+1)/2 }

// FindKeys finds the keys in a property text; of duplicates the last counts, as everywhere. Cost: one
// pass, one search a property.
func FindKeys(props []byte) (k Keys) {
	for len(props) > 0 {
		entry := props
		if end := bytes.IndexByte(props, valueEnd); end >= 0 {
			entry, props = props[:end:end], props[end+1:]
		} else {
			props = nil
		}
		switch {
		case isNamed(entry, uniqueKeyIs):
			k.Unique = entry[len(uniqueKeyIs):]
		case isNamed(entry, keysIs):
			k.Keys = entry[len(keysIs):]
		case isNamed(entry, tagsIs):
			k.Tags = entry[len(tagsIs):]
		}
	}
	return k
}

// isNamed reports whether an entry has that name and a value; one without a value does not count.
func isNamed(entry []byte, name string) bool {
	return len(entry) > len(name) && string(entry[:len(name)]) == name
}

// Note is one key of a record, without its text.
type Note struct {
	At      record.PhysicalOffset // of the record
	StoreMS int64                 // its store time
	hash    int32                 // of topic#key
}

// Noter makes notes. It remembers how the texts of one topic begin, so it is cheapest for neighbours
// of one topic. The zero value is ready; it has one user at a time.
type Noter struct {
	topic  []byte // with the '#'
	prefix int32  // hash of topic
}

// Append appends a note for each key of a record of a topic. sysFlag is the record's: rollback marks
// have none. Cost: no allocation unless dst grows.
func (n *Noter) Append(dst []Note, sysFlag int32, topic []byte, k Keys, at record.PhysicalOffset,
	storeMS int64,
) []Note {
	if sysFlag&record.SysTransactionMask == record.SysRollback {
		return dst
	}
	n.begin(topic)
	if len(k.Unique) > 0 {
		dst = append(dst, Note{At: at, StoreMS: storeMS, hash: hash(n.prefix, k.Unique)})
	}
	for keys := k.Keys; len(keys) > 0; {
		key := keys
		if i := bytes.IndexByte(keys, ' '); i >= 0 {
			key, keys = keys[:i], keys[i+1:]
		} else {
			keys = nil
		}
		if len(key) > 0 {
			dst = append(dst, Note{At: at, StoreMS: storeMS, hash: hash(n.prefix, key)})
		}
	}
	if len(k.Tags) > 0 {
		h := hash(record.HashMore(n.prefix, tagsMark), k.Tags)
		dst = append(dst, Note{At: at, StoreMS: storeMS, hash: h})
	}
	return dst
}

// begin makes prefix that of a topic.
func (n *Noter) begin(topic []byte) {
	if l := len(n.topic); l == len(topic)+1 && bytes.Equal(n.topic[:l-1], topic) {
		return
	}
	n.topic = append(append(n.topic[:0], topic...), '#')
	n.prefix = record.HashMore(0, n.topic)
}

// notesHeld is how many notes are put under one hold of the lock: queries wait no longer than that.
const notesHeld = 256

// PutNotes puts notes[*put:], which must be in the order of the log and belong to records behind those
// that were put before; put counts each as soon as it is in, whatever ends the call, so that the next
// one goes on there. It blocks when a file is full and a new one is made.
func (ix *Index) PutNotes(notes []Note, put *int) error {
	for *put < len(notes) {
		if err := ix.putNotes(notes[:min(*put+notesHeld, len(notes))], put); err != nil {
			return err
		}
	}
	return nil
}

func (ix *Index) putNotes(notes []Note, put *int) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for ; *put < len(notes); *put++ {
		n := &notes[*put]
		if n.At <= ix.done {
			continue
		}
		f, err := ix.tailLocked()
		if err != nil {
			return err
		}
		f.put(ix.shape, n.hash, n.At, n.StoreMS)
	}
	return nil
}
