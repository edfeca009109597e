// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// mount gives a folder with a file system of its own.
func mount(t *testing.T, kind string, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, kind, flags, options); err != nil {
		t.Skipf("needs a %s of its own, which takes root: %v", kind, err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestFaultDiskFull fills the disk that the store is on, by ratio and to the last byte. Sends are
// refused with the reason, what was acknowledged is read on, and sends are taken again within 10 s of
// there being room, without a restart.
func TestFaultDiskFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		ratio int
		says  []string
	}{
		{"ratio", 90, []string{"percent", "limit is 90"}},
		{"no space", 100, []string{"no space left on device"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := mount(t, "tmpfs", 0, "size=24m")
			ballast := filepath.Join(dir, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			var log journal
			cfg := quietConfig(t)
			cfg.StoreRoot, cfg.DiskWarningRatio = filepath.Join(dir, "store"), c.ratio
			cfg.CleanForcibly = false // what is read again must be there however long this takes
			cfg.CommitLogFileSize, cfg.QueueFileSize, cfg.MaxMessageSize = 1<<20, 6000, 1<<18
			logTo(&log)(&cfg)
			b := startBroker(t, cfg)
			p := newPeer(t, b.Addr().String())
			body := strings.Repeat("x", 16<<10)
			var kept int
			try := func() (remoting.ResponseCode, string) {
				r := p.call(remoting.SendMessageV2, sendRequest("full", 0), []byte(body))
				if r.Code == remoting.Success {
					kept++
				}
				return r.Code, r.Remark
			}
			var remark string
			for begun := time.Now(); ; {
				var code remoting.ResponseCode
				if code, remark = try(); code == remoting.ServiceNotAvailable && strings.Contains(remark, c.says[0]) {
					break
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("%d messages, and then: %v %s", kept, code, remark)
				}
			}
			for _, part := range append(c.says, cfg.StoreRoot) {
				if !strings.Contains(remark, part) {
					t.Errorf("the remark does not name %q: %s", part, remark)
				}
			}
			// Small things that need a file: they may be refused, and must not hurt.
			for i := range 5 {
				p.call(remoting.SendMessageV2, sendRequest(fmt.Sprint("late", i), 0), []byte("x"))
				p.call(remoting.HeartBeat, nil, []byte(fmt.Sprintf(
					`{"clientID":"c","consumerDataSet":[{"groupName":"late%d"}]}`, i)))
			}
			pullAll := func() {
				t.Helper()
				read := 0
				for read < kept {
					d := p.pull(pullRequest("full", 0, int64(read), "*", 0))
					if d.code != remoting.Success {
						t.Fatalf("pull at %d of %d: %v %s", read, kept, d.code, d.remark)
					}
					read += len(d.views)
				}
			}
			pullAll()
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			within(t, 10*time.Second, func() bool {
				code, _ := try()
				return code == remoting.Success
			})
			t.Logf("%d messages; back after %v", kept, time.Since(begun))
			pullAll()
			if n := len(log.lines("level=WARN", "disk")); c.ratio == 90 && n < 2 {
				t.Errorf("%d lines in the log", n)
			}
		})
	}
}

// TestFaultStoreReadOnly: a store directory that cannot be written to stops the start with its path.
func TestFaultStoreReadOnly(t *testing.T) {
	t.Parallel()
	dir := mount(t, "tmpfs", syscall.MS_RDONLY, "size=1m")
	for _, root := range []string{dir, filepath.Join(dir, "store")} {
		cfg := quietConfig(t)
		cfg.StoreRoot = root
		err := startError(t, cfg)
		if err == nil || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: got %v, want the path and the reason", root, err)
		}
	}
}

// TestFaultNoFallocate: on a file system without fallocate, and without a size, the broker works.
func TestFaultNoFallocate(t *testing.T) {
	t.Parallel()
	cfg := quietConfig(t)
	cfg.StoreRoot = filepath.Join(mount(t, "ramfs", 0, ""), "store")
	cfg.CommitLogFileSize, cfg.MaxMessageSize = 1<<20, 1<<18
	b := startBroker(t, cfg)
	p := newPeer(t, b.Addr().String())
	for range 40 {
		p.send("plain", 0, strings.Repeat("x", 64<<10)) // several segments
	}
	d := p.pull(pullRequest("plain", 0, 39, "*", 0))
	if len(d.views) != 1 {
		t.Errorf("pulled %v %s", d.code, d.remark)
	}
}

