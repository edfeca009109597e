// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// killDir names the environment variable that makes this test binary the victim of TestCrashKill.
const killDir = "SKYLARK_TEST_KILL_DIR"

// killSync names the one that makes it flush synchronously.
const killSync = "SKYLARK_TEST_KILL_SYNC"

// victim writes to a store until it is killed, and prints each message when it is acknowledged.
func victim(dir string) error {
	cfg := small(dir)
	cfg.SyncFlush = os.Getenv(killSync) != ""
	s, err := storage.Open(cfg)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	es := make([]storage.Entry, 4)
	for n := 0; ; {
		for i := range es {
			id := int32(n % 3)
			es[i] = storage.Entry{
				Draft:       draft("T", id, fmt.Sprint(n, strings.Repeat("y", n%977)), "A"),
				AwaitsFlush: n%40 >= 32,
			}
			n++
		}
		s.Append(es)
		if es[0].AwaitsFlush {
			if err := s.Flush(); err != nil {
				return err
			}
		}
		for i := range es {
			if es[i].Err != nil {
				return es[i].Err
			}
			body := es[i].Draft.Body
			_, _ = fmt.Fprintln(out, es[i].Draft.QueueID, es[i].QueueOffset, string(body))
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// TestCrashKill kills a process that writes, again and again on one directory. Every message that
// it printed must be there, at its offset; the store must take new ones.
func TestCrashKill(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"", "yes"} {
		t.Run("sync="+sync, func(t *testing.T) {
			t.Parallel()
			killRounds(t, sync)
		})
	}
}

func killRounds(t *testing.T, sync string) {
	dir := filepath.Join(t.TempDir(), "store")
	r := newRand(t)
	acked := map[string]string{}
	for round := range 12 {
		victim := exec.CommandContext(t.Context(), os.Args[0])
		victim.Env = append(os.Environ(), killDir+"="+dir, killSync+"="+sync)
		victim.Stderr = os.Stderr
		out, err := victim.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for left := 1 + r.IntN(3000); left > 0 && lines.Scan(); left-- {
			w := strings.SplitN(lines.Text(), " ", 3)
			acked[w[0]+" "+w[1]] = w[2]
		}
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it printed before it died, but no half line
			w := strings.SplitN(lines.Text(), " ", 3)
			if len(w) == 3 {
				acked[w[0]+" "+w[1]] = w[2]
			}
		}
		_ = victim.Wait()
		if round%3 != 2 {
			continue // the next victim recovers
		}
		s, err := storage.Open(small(dir))
		if err != nil {
			t.Fatal(err)
		}
		checkAcked(t, s, acked)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d acknowledged messages", len(acked))
}

func checkAcked(t *testing.T, s *storage.Store, acked map[string]string) {
	t.Helper()
	missing := 0
	for place, body := range acked {
		q, at, _ := strings.Cut(place, " ")
		queue, _ := strconv.Atoi(q)
		offset, _ := strconv.ParseInt(at, 10, 64)
		res := read(s, "T", int32(queue), record.QueueOffset(offset), 1)
		got := bodies(t, res)
		if len(got) != 1 || got[0] != body && !strings.HasPrefix(got[0], body) {
			missing++
			if missing < 5 {
				t.Errorf("queue %s: %s, %.40q, want %.40q", place, res.Status, got, body)
			}
		}
	}
	if missing > 0 {
		t.Fatalf("%d of %d acknowledged messages are missing", missing, len(acked))
	}
}

// TestIdle lets a store come to rest: nothing is mapped for queues, and nothing wakes up.
func TestIdle(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	cfg.QueueFlushInterval = time.Millisecond
	cfg.QueueFlushThorough = 5 * time.Millisecond
	s := open(t, cfg)
	for i := range 20 {
		send(t, s, draft("T", int32(i), "m", ""))
	}
	deadline := time.After(20 * time.Second)
	for s.Info().QueueFilesOpen > 0 {
		select {
		case <-deadline:
			t.Fatalf("%d queue files stay mapped", s.Info().QueueFilesOpen)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if c := s.Info().Checkpoint; c.LogicsAt == 0 {
		t.Errorf("checkpoint %+v", c)
	}
	if got := bodies(t, read(s, "T", 7, 0, 32)); len(got) != 1 {
		t.Errorf("read after rest: %q", got)
	}
	if e := send(t, s, draft("T", 7, "m", "")); e.QueueOffset != 1 {
		t.Errorf("queue offset after rest: %d", e.QueueOffset)
	}
}
