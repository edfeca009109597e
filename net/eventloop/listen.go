// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"context"
	"net"
	"syscall"
)

// listenTCP opens a listener whose connections send without delay, under the configured congestion
// control. Multipath TCP is left out: nothing of ours uses it, and not every option is passed on.
func listenTCP(ctx context.Context, cfg *Config, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	lc.SetMultipathTCP(false)
	lc.Control = func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = prepareListener(int(fd), cfg) }); e != nil {
			return e
		}
		if err != nil {
			cfg.Notice("congestion control left as it is", "wanted", cfg.Congestion, "err", err)
		}
		return nil
	}
	return lc.Listen(ctx, "tcp", addr)
}

func closeAll(lns []net.Listener) {
	for _, ln := range lns {
		_ = ln.Close()
	}
}
