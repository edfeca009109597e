// SPDX-License-Identifier: Apache-2.0

package invoke

import (
	"fmt"
	"net"
	"strings"
)

// dialAddr turns an address as RocketMQ writes it into one that net can dial. RocketMQ puts a
// port behind an IPv6 address without brackets and splits at the last colon (RemotingHelper).
func dialAddr(addr string) (string, error) {
	addr = strings.TrimSpace(addr)
	if host, port, err := net.SplitHostPort(addr); err == nil {
		return net.JoinHostPort(host, port), nil
	}
	i := strings.LastIndexByte(addr, ':')
	if i < 0 || i == len(addr)-1 {
		return "", fmt.Errorf("address %q is not host:port", addr)
	}
	host := strings.Trim(addr[:i], "[]")
	return net.JoinHostPort(host, addr[i+1:]), nil
}
