// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"net/netip"
	"sync"
	"time"
)

const (
	noticeEvery = time.Minute
	noticePeers = 1024
)

// noticer passes on at most one notice a minute for each peer address and counts the others. It
// remembers noticePeers peers; while all of them are recent, other peers are only counted.
type noticer struct {
	out func(msg string, kv ...any) // constant

	mu         sync.Mutex // guards what follows
	last       map[netip.Addr]time.Time
	suppressed int
}

func (n *noticer) peer(peer netip.AddrPort, msg string, kv ...any) {
	suppressed, ok := n.admit(peer.Addr(), time.Now())
	if !ok {
		return
	}
	kv = append([]any{"addr", peer.String()}, kv...)
	if suppressed > 0 {
		kv = append(kv, "suppressed", suppressed)
	}
	n.out(msg, kv...)
}

// admit reports whether a notice about the peer may pass, and how many did not since the last one.
func (n *noticer) admit(peer netip.Addr, now time.Time) (suppressed int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, seen := n.last[peer]; seen && now.Sub(t) < noticeEvery {
		n.suppressed++
		return 0, false
	}
	if len(n.last) >= noticePeers {
		for p, t := range n.last {
			if now.Sub(t) >= noticeEvery {
				delete(n.last, p)
			}
		}
		if len(n.last) >= noticePeers {
			n.suppressed++
			return 0, false
		}
	}
	n.last[peer] = now
	suppressed, n.suppressed = n.suppressed, 0
	return suppressed, true
}
