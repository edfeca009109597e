// SPDX-License-Identifier: Apache-2.0

package record

import (
	"net/netip"
	"testing"
	"time"
)

// TestClockUniqueIDs checks the text against Java's rules over the end of a month and a step back.
func TestClockUniqueIDs(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 8*3600)
	now := time.Date(2026, 1, 31, 23, 59, 59, 999e6, zone)
	u := newUniqueIDs(netip.MustParseAddr("10.1.2.3"), func() time.Time { return now },
		0xBEEF, 0x18B4AAC2)
	check := func(want string) {
		t.Helper()
		if got := string(u.Append(nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	check("0A010203" + "BEEF" + "18B4AAC2" + "9FA523FF" + "0000") // 31 days less 1 ms
	now = now.Add(2 * time.Millisecond)
	check("0A010203" + "BEEF" + "18B4AAC2" + "00000001" + "0001")
	now = now.Add(-time.Hour)
	check("0A010203" + "BEEF" + "18B4AAC2" + "00000000" + "0002")
}
