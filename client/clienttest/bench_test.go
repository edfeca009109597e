// SPDX-License-Identifier: Apache-2.0

package clienttest_test

import (
	"testing"

	"github.com/skylarkmq/skylark/client/clienttest"
)

// BenchmarkStart is the time from nothing to a broker that takes messages of a topic; the end of the
// cluster is not counted.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		cluster, err := clienttest.New(clienttest.WithTopics("a"))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := cluster.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
