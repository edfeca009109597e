// SPDX-License-Identifier: Apache-2.0

package progress_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

func open(t *testing.T, dir string) *progress.File {
	t.Helper()
	f, err := progress.Open(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func stored(t *testing.T, at record.PhysicalOffset, storeMS int64) record.View {
	t.Helper()
	d := record.Draft{Topic: []byte("orders"), Body: []byte("x")}
	b := make([]byte, d.Size())
	d.Encode(b, record.Place{Physical: at, StoreMS: storeMS})
	v, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSlots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(t, dir)
	if _, _, ok, err := f.Read(3); ok || err != nil {
		t.Errorf("an empty file has a slot: %v %v", ok, err)
	}
	proof := progress.ProofOf(stored(t, 400, 7))
	if err := f.Write(3, progress.Values{5, -1}, proof); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := f.Read(2); ok || err != nil {
		t.Errorf("a slot that was not written: %v %v", ok, err)
	}
	values, got, ok, err := open(t, dir).Read(3)
	if want := (progress.Values{5, -1}); values != want || got != proof || !ok || err != nil {
		t.Errorf("read %v %v %v %v, want %v %v", values, got, ok, err, want, proof)
	}
	if err := f.Write(3, progress.Values{}, progress.Proof{}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := f.Read(3); ok || err != nil {
		t.Errorf("a slot that was cleared: %v %v", ok, err)
	}
}

// TestTornSlot damages each byte of a slot in turn: none is believed.
func TestTornSlot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(t, dir)
	if err := f.Write(0, progress.Values{1 << 40, 2, 3}, progress.Proof{At: 9, Sum: 1}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, progress.FileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 80 {
		torn := append([]byte(nil), whole...)
		torn[i] ^= 0x40
		if err := os.WriteFile(path, torn, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, ok, err := f.Read(0); ok || err != nil {
			t.Errorf("byte %d is wrong and the slot is believed: %v", i, err)
		}
	}
}

func TestProof(t *testing.T) {
	t.Parallel()
	v := stored(t, 400, 7)
	p := progress.ProofOf(v)
	if !p.Holds(v, true) {
		t.Error("it does not hold for its own record")
	}
	if p.Holds(stored(t, 400, 8), true) || p.Holds(stored(t, 500, 7), true) ||
		p.Holds(record.View{}, false) {
		t.Error("it holds for another record")
	}
	if !(progress.Proof{}).Holds(record.View{}, false) {
		t.Error("no proof asks for a record")
	}
}
