// SPDX-License-Identifier: Apache-2.0

package workload

import "slices"

// dueHeap orders senders by the due moment of their next request.
type dueHeap struct{ list []*sender }

// first returns the sender that is due next, nil when there is none.
func (h *dueHeap) first() *sender {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

func (h *dueHeap) push(s *sender) {
	s.queued = true
	h.list = append(h.list, s)
	at := len(h.list) - 1
	for at > 0 {
		up := (at - 1) / 2
		if h.list[up].sched.due() <= h.list[at].sched.due() {
			break
		}
		h.list[up], h.list[at] = h.list[at], h.list[up]
		at = up
	}
}

// remove takes s out, wherever it is; nothing happens when it is not in.
func (h *dueHeap) remove(s *sender) {
	if !s.queued {
		return
	}
	s.queued = false
	at := slices.Index(h.list, s)
	last := len(h.list) - 1
	h.list[at] = h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	if at == last {
		return
	}
	moved := h.list[at]
	for at > 0 && h.list[(at-1)/2].sched.due() > moved.sched.due() {
		h.list[at] = h.list[(at-1)/2]
		at = (at - 1) / 2
	}
	for {
		child := 2*at + 1
		if child >= len(h.list) {
			break
		}
		if r := child + 1; r < len(h.list) && h.list[r].sched.due() < h.list[child].sched.due() {
			child = r
		}
		if h.list[child].sched.due() >= moved.sched.due() {
			break
		}
		h.list[at] = h.list[child]
		at = child
	}
	h.list[at] = moved
}
