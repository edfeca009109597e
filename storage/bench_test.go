// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/zerocopy"
)

// BenchmarkAppend appends read-batches of single messages, with the index built meanwhile.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{128, 1024} {
		for _, batch := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%d/batch=%d", size, batch), func(b *testing.B) {
				s := open(b, storage.DefaultConfig(b.TempDir()))
				es := make([]storage.Entry, batch)
				for i := range es {
					es[i].Draft = draft("T", int32(i%8), strings.Repeat("x", size), "A")
				}
				b.SetBytes(int64(size * batch))
				b.ReportAllocs()
				for b.Loop() {
					s.Append(es)
				}
			})
		}
	}
}

// BenchmarkRead pulls 32 adjacent messages.
func BenchmarkRead(b *testing.B) {
	s := open(b, storage.DefaultConfig(b.TempDir()))
	es := []storage.Entry{{Draft: draft("T", 0, strings.Repeat("x", 1024), "A")}}
	for range 100 {
		s.Append(es)
	}
	req := storage.ReadRequest{Topic: []byte("T"), MaxMessages: 32}
	var res storage.ReadResult
	b.ReportAllocs()
	for b.Loop() {
		s.Read(&req, &res)
		zerocopy.ReleaseAll(res.Regions)
	}
}
