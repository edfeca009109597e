// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import "strings"

// accepted is an answer of ours that differs from Apache's on purpose.
type accepted struct {
	code   int
	remark string // a part of the remark
	why    string
}

func (a accepted) same(got *header) bool {
	return got.Code == a.code && strings.Contains(got.Remark, a.remark)
}

// acceptedDifferences are by file and request. COMPATIBILITY.md tells users of them.
var acceptedDifferences = map[string]accepted{}
