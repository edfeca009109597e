// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAdvertise(t *testing.T) {
	t.Parallel()
	host := []netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("fe80::1/64"),
		netip.MustParsePrefix("169.254.1.1/16"), netip.MustParsePrefix("192.0.2.7/24"),
	}
	for _, c := range []struct {
		name, ip1, bind, names string
		addrs                  []netip.Prefix
		want, why, warns       string
	}{
		{"brokerIP1", "198.51.100.1", "0.0.0.0", "", host, "198.51.100.1:10911", "brokerIP1", ""},
		{"a host name", "localhost", "0.0.0.0", "localhost:9876", host, "localhost:10911", "brokerIP1", ""},
		{"listen host", "", "192.0.2.9", "", host, "192.0.2.9:10911", "listens on", ""},
		{"first IPv4", "", "0.0.0.0", "192.0.2.1:9876", host, "192.0.2.7:10911", "first non-loopback", ""},
		{"loopback name server", "", "0.0.0.0", "127.0.0.1:9876", host, "127.0.0.1:10911", "loopback", ""},
		{"one of two on loopback", "", "", "127.0.0.1:9876;192.0.2.1:9876", host, "192.0.2.7:10911", "first", ""},
		{"nothing else", "", "", "192.0.2.1:9876", host[:1], "127.0.0.1:10911", "no other", "loopback"},
		{"unspecified", "0.0.0.0", "", "", host, "0.0.0.0:10911", "brokerIP1", "no address"},
		{"bridge", "172.17.0.2", "", "", host, "172.17.0.2:10911", "brokerIP1", "container"},
		{"link-local", "169.254.9.9", "", "", host, "169.254.9.9:10911", "brokerIP1", "link-local"},
		{"IPv6", "2001:db8::1", "", "", host, "[2001:db8::1]:10911", "brokerIP1", ""},
	} {
		cfg := &Config{BrokerIP1: c.ip1, BindAddress: c.bind, NameServers: c.names}
		got, err := advertise(cfg, 10911, c.addrs)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.Addr != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: got %s because %s, want %s because %q", c.name, got.Addr, got.Why, c.want, c.why)
		}
		if (got.Warning == "") != (c.warns == "") || !strings.Contains(got.Warning, c.warns) {
			t.Errorf("%s: warning %q, want it to say %q", c.name, got.Warning, c.warns)
		}
		if got.Warning != "" && !strings.Contains(got.Warning, "brokerIP1") {
			t.Errorf("%s: the warning must name brokerIP1: %s", c.name, got.Warning)
		}
	}
	if _, err := advertise(&Config{BrokerIP1: "no such host.invalid"}, 1, nil); err == nil {
		t.Error("an address that does not resolve must be an error")
	}
}
