// SPDX-License-Identifier: Apache-2.0

package tablefile

import (
	"iter"
	"maps"
	"slices"
)

// Edit is what one change makes of a table whose entries are of type C. The table itself stays as it is
// until Apply, so that a change can be refused half way.
type Edit[C any] struct {
	// NewVersion asks for a new version of the table even if no entry has changed, Write for a new file
	// even if nothing has.
	NewVersion, Write bool

	before  map[string]*C
	changed map[string]*C // nil: removed
}

// NewEdit begins a change of a table.
func NewEdit[C any](table map[string]*C) Edit[C] { return Edit[C]{before: table} }

// Get returns an entry as the change has left it so far, nil when there is none. It must not be changed.
func (e *Edit[C]) Get(name string) *C {
	if c, ok := e.changed[name]; ok {
		return c
	}
	return e.before[name]
}

// Before are the entries of the table before the change.
func (e *Edit[C]) Before() iter.Seq2[string, *C] { return maps.All(e.before) }

// Set puts an entry, nil removes it.
func (e *Edit[C]) Set(name string, c *C) {
	if e.changed == nil {
		e.changed = map[string]*C{}
	}
	e.changed[name] = c
}

// Changed returns the names that were set, sorted.
func (e *Edit[C]) Changed() []string { return slices.Sorted(maps.Keys(e.changed)) }

// Apply makes the change in a table.
func (e *Edit[C]) Apply(table map[string]*C) {
	for name, c := range e.changed {
		if table[name] = c; c == nil {
			delete(table, name)
		}
	}
}

// Texts returns the changes that bring entries up to date with a table: the entries of those names, or
// all of the table as long as entries is nil. encode makes JSON of a name and of an entry.
func Texts[C any](
	entries *Entries, table map[string]*C, names []string, encode func(any) []byte,
) []Change {
	if entries == nil {
		names = slices.Collect(maps.Keys(table))
	}
	changes := make([]Change, len(names))
	for i, name := range names {
		changes[i].Name = name
		if entry := table[name]; entry != nil {
			changes[i].Text = append(append(encode(name), ':'), encode(entry)...)
		}
	}
	return changes
}
