// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// args are the arguments of one command of a driver.
type args map[string]any

// driver is a process that runs a foreign client: one JSON object a line on its standard input and
// output, answered in the order the commands end. Any goroutine may call it.
type driver struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when the process's output ended

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply // nil when the process is gone
}

type reply struct {
	ID      int             `json:"id"`
	OK      bool            `json:"ok"`
	Value   json.RawMessage `json:"value"`
	Error   string          `json:"error"`
	Message string          `json:"message"`
	Code    int             `json:"code"`
}

// driverError is a command that ended with an exception or an error of the foreign client. Code is the
// broker's response code when the client shows one, else -1.
type driverError struct {
	Op, Kind, Message string
	Code              int
}

func (e *driverError) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Op, e.Kind, e.Code, e.Message)
}

// startDriver starts the process; what it writes to its standard error goes to the file logName.
func startDriver(name string, cmd *exec.Cmd, logName string) (*driver, error) {
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own copy
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &driver{name: name, cmd: cmd, in: in, done: make(chan struct{}), waiting: map[int]chan reply{}}
	go d.read(out)
	return d, nil
}

func (d *driver) read(out io.Reader) {
	defer close(d.done)
	scanner := bufio.NewScanner(out)
	scanner.Buffer(make([]byte, 1<<20), 256<<20)
	for scanner.Scan() {
		var r reply
		if json.Unmarshal(scanner.Bytes(), &r) != nil {
			fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, scanner.Text())
			continue
		}
		d.mu.Lock()
		ch := d.waiting[r.ID]
		delete(d.waiting, r.ID)
		d.mu.Unlock()
		if ch != nil {
			ch <- r
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ch := range d.waiting {
		close(ch)
	}
	d.waiting = nil
}

// do runs one command and decodes its value into out, which may be nil.
func (d *driver) do(op string, a args, out any) error {
	ch := make(chan reply, 1)
	d.mu.Lock()
	if d.waiting == nil {
		d.mu.Unlock()
		return fmt.Errorf("%s: %s has ended", op, d.name)
	}
	d.next++
	line, err := json.Marshal(map[string]any{"id": d.next, "op": op, "args": a})
	if err == nil {
		d.waiting[d.next] = ch
		_, err = d.in.Write(append(line, '\n'))
	}
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: write to %s: %w", op, d.name, err)
	}
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	select {
	case <-limit.C:
		return fmt.Errorf("%s: no answer of %s in two minutes", op, d.name)
	case r, open := <-ch:
		switch {
		case !open:
			return fmt.Errorf("%s: %s ended before it answered", op, d.name)
		case !r.OK:
			return &driverError{Op: op, Kind: r.Error, Message: r.Message, Code: r.Code}
		case out != nil:
			return json.Unmarshal(r.Value, out)
		}
		return nil
	}
}

// stop ends the process by closing its input.
func (d *driver) stop() {
	_ = d.in.Close()
	select {
	case <-d.done:
	case <-time.After(5 * time.Second):
		_ = d.cmd.Process.Kill()
	}
	_ = d.cmd.Wait()
}

// must runs a command that has to succeed and returns its value.
func must[T any](t *testing.T, d *driver, op string, a args) T {
	t.Helper()
	var out T
	if err := d.do(op, a, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// run runs a command that has to succeed and has no value.
func run(t *testing.T, d *driver, op string, a args) {
	t.Helper()
	if err := d.do(op, a, nil); err != nil {
		t.Fatal(err)
	}
}

// open runs a command that starts something, and has it stopped at the end of the test.
func open(t *testing.T, d *driver, kind string, a args) string {
	t.Helper()
	handle := must[string](t, d, kind+".start", a)
	t.Cleanup(func() {
		// The test may have stopped it already. Nobody waits: a client whose servers are gone takes 3 s.
		go func() { _ = d.do(kind+".stop", args{"handle": handle}, nil) }()
	})
	return handle
}
