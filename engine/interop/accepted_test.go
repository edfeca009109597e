// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import "strings"

// accepted is an answer of ours that differs from Apache's on purpose.
type accepted struct {
	code   int
	remark string // a part of the remark
}

func (a accepted) same(got *header) bool {
	return got.Code == a.code && strings.Contains(got.Remark, a.remark)
}

// acceptedDifferences are by file and request. COMPATIBILITY.md tells users of them.
var acceptedDifferences = map[string]accepted{
	// A request with a binary header is answered with one; clients read the kind of each frame.
	"probe-header/binary header in the same connection": {0, ""},

	// The remark goes on with what exactly was too large.
	"probe-send/body of 4194305":     {13, "msg body length limit 4194304B"},
	"probe-send/properties of 32767": {13, "msg properties length limit 32KB"},
	"probe-send/properties of 40000": {13, "msg properties length limit 32KB"},

	// A batch that cannot be taken apart is refused as illegal, naming the element; Java ends in an
	// exception (1) before it has set the answer's fields.
	"probe-send/batch with a rubbish body": {13, "message 0 of the batch is illegal"},
	"probe-send/batch too large":           {1, "msg body length limit 4194304B"},

	// Java ends in an exception about the record that lies at offset 0.
	"probe-send/end transaction of nothing": {1, "Find prepared transaction message failed"},

	// Not there yet, so refused and never stored as a plain message.

	// The same code, with the place in the expression said in other words.
	"probe-client/client config SQL92 broken": {23, "line 1, column"},
	// Here an expression that cannot be compiled is refused; there it filters nothing.
	"probe-pull/SQL92 bad":               {23, "line 1, column"},
	"probe-pull/unknown expression type": {23, "parse the consumer's subscription failed"},
}
