// SPDX-License-Identifier: Apache-2.0

package tablefile

import (
	"slices"
	"strings"
)

// Entries are the encoded entries of a table in the order of their names, with commas between them.
// They are immutable. Nil is an empty table.
type Entries struct {
	names []string
	ends  []int // of each entry in text
	text  []byte
}

// Change is an entry that is to be as Text says, name and value as JSON; nil: it is removed.
type Change struct {
	Name string
	Text []byte
}

// With returns the entries after changes, and the content of a file that has them between head and
// tail. Of two changes of one name the later counts. The changes are sorted where they are.
//
// Cost: a copy of the whole text.
func (e *Entries) With(head, tail []byte, changes []Change) (file []byte, next *Entries) {
	if e == nil {
		e = &Entries{}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	size, count := len(head)+len(e.text)+len(tail), len(e.names)+len(changes)
	for _, c := range changes {
		size += len(c.Text) + 1
	}
	m := merge{
		old: e, out: append(make([]byte, 0, size), head...), start: len(head),
		next: &Entries{names: make([]string, 0, count), ends: make([]int, 0, count)},
	}
	for i, c := range changes {
		if i+1 < len(changes) && changes[i+1].Name == c.Name {
			continue
		}
		m.copyBefore(c.Name)
		if c.Text != nil {
			m.comma()
			m.out = append(m.out, c.Text...)
			m.next.names = append(m.next.names, c.Name)
			m.next.ends = append(m.next.ends, len(m.out)-m.start)
		}
	}
	m.copyTo(len(e.names))
	m.next.text = m.out[m.start:len(m.out):len(m.out)]
	return append(m.out, tail...), m.next
}

// merge copies old entries and what is between them.
type merge struct {
	old   *Entries
	at    int // the first old entry that was neither copied nor left out
	out   []byte
	start int // of the entries in out
	next  *Entries
}

// copyBefore copies what stands before a name, and leaves out the entry of that name.
func (m *merge) copyBefore(name string) {
	i, found := slices.BinarySearch(m.old.names[m.at:], name)
	m.copyTo(m.at + i)
	if found {
		m.at++
	}
}

// copyTo copies old entries up to the one with that number.
func (m *merge) copyTo(to int) {
	if to == m.at {
		return
	}
	m.comma()
	from := 0
	if m.at > 0 {
		from = m.old.ends[m.at-1] + 1
	}
	shift := len(m.out) - m.start - from
	m.out = append(m.out, m.old.text[from:m.old.ends[to-1]]...)
	m.next.names = append(m.next.names, m.old.names[m.at:to]...)
	for _, end := range m.old.ends[m.at:to] {
		m.next.ends = append(m.next.ends, end+shift)
	}
	m.at = to
}

func (m *merge) comma() {
	if len(m.out) > m.start {
		m.out = append(m.out, ',')
	}
}
