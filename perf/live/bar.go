// SPDX-License-Identifier: Apache-2.0

package live

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// Bar shows on a terminal how far a task is whose size is known. Show and Close are called from one
// goroutine; another one draws.
type Bar struct {
	view *View
	name string
}

// NewBar starts a bar with a name on a terminal, or on any writer as if it were one of 120 columns.
func NewBar(w io.Writer, name string) *Bar { return &Bar{view: New(w), name: name} }

// Show draws done of total from now on, below a line of text.
func (b *Bar) Show(done, total int64, text string) {
	v := b.view
	if v.bar == nil {
		v.bar = &progress.Tracker{Message: b.name, AutoStopDisabled: true, RemoveOnCompletion: true}
		v.bars.AppendTracker(v.bar)
	}
	v.bars.SetPinnedMessages(text)
	v.bar.UpdateTotal(total)
	v.bar.SetValue(done)
}

// Close draws for the last time and leaves the lines standing. It may be called again.
func (b *Bar) Close() { b.view.Close() }
