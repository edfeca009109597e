// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"io"
	"net"
	"sync"
)

// relay passes bytes between a connection and a server until either ends.
func relay(in net.Conn, server string) {
	defer in.Close()
	out, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer out.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	})
	_, _ = io.Copy(in, out)
	_ = in.Close()
	wg.Wait()
}
