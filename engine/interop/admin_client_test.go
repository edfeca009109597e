// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin/admintest"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// adminNames are new to both clusters.
func adminNames() admintest.Names {
	return admintest.Names{
		Topic: "T-orders", Other: "T-second", Group: "G-billing", Clone: "G-audit", Producers: "P-shop",
	}
}

// Package admin gets the same from a cluster of Apache RocketMQ as from ours, call by call.
func TestAdminClientAgainstBoth(t *testing.T) {
	t.Parallel()
	// With it, Apache's broker creates groups that are only asked about.
	at := startApache(t, t.TempDir(), map[string]string{"autoCreateSubscriptionGroup": "false"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	theirs := admintest.Run(ctx, t, c, adminNames())
	cluster := clienttest.Start(t, clienttest.WithBrokerConfig("autoCreateSubscriptionGroup", "false"))
	ours := admintest.Run(ctx, t, cluster.Client(t), adminNames())
	if diff := cmp.Diff(strings.Split(theirs, "\n"), strings.Split(ours, "\n")); diff != "" {
		t.Errorf("answers differ (-Apache +Skylark):\n%s", diff)
	}
}
