// SPDX-License-Identifier: Apache-2.0

// Package clienttest runs the real broker and the real name server in the process of a user's test,
// on free loopback ports and a temporary directory. There is nothing to install and nothing is
// mocked: sockets, files and recovery are those of production. A cluster is ready within 100 ms:
// BenchmarkStart measures 17 ms with one broker and one topic on a machine with 2 cores.
//
//	func TestBilling(t *testing.T) {
//		cluster := clienttest.Start(t, clienttest.WithTopics("created"))
//		c := cluster.Client(t)
//		...
//	}
//
// Faults are played on the brokers: Broker.Kill ends one as a killed process would end, Broker.Stop
// as an operator would, Broker.Start brings it back on the same port and store; StopNameServer and
// StartNameServer do the same for the name server. WithBrokers gives a cluster of several brokers.
//
// Each broker reserves 8 MiB of disk for its log, in files that exist for as long as the cluster.
// Close ends every goroutine of a cluster. Tests that look for leaked goroutines without having
// started a cluster see two of the library below the event loop, which its package starts:
// (*poolCommon).purgeStaleWorkers and (*poolCommon).ticktock of github.com/panjf2000/ants/v2.
package clienttest
