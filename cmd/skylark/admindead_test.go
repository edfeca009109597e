// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// newDeadLab is a lab whose group billing has given up count messages of the topic created.
func newDeadLab(t *testing.T, count int) *adminLab {
	t.Helper()
	cluster := clienttest.Start(t, clienttest.WithoutAutoCreate(), clienttest.WithTopic("created", 1),
		clienttest.WithGroups("billing", "audit"))
	l := &adminLab{cluster: cluster, words: strings.NewReplacer()}
	c := cluster.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p, err := c.NewProducer("shop")
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		l.sent, err = p.Send(ctx, &client.Message{
			Topic: "created", Tag: "eu", Keys: []string{fmt.Sprint("k", i)}, Body: fmt.Append(nil, "<", i, ">"),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	k, err := c.NewConsumer("billing", client.WithSubscription("created", client.All()),
		client.WithStart(client.Earliest), client.WithConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	died := 0
	err = k.Run(ctx, func(context.Context, *client.Received) error {
		if died++; died == count {
			cancel()
		}
		return client.DeadLetter(errors.New("cannot be billed"))
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// jsonLines reads an object a line.
func jsonLines(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		list = append(list, v)
	}
	return list
}

// TestAdminDeadLetters: letters are listed, exported and sent again, by filters, and what cannot be is refused.
func TestAdminDeadLetters(t *testing.T) {
	t.Parallel()
	l := newDeadLab(t, 4)
	out := must(t, l.args("listDeadLetters -g billing")...)
	for _, want := range []string{"#Origin", "created", "eu", "k0", "k3"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if code, _, errs := command(t, l.args("listDeadLetters -g billing --limit 2")...); code != exitDone ||
		!strings.Contains(errs, "there may be more") {
		t.Errorf("with a limit: exit code %d, %s", code, errs)
	}
	rows := jsonLines(t, must(t, l.args("listDeadLetters -g billing -k k1 --json")...))
	if len(rows) != 1 || rows[0]["origin_topic"] != "created" || rows[0]["reconsume_times"] != 1.0 {
		t.Errorf("rows %v", rows)
	}

	letters := jsonLines(t, must(t, l.args("exportDeadLetters -g billing")...))
	if len(letters) != 4 || letters[0]["body"] != "<0>" ||
		letters[0]["all_properties"].(map[string]any)["RETRY_TOPIC"] != "created" {
		t.Errorf("exported %v", letters)
	}
	file := filepath.Join(t.TempDir(), "letters.jsonl")
	must(t, l.args("exportDeadLetters -g billing -k k2", "-o", file)...)
	text, err := os.ReadFile(file)
	if err != nil || len(jsonLines(t, string(text))) != 1 {
		t.Errorf("exported to a file: %v, %s", err, text)
	}

	out = must(t, l.args("resendDeadLetters -g billing --dry-run -k k3")...)
	if !strings.Contains(out, "to created <3>") || !strings.Contains(out, "1 of 4 letters would be sent") {
		t.Errorf("dry run:\n%s", out)
	}
	state := filepath.Join(t.TempDir(), "state")
	out = must(t, l.args("resendDeadLetters -g billing --limit 3", "--state", state)...)
	if !strings.Contains(out, "3 of 4 letters sent again, 0 refused") {
		t.Errorf("resent:\n%s", out)
	}
	rows = jsonLines(t, must(t, l.args("resendDeadLetters -g billing --json", "--state", state)...))
	if len(rows) != 2 || rows[1]["resent"] != 1.0 || rows[1]["behind"] != 3.0 {
		t.Errorf("the rest: %v", rows)
	}

	for line, want := range map[string]struct {
		code int
		text string
	}{
		"listDeadLetters":                                        {exitMisuse, "--consumerGroup is required"},
		"listDeadLetters -g audit":                               {exitFailed, "no dead letters"},
		"listDeadLetters -g billing -b noon":                     {exitMisuse, "2026-01-31T12:00:00Z"},
		"listDeadLetters -g billing -b 2 -e 1":                   {exitMisuse, "none fits"},
		"exportDeadLetters -g billing -o " + file:                {exitMisuse, "exists"},
		"resendDeadLetters -g billing --limit -1":                {exitMisuse, "negative"},
		"resendDeadLetters -g billing --tag us --state " + state: {exitMisuse, "of another resend"},
	} {
		code, out, errs := command(t, l.args(line)...)
		if code != want.code || !strings.Contains(errs, want.text) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s%s", line, code, want.code, want.text, out, errs)
		}
	}
}

// TestCrashResendDeadLetters: the command is killed in the middle, twice. The third run does the rest:
// every letter is sent again, and no more than a batch twice for each kill.
func TestCrashResendDeadLetters(t *testing.T) {
	t.Parallel()
	const letters, batch = 300, 32
	l := newDeadLab(t, letters)
	state := filepath.Join(t.TempDir(), "state")
	args := l.args("resendDeadLetters -g billing --json", "--state", state)
	for range 2 {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asMain+"=1")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 75 { // to the middle of the third batch
			lines.Scan()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	last := jsonLines(t, must(t, args...))
	sum := last[len(last)-1]
	behind := int(sum["behind"].(float64))
	if behind < 4*batch || behind >= letters {
		t.Errorf("the last run says %v: it was to begin in the middle", sum)
	}
	c := l.cluster.Client(t)
	r, err := c.NewReader("", client.WithSubscription("created", client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	count, total := map[string]int{}, 0
	for len(count) < letters || total < 2*letters || !all(count, 2) {
		ms, err := r.Poll(ctx, letters)
		if err != nil {
			t.Fatalf("%d messages of %d ids: %v", total, len(count), err)
		}
		for _, m := range ms {
			count[m.ID]++
			total++
		}
	}
	if doubled := total - 2*letters; doubled > 2*batch {
		t.Errorf("%d letters came twice, at most a batch for each kill may", doubled)
	}
}

func all(count map[string]int, least int) bool {
	for _, n := range count {
		if n < least {
			return false
		}
	}
	return true
}
