// SPDX-License-Identifier: Apache-2.0

package nameserver_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/remoting"
)

// lines counts the lines that are written to it.
type lines struct {
	mu    sync.Mutex
	count int
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += bytes.Count(b, []byte("registration refused"))
	return len(b), nil
}

// TestRefusedRegistrationsDoNotFloodTheLog: whoever registers wrongly all the time gets an answer each
// time, and about one line a second in the log.
func TestRefusedRegistrationsDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	var log lines
	s := start(t, "", func(c *nameserver.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	c := dial(t, s)
	begun := time.Now()
	for range 300 {
		c.want(remoting.SystemError, "the field brokerName is missing", remoting.RegisterBroker, nil, "")
	}
	most := 2 + int(time.Since(begun)/time.Second)
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.count < 1 || log.count > most {
		t.Errorf("%d lines, want at most %d", log.count, most)
	}
}
