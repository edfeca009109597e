// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/client/admin/admintest"
	"github.com/skylarkmq/skylark/client/clienttest"
)

var rewrite = flag.Bool("rewrite", false, "renew testdata/calls.txt")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

const callsFile = "testdata/calls.txt"

// Every call, against Skylark. TestAdminClientAgainstBoth (engine/interop) holds Apache RocketMQ to
// the same answers.
func TestCalls(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithBrokerConfig("autoCreateSubscriptionGroup", "false"))
	got := admintest.Run(within(t), t, cluster.Client(t), admintest.Names{
		Topic: "T-orders", Other: "T-second", Group: "G-billing", Clone: "G-audit", Producers: "P-shop",
	})
	if *rewrite {
		if err := os.WriteFile(callsFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(callsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("answers changed (-want +got); -rewrite renews %s:\n%s", callsFile, diff)
	}
}
