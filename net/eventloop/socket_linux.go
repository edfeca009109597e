// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// localAddr returns the address that a socket is bound to.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return addrPort(sa)
}

func addrPort(sa unix.Sockaddr) (netip.AddrPort, error) {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("address of type %T", sa)
}