// TestFaultDiskFullLater fills the disk while messages of all kinds that are delivered later come due.
// None is lost, and each comes once there is room.
func TestFaultDiskFullLater(t *testing.T) {
	t.Parallel()
	dir := mount(t, "tmpfs", 0, "size=64m")
	cfg := quietConfig(t)
	cfg.StoreRoot, cfg.DiskWarningRatio = filepath.Join(dir, "store"), 100
	cfg.CommitLogFileSize, cfg.QueueFileSize, cfg.MaxMessageSize = 1<<20, 6000, 1<<18
	cfg.CleanForcibly = false // old messages may not make room for those that come due
	shortLevels(&cfg)
	var log journal
	logTo(&log)(&cfg)
	b := startBroker(t, cfg)
	p := newPeer(t, b.Addr().String())
	body := func(kind string, i int) string { return fmt.Sprint(kind, i, strings.Repeat("x", 4000)) }
	const each = 100
	for i := range each {
		p.send("popped", 0, body("p", i))
	}
	taken := 0
	for taken < each {
		d := p.pop(popRequest("popped", "g", 3*time.Second, 0))
		taken += len(d.views)
	}
	for i := range each {
		p.send("later", 0, body("l", i), "DELAY", "5") // 3 s
		p.send("later", 0, body("t", i), "TIMER_DELAY_MS", "3000")
	}
	fill := func(name string) {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return
		}
		defer func() { _ = f.Close() }()
		for block := make([]byte, 64<<10); ; {
			if _, err := f.Write(block); err != nil {
				if block = block[:len(block)/2]; len(block) == 0 {
					return
				}
			}
		}
	}
	fill("ballast")
	full := p.call(remoting.SendMessageV2, sendRequest("full", 0), []byte("x"))
	for begun := time.Now(); full.Code == remoting.Success && time.Since(begun) < time.Minute; {
		full = p.call(remoting.SendMessageV2, sendRequest("popped", 0), []byte("fill"+strings.Repeat("y", 60000)))
	}
	if full.Code == remoting.Success {
		t.Fatal("the disk does not fill")
	}
	stay := time.Now().Add(6 * time.Second)
	within(t, time.Minute, func() bool { return time.Now().After(stay) })
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	came := map[string][]string{} // where each message came from
	note := func(v record.View) {
		if s := strings.TrimRight(string(v.Body()), "x"); !strings.HasPrefix(s, "fill") {
			came[s] = append(came[s], fmt.Sprintf("%s %d/%d, taken back %d times, stored at %d", v.Topic(),
				v.QueueID(), v.QueueOffset(), v.ReconsumeTimes(), v.StoreMS()))
		}
	}
	var at int64
	until := time.Now().Add(60 * time.Second)
	within(t, 2*time.Minute, func() bool {
		d := p.pull(pullRequest("later", 0, at, "*", 0))
		for _, v := range d.views {
			note(v)
		}
		at += int64(len(d.views))
		d2 := p.pop(popRequest("popped", "g", 5*time.Minute, 0))
		for _, v := range d2.views {
			note(v)
		}
		return len(came) >= 3*each || time.Now().After(until) // what has not come then is lost
	})
	twice := map[string]int{}
	for i := range each {
		for _, kind := range []string{"p", "l", "t"} {
			name := fmt.Sprint(kind, i)
			if n := len(came[name]); n == 0 {
				t.Errorf("%s is lost", name)
			} else if n > 1 {
				twice[kind]++
				t.Logf("%s came as %q", name, came[name])
			}
		}
	}
	if len(twice) > 0 {
		t.Errorf("came more than once: %v of popped, leveled and timed messages\n%s", twice,
			strings.Join(log.lines(), ""))
	}
}
