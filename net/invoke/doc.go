// SPDX-License-Identifier: Apache-2.0

// Package invoke is the caller's side of the remoting protocol: it dials peers, sends requests
// and matches answers to them.
//
// A Pool keeps one connection for each address and makes it when it is first needed; Pool.Dial
// gives further connections that belong to the caller. On each connection one goroutine writes,
// joining what is queued into one system call, and one reads. Requests and answers of all callers
// are multiplexed; a call that ends early never closes the connection, and when the connection
// closes, every call on it fails at once. Requests that the peer sends go to Config.OnRequest.
//
//	pool := invoke.NewPool(invoke.Config{})
//	defer pool.Close()
//	answer, err := pool.Call(ctx, "127.0.0.1:9876", &invoke.Request{
//		Code:   remoting.GetRouteInfoByTopic,
//		Header: &protocol.RouteRequest{Topic: "demo"},
//	})
//
// The package leaves retries, the choice of address and the meaning of response codes to its
// users. All exported methods may be called from any goroutine; callbacks (OnRequest, OnClose,
// waiters) run on the goroutines of the connection, must not block for long and must not call
// Close of the pool. Bounds: requests without an answer (Config.MaxPending, then ErrBusy), bytes
// queued for a connection (Config.MaxQueued, then senders wait), size of a frame.
package invoke
