// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"net/netip"
	"testing"
)

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		registered, from string
		want             bool
	}{
		{"127.0.0.1:10911", "127.0.0.1", false},
		{"127.0.0.1:10911", "10.0.0.7", true},
		{"0.0.0.0:10911", "::ffff:10.0.0.7", true},
		{"169.254.1.1:10911", "10.0.0.7", true},
		{"[::1]:10911", "10.0.0.7", true},
		{"10.0.0.7:10911", "10.0.0.7", false},
		{"broker:10911", "10.0.0.7", false},
	} {
		if got := unreachable(tc.registered, netip.MustParseAddr(tc.from)); got != tc.want {
			t.Errorf("%s from %s: %v, want %v", tc.registered, tc.from, got, tc.want)
		}
	}
}
