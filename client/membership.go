// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"slices"
)

// sharing is a member that divides queues with others of its group.
type sharing interface {
	// consumesAs is the group; empty for one that shares nothing.
	consumesAs() string
	balance() *balancer
}

// admitLocked refuses a second member of a group: brokers know a client by one id, so the two would
// count as one and each get the other's queues.
func (c *Client) admitLocked(m member) error {
	s, ok := m.(sharing)
	if !ok || s.consumesAs() == "" {
		return nil
	}
	for other := range c.members {
		if o, ok := other.(sharing); ok && o.consumesAs() == s.consumesAs() {
			return fmt.Errorf("client: group %s has a consumer or reader of this client already, make "+
				"another Client for one more: %w", s.consumesAs(), ErrUnsupported)
		}
	}
	return nil
}

// routeChanged has the queues of a topic divided anew by those who subscribe to it.
func (c *Client) routeChanged(topic string) {
	for _, m := range c.currentMembers() {
		if s, ok := m.(sharing); ok {
			if b := s.balance(); b != nil && slices.Contains(b.share.topics(), topic) {
				b.wake()
			}
		}
	}
}
