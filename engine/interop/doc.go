// SPDX-License-Identifier: Apache-2.0

// Package interop holds the tests against Apache RocketMQ: its Java client 5.5.0 and the Go client
// rocketmq-client-go/v2 drive our servers, our client drives its servers, and brokers and name servers
// of both are mixed. They have the build tag interop, need java and mvn, and fetch Apache RocketMQ from
// Maven Central into the user's cache directory on the first run:
//
//	go test -tags interop ./engine/interop
//
// All tests share one Java process (java/), which is driven with one JSON object a line; servers of
// RocketMQ 4.9 (older/), which our client is tried with, have processes of their own; the Go client
// is a program of its own (goclient/), since the module itself shall not depend on it.
package interop
