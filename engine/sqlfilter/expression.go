// SPDX-License-Identifier: Apache-2.0

package sqlfilter

import (
	"bytes"
	"fmt"
	"sync"
	"unsafe"
)

// Expression is a compiled filter. It is immutable; any goroutine may use it.
type Expression struct {
	text  string
	root  *node
	names []string // of the properties, by slot
	nodes int
	spare sync.Pool // of *values, for expressions with many properties
}

// Separators of a record's property text (RocketMQ MessageDecoder).
const (
	nameEnd  = 0x01
	valueEnd = 0x02
)

// slotsMax is the number of properties whose values are kept on the stack.
const slotsMax = 12

// Compile reads an expression. The error is a *SyntaxError; what it accepts and refuses is what
// RocketMQ's SelectorParser does, except for texts of more than TextMax bytes or 500 levels.
func Compile(text string) (e *Expression, err error) {
	if len(text) > TextMax {
		return nil, errorAt("", 0, "", fmt.Sprintf("%d bytes, at most %d", len(text), TextMax))
	}
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(*SyntaxError)
			if !ok {
				panic(r)
			}
			e, err = nil, bad
		}
	}()
	p := &parser{lexer: lexer{text: text}, slots: map[string]int{}}
	p.advance()
	first := p.tok
	root := p.boolean(p.or(), first)
	e = &Expression{text: text, root: root, names: p.names, nodes: count(root)}
	n := len(e.names)
	e.spare.New = func() any {
		v := make(values, n)
		return &v
	}
	return e, nil
}

// count returns the number of nodes.
func count(n *node) int {
	if n == nil {
		return 0
	}
	total := 1 + count(n.left) + count(n.right) + len(n.members) + 2*len(n.set)
	for _, part := range n.list {
		total += count(part)
	}
	return total
}

// Text returns the expression as it was given to Compile.
func (e *Expression) Text() string { return e.text }

// Memory returns roughly how many bytes the expression takes.
func (e *Expression) Memory() int {
	return 256 + 2*len(e.text) + e.nodes*int(unsafe.Sizeof(node{})) + 48*len(e.names)
}

// Match reports whether a message with these properties is selected. props is the property text of
// a stored record (name, 0x01, value, 0x02, repeated) and is only read. Cost: one pass over the
// text, no allocation.
func (e *Expression) Match(props []byte) bool { return e.Evaluate(props) == True }

// Evaluate is Match with the reason why not.
func (e *Expression) Evaluate(props []byte) Result {
	if len(e.names) > slotsMax {
		v := e.spare.Get().(*values)
		e.collect(*v, props)
		result := e.root.test(*v)
		clear(*v)
		e.spare.Put(v)
		return result
	}
	var few [slotsMax][]byte
	v := values(few[:len(e.names)])
	e.collect(v, props)
	return e.root.test(v)
}

// collect finds the values of the expression's properties. Entries without a name or a value are
// passed over; of several with one name the last counts. A name is looked for where it would have to
// end, so that only the ends of entries are searched for.
func (e *Expression) collect(v values, props []byte) {
	for len(props) > 0 {
		entry := props
		if end := bytes.IndexByte(props, valueEnd); end >= 0 {
			entry, props = props[:end], props[end+1:]
		} else {
			props = nil
		}
		for slot, name := range e.names {
			if at := len(name); at < len(entry)-1 && entry[at] == nameEnd && string(entry[:at]) == name {
				v[slot] = entry[at+1:]
				break
			}
		}
	}
}
