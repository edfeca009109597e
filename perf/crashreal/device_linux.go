// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// deviceSize is the length of an image in bytes: xfs does not take less than 300 MB.
const deviceSize = 1 << 30

// device is a file system of its own in an image file, whose disk can be pulled out.
type device struct {
	kind  string // ext4 or xfs
	image string
	point string // where it is mounted
}

// newDevice makes a file system and mounts it below dir. The error says why it cannot be had here.
func newDevice(kind, dir string) (*device, error) {
	d := &device{kind: kind, image: filepath.Join(dir, kind+".img"), point: filepath.Join(dir, kind)}
	if err := os.MkdirAll(d.point, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(deviceSize), f.Close())
	}
	if err == nil {
		err = command("mkfs."+kind, "-q", d.image)
	}
	if err == nil {
		err = d.mount()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.image))
	}
	return d, nil
}

func command(name string, arguments ...string) error {
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (d *device) mount() error { return command("mount", "-o", "loop", d.image, d.point) }

// shutdownNoFlush is FS_IOC_SHUTDOWN with the flag that not even the journal is written: from this
// moment nothing reaches the image any more, as if the device were pulled out. What the file system
// had sent to it before is there, what only lay in memory is not.
const (
	fsShutdown      = 0x8004587d
	shutdownNoFlush = 2
)

// yank pulls the device out.
func (d *device) yank() error {
	f, err := os.Open(d.point)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	flag := uint32(shutdownNoFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), fsShutdown, uintptr(unsafe.Pointer(&flag)))
	if errno != 0 {
		return fmt.Errorf("shutdown of %s: %w", d.kind, errno)
	}
	return nil
}

// plug mounts what is on the image again; its journal is replayed. Nobody has files open.
func (d *device) plug() error {
	if err := d.unmount(); err != nil {
		return err
	}
	return d.mount()
}

func (d *device) unmount() error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); ; <-tick.C {
		err := syscall.Unmount(d.point, 0)
		if err == nil || errors.Is(err, syscall.EINVAL) || time.Now().After(end) {
			return err
		}
	}
}

// close gives the device back.
func (d *device) close() error { return errors.Join(d.unmount(), os.Remove(d.image)) }
