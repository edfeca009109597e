// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Advertised is the address that name servers and clients are told, and how it was found.
type Advertised struct {
	Addr    string         // host:port as it is sent
	Host    netip.AddrPort // the same as an IP; part of each message id
	Why     string         // which rule chose it
	Warning string         // not empty when others will hardly reach it, and what to do
}

// advertise chooses the advertised address: brokerIP1, else the listen host when it is a specific
// one, else the first non-loopback IPv4 of this host, or loopback when all name servers are on
// loopback, since then no one else can ask them for this broker.
func advertise(cfg *Config, port int, addrs []netip.Prefix) (Advertised, error) {
	a, err := chooseHost(cfg, addrs)
	if err != nil {
		return a, err
	}
	a.Host = netip.AddrPortFrom(a.Host.Addr().Unmap(), uint16(port))
	if a.Addr == "" {
		a.Addr = a.Host.Addr().String()
	}
	a.Addr = net.JoinHostPort(a.Addr, fmt.Sprint(port))
	a.Warning = reachWarning(a.Host.Addr(), cfg.NameServers)
	return a, nil
}

func chooseHost(cfg *Config, addrs []netip.Prefix) (Advertised, error) {
	if cfg.BrokerIP1 != "" {
		ip, err := resolve(cfg.BrokerIP1)
		if err != nil {
			return Advertised{}, fmt.Errorf("engine: brokerIP1 %q: no IP address for it: %w; "+
				"set brokerIP1 to an address of this host", cfg.BrokerIP1, err)
		}
		return Advertised{
			Addr: cfg.BrokerIP1, Host: netip.AddrPortFrom(ip, 0), Why: "brokerIP1 says so",
		}, nil
	}
	if ip, err := resolve(cfg.BindAddress); err == nil && !ip.IsUnspecified() {
		return Advertised{Host: netip.AddrPortFrom(ip, 0), Why: "it listens on that address only"}, nil
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if loopbackOnly(cfg.NameServers) {
		return Advertised{
			Host: netip.AddrPortFrom(loopback, 0),
			Why:  "the name server is on loopback, so only clients of this host can find the broker",
		}, nil
	}
	for _, prefix := range addrs {
		ip := prefix.Addr().Unmap()
		if ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return Advertised{
				Host: netip.AddrPortFrom(ip, 0), Why: "first non-loopback IPv4 address of this host",
			}, nil
		}
	}
	return Advertised{
		Host: netip.AddrPortFrom(loopback, 0), Why: "this host has no other IPv4 address",
	}, nil
}

// resolve turns an address or a host name into an IP, IPv4 first.
func resolve(host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, nil
	}
	ips, err := net.LookupIP(host)
	if err != nil {
		return netip.Addr{}, err
	}
	var found netip.Addr
	for _, ip := range ips {
		a, ok := netip.AddrFromSlice(ip)
		if a = a.Unmap(); ok && (a.Is4() || !found.IsValid()) {
			found = a
			if a.Is4() {
				break
			}
		}
	}
	if !found.IsValid() {
		return found, fmt.Errorf("no addresses")
	}
	return found, nil
}

func loopbackOnly(nameServers string) bool {
	found := false
	for addr := range strings.SplitSeq(nameServers, ";") {
		host, _, err := net.SplitHostPort(strings.TrimSpace(addr))
		if err != nil {
			continue
		}
		found = true
		ip, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !ip.IsLoopback()) {
			return false
		}
	}
	return found
}

// bridges are the ranges that container engines give their bridges by default.
var bridges = []netip.Prefix{
	netip.MustParsePrefix("172.17.0.0/16"),
	netip.MustParsePrefix("172.18.0.0/16"),
	netip.MustParsePrefix("10.88.0.0/16"),
}

// reachWarning says why clients elsewhere may not reach the address.
func reachWarning(ip netip.Addr, nameServers string) string {
	const advice = "; set brokerIP1 to an address that clients can reach"
	switch {
	case ip.IsUnspecified():
		return fmt.Sprintf("%s is no address that a client can connect to%s", ip, advice)
	case ip.IsLinkLocalUnicast():
		return fmt.Sprintf("%s is link-local: other networks cannot reach it%s", ip, advice)
	case ip.IsLoopback() && !loopbackOnly(nameServers) && nameServers != "":
		return fmt.Sprintf("%s is loopback, but the name servers %s are not: clients of other hosts "+
			"will be sent to themselves%s", ip, nameServers, advice)
	}
	for _, bridge := range bridges {
		if bridge.Contains(ip) {
			return fmt.Sprintf("%s lies in %s, which container bridges use: clients outside this host "+
				"cannot reach it%s", ip, bridge, advice)
		}
	}
	return ""
}

// hostAddrs lists the addresses of this host in the order of its interfaces.
func hostAddrs() []netip.Prefix {
	var out []netip.Prefix
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}
