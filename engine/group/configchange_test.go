// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/protocol"
)

// TestGroupsShareAWrite makes groups by many callers at once, as a thousand groups that begin to pull do.
// They share one write of the file, and what each was told is there after a restart.
func TestGroupsShareAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, gate := t.TempDir(), make(chan struct{})
		var asked atomic.Int64
		cfg := group.ConfigsConfig{AutoCreate: true, Now: func() time.Time {
			if asked.Add(1) == 2 { // the first is OpenConfigs'
				<-gate
			}
			return time.Now()
		}}
		table, err := group.OpenConfigs(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		const count = 64
		for i := range count {
			name := fmt.Sprintf("G%d", i)
			wg.Go(func() {
				if _, ok, err := table.LookupOrCreate(name); !ok || err != nil {
					t.Errorf("%v, %v", ok, err)
				}
			})
			wg.Go(func() {
				if err := table.SetForbidden(name, "T", group.ForbidRead, true); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if n := asked.Load() - 1; n != 2 {
			t.Errorf("%d writes of the file, want 2", n)
		}
		if got := table.Version().Counter; got != 2*count {
			t.Errorf("version %d after %d changes", got, 2*count)
		}
		again, err := group.OpenConfigs(dir, group.ConfigsConfig{})
		if err != nil {
			t.Fatal(err)
		}
		groups, forbidden, version := table.All()
		gotGroups, gotForbidden, gotVersion := again.All()
		if len(forbidden) != count || version != gotVersion {
			t.Errorf("%d forbidden, version %+v, after a restart %+v", len(forbidden), version, gotVersion)
		}
		if diff := cmp.Diff(groups, gotGroups) + cmp.Diff(forbidden, gotForbidden); diff != "" {
			t.Error(diff)
		}
	})
}

// BenchmarkCreate is the creation of one group beside so many, on the disk of the temporary folder.
func BenchmarkCreate(b *testing.B) {
	for _, count := range []int{100, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			table, err := group.OpenConfigs(b.TempDir(), group.ConfigsConfig{AutoCreate: true})
			if err != nil {
				b.Fatal(err)
			}
			var list []*protocol.SubscriptionGroupConfig
			for i := range count {
				c := protocol.DefaultSubscriptionGroup(fmt.Sprintf("group-%d", i))
				list = append(list, &c)
			}
			if err := table.PutAll(list); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for n := range b.N {
				if _, _, err := table.LookupOrCreate(fmt.Sprintf("more-%d", n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
