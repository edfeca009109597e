// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// A broker that dies under load answers nothing and uses no CPU; such a run once counted as 0.
func TestRunThatMeasuredNothingIsRefused(t *testing.T) {
	t.Parallel()
	dead := sample{SendFailed: 64}
	if err := dead.check(); err == nil || !strings.Contains(err.Error(), "64 sends failed") {
		t.Errorf("no messages: got %v", err)
	}
	unseen := sample{Messages: 10}
	if err := unseen.check(); err == nil {
		t.Error("no CPU time: taken as a result")
	}
	good := sample{Messages: 10}
	good.Broker.CPUSeconds = 0.5
	if err := good.check(); err != nil {
		t.Errorf("a good run: %v", err)
	}
}
