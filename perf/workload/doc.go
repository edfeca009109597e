// SPDX-License-Identifier: Apache-2.0

// Package workload makes load on a cluster and measures it: RunProduce sends, RunConsume pulls, and
// named workloads are sets of their settings.
//
// The generator is meant to cost little beside the broker it measures, which often shares its
// machine. It therefore has sockets of its own and no goroutine, timer or allocation per message:
// frames are encoded once and patched, answers are scanned in place, records are counted where they
// were read. Only routes and offsets go through net/invoke. Everything it sends any RocketMQ client
// could send, so it measures Apache RocketMQ as well.
//
// In a closed loop each connection keeps a number of requests in flight, and latency counts from
// the moment a request was handed to the socket. At a fixed rate each message has a due moment; it
// is sent then or as soon as the socket takes it, and latency counts from the due moment, so that a
// stalled broker shows in the figures of all messages that came due meanwhile.
package workload
