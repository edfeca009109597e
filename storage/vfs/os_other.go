// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package vfs

// Life is not known.
func (osFS) Life(string) string { return "" }

// Allocate is not offered: the portable ways of allocating are not.
func (f *osFile) Allocate(int64) error { return ErrNotSupported }

func (f *osFile) Zero(from, size int64) error { return f.writeZeros(from, size) }

func (f *osFile) WriteZeros(int64, int64) error { return ErrNotSupported }

func (f *osFile) WriteBehind(int64, int64) error { return nil }

func (f *osFile) ReadAhead(bool) {}

func (f *osFile) Forget(int64, int64) error { return nil }

func (f *osFile) NextData(from int64) int64 { return from }

func (f *osFile) Resident(int64, int64) (bool, error) { return false, ErrNotSupported }

func (f *osFile) Prefetch(int64, int64) error { return nil }

func (m *osMapping) Resident(int, int) (bool, error) { return false, ErrNotSupported }

func (m *osMapping) Populate(int, int) error { return ErrNotSupported }

func (m *osMapping) Detach(int, int) {}

func (m *osMapping) ReadAhead(bool) {}
