// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// BenchmarkTransaction stores a half message of 1 KiB and commits it, beside others that wait.
func BenchmarkTransaction(b *testing.B) {
	for _, waiting := range []int{0, 10_000} {
		b.Run(fmt.Sprint("waiting=", waiting), func(b *testing.B) {
			dir := b.TempDir()
			cfg := storage.DefaultConfig(dir)
			cfg.SegmentSize, cfg.IndexEnable = 1<<28, false
			store, err := storage.Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			offsets, err := offset.Open(dir+"/config", offset.Config{})
			if err != nil {
				b.Fatal(err)
			}
			s := transaction.New(transaction.Config{
				Store: store, Offsets: offsets, StoreHost: host,
				GiveUpTopic: func() error { return nil },
				Producer:    func(string) (transaction.Producer, bool) { return nil, false },
			})
			defer s.Close()
			props := record.AppendProperty(nil, "TRAN_MSG", "true")
			props = record.AppendProperty(props, "PGROUP", "G")
			props = record.AppendProperty(props, "CHECK_IMMUNITY_TIME_IN_SECONDS", "3600")
			props = transaction.AppendHalf(props, []byte("0123456789ABCDEF0123456789ABCDEF"), "T", 3)
			half := func() *transaction.End {
				e := []storage.Entry{{Draft: record.Draft{
					Topic: []byte(protocol.HalfTopic), BornMS: time.Now().UnixMilli(), BornHost: host,
					StoreHost: host, Body: make([]byte, 1024), Properties: props,
				}}}
				store.Append(e)
				if e[0].Err != nil {
					b.Fatal(e[0].Err)
				}
				s.Stored()
				return &transaction.End{
					Commit: true, Group: "G", Offset: int64(e[0].QueueOffset), At: e[0].At,
				}
			}
			for range waiting {
				half()
			}
			s.Step(time.Now())
			b.ReportAllocs()
			b.SetBytes(1024)
			for b.Loop() {
				if err := s.End(half()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
