// SPDX-License-Identifier: Apache-2.0

package tidy_test

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// largestCode is above every request code of RocketMQ.
const largestCode = 300_000

type compatibilityRow struct{ name, server, state string }

func readCompatibility(t *testing.T) map[remoting.RequestCode]compatibilityRow {
	t.Helper()
	text, err := os.ReadFile("COMPATIBILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[remoting.RequestCode]compatibilityRow{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue
		}
		code := remoting.RequestCode(n)
		if _, twice := rows[code]; twice {
			t.Errorf("code %d has two rows", code)
		}
		rows[code] = compatibilityRow{
			name: strings.TrimSpace(cells[2]), server: strings.TrimSpace(cells[3]), state: strings.TrimSpace(cells[4]),
		}
	}
	return rows
}

var refusedState = regexp.MustCompile(`^refused \((\d+)\)$`)

// The table of COMPATIBILITY.md has every request code, and the servers answer as it says: an empty
// request gets 3 exactly where the code is not handled, and the code that a refusal names.
func TestCompatibilityTable(t *testing.T) {
	t.Parallel()
	rows := readCompatibility(t)
	cluster := enginetest.Start(t)
	pool := invoke.NewPool(invoke.Config{})
	defer pool.Close()
	ask := func(addr string, code remoting.RequestCode) remoting.ResponseCode {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := pool.Call(ctx, addr, &invoke.Request{Code: code})
		if err != nil {
			t.Fatalf("%d %s: %v", code, code, err)
		}
		return r.Code
	}
	for code := range remoting.RequestCode(largestCode) {
		row, listed := rows[code]
		if !code.Known() {
			if listed {
				t.Errorf("code %d is no code of RocketMQ", code)
			}
			continue
		}
		if !listed || row.name != code.String() {
			t.Errorf("code %d %s: the table has %q", code, code, row.name)
			continue
		}
		checkState(t, code, row, ask(cluster.NameServer(), code), ask(cluster.Broker(), code))
	}
}

func checkState(t *testing.T, code remoting.RequestCode, row compatibilityRow, names, broker remoting.ResponseCode) {
	t.Helper()
	asked, other := broker, names
	if row.server == "name server" {
		asked, other = names, broker
	}
	if other != remoting.RequestCodeNotSupported {
		t.Errorf("%d %s: the server that should not know it answers %d", code, code, other)
	}
	handled := asked != remoting.RequestCodeNotSupported
	refused := refusedState.FindStringSubmatch(row.state)
	switch {
	case refused != nil:
		if strconv.Itoa(int(asked)) != refused[1] {
			t.Errorf("%d %s is %s, but answered with %d", code, code, row.state, asked)
		}
	case row.state == "supported", row.state == "partly":
		if !handled {
			t.Errorf("%d %s is %s, but answered with 3", code, code, row.state)
		}
	case row.state == "later", row.state == "never", row.state == "sent to clients":
		if handled {
			t.Errorf("%d %s is %q, but answered with %d", code, code, row.state, asked)
		}
	default:
		t.Errorf("%d %s has the unknown state %q", code, code, row.state)
	}
}
