// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// resendState is the file of one resend: JSON, written anew after each batch of letters and renamed
// over the old one, so that a crash leaves one of the two whole.
type resendState struct {
	path string // empty: nothing is kept
	text resendText
}

type resendText struct {
	Of        string                    `json:"resend"` // which letters, and where to
	Positions map[string]resendPosition `json:"positions"`
}

// resendPosition is how far one queue is.
type resendPosition struct {
	Next int64  `json:"next"` // offset of the first letter that is not done
	Last string `json:"last"` // offset id of a letter before it, to tell a topic that was made again
}

// resendOf names what a resend is for. The limit is not part of it: a call with a limit is a step of
// the resend.
func resendOf(r *Resend) string {
	q := &r.Letters
	text := "group " + q.Group
	for _, f := range []struct{ name, value string }{
		{"key", q.Key},
		{"tag", q.Tag},
		{"topic", q.Topic},
		{"origin id", q.OriginID},
		{"from", timeText(q.From)},
		{"to", timeText(q.To)},
	} {
		if f.value != "" {
			text += fmt.Sprintf(", %s %q", f.name, f.value)
		}
	}
	if q.MinReconsumeTimes > 0 {
		text += fmt.Sprintf(", reconsumed at least %d", q.MinReconsumeTimes)
	}
	if q.MaxReconsumeTimes > 0 {
		text += fmt.Sprintf(", reconsumed at most %d", q.MaxReconsumeTimes)
	}
	if r.ToRetry {
		text += ", to the retry topic"
	}
	return text
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// openResendState reads the state, if there is one.
func openResendState(op string, r *Resend) (*resendState, error) {
	s := &resendState{path: r.StateFile}
	s.text = resendText{Of: resendOf(r), Positions: map[string]resendPosition{}}
	if s.path == "" {
		return s, nil
	}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	const next = "name another state file, or remove this one to begin with the first letter"
	if err != nil {
		return nil, &Error{Op: op, Err: err, Next: next}
	}
	var old resendText
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, &Error{Op: op, Err: fmt.Errorf("state file %s: %w", s.path, err), Next: next}
	}
	if old.Of != s.text.Of {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: state file %s is of another resend: it has %s, "+
			"asked is %s", ErrInvalid, s.path, old.Of, s.text.Of), Next: next}
	}
	if old.Positions != nil {
		s.text.Positions = old.Positions
	}
	return s, nil
}

func (s *resendState) position(q client.Queue) (resendPosition, bool) {
	p, ok := s.text.Positions[q.String()]
	return p, ok
}

// save stores the position of one queue on the disk.
func (s *resendState) save(q client.Queue, p resendPosition) error {
	if s.path == "" {
		return nil
	}
	s.text.Positions[q.String()] = p
	data, err := json.Marshal(s.text)
	if err != nil {
		return fmt.Errorf("state of the resend: %w", err)
	}
	if err := replaceFile(s.path, append(data, '\n')); err != nil {
		return fmt.Errorf("state of the resend: %w", err)
	}
	return nil
}

// replaceFile writes a file beside path and renames it, so that a crash leaves the old or the new.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	_ = d.Sync() // not every file system can
	return d.Close()
}
