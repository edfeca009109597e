// SPDX-License-Identifier: Apache-2.0

package vfs

import "fmt"

// FaultError says that bytes of a mapping could not be read or written: the file was cut short, its
// block is bad, or the disk was full below a hole.
type FaultError struct{ Addr uintptr }

func (e *FaultError) Error() string {
	return fmt.Sprintf("vfs: memory fault at %#x: a mapped file is shorter than it was, unreadable, "+
		"or sparse on a full disk", e.Addr)
}

// Fault turns what a goroutine panicked with into an error, when it is a memory fault; nil stays
// nil, and any other panic goes on. It is for code that touches mappings:
//
//	old := debug.SetPanicOnFault(true)
//	defer func() {
//		debug.SetPanicOnFault(old)
//		if e := vfs.Fault(recover()); e != nil {
//			err = e
//		}
//	}()
func Fault(panicked any) error {
	if panicked == nil {
		return nil
	}
	// The runtime's errors for faults alone have an address (runtime/debug.SetPanicOnFault).
	fault, ok := panicked.(interface{ Addr() uintptr })
	if !ok {
		panic(panicked)
	}
	return &FaultError{Addr: fault.Addr()}
}
