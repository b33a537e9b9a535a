package units

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// TestWeightMemory: pieces are zero, aligned, and none reaches into another, small ones in shared regions and large ones
// of their own. They stay while their regions are held, whatever the collector does.
func TestWeightMemory(t *testing.T) {
	var m weightMemory
	const limit = sharedBytes / 4
	sizes := []int{1, 63, 64, 65, 4096, 1 << 20, limit, limit + 1, 7, limit - 1, limit, limit, limit, 5}
	var pieces [][]uint8
	var regions []*region
	for _, n := range sizes {
		b, r, err := m.bytes(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != n || cap(b) != n && n <= limit {
			t.Fatalf("%d bytes: got %d of %d", n, len(b), cap(b))
		}
		if at := uintptr(unsafe.Pointer(&b[0])); at%memoryAlign != 0 {
			t.Errorf("%d bytes lie at %#x", n, at)
		}
		pieces, regions = append(pieces, b), append(regions, r)
	}
	for i, b := range pieces {
		for j, v := range b {
			if v != 0 {
				t.Fatalf("piece %d: byte %d was %d before it was written", i, j, v)
			}
			b[j] = uint8(i + 1)
		}
	}
	runtime.GC()
	for i, b := range pieces {
		for j, v := range b {
			if v != uint8(i+1) {
				t.Fatalf("piece %d: byte %d belongs to another piece", i, j)
			}
		}
	}
	runtime.KeepAlive(regions)
}

// TestWeightsAreGivenBack: matrices, large and small, and caches leave their memory when they are closed, without a collection.
func TestWeightsAreGivenBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the resident memory is read from /proc")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	d := newTestDevice(t, CPUOptions{Threads: 1}, &genericKernels)
	s := &scope{Device: d}
	before := settledBytes(t)
	const k = 4096
	rows := make([]float32, k<<10)
	for _, n := range []int{48 << 10, 1 << 10, 1 << 10, 1 << 10} {
		l, err := s.NewLinear("weights", n, k, Int8)
		if err != nil {
			t.Fatal(err)
		}
		for first := 0; first < n; first += 1 << 10 {
			if err := l.PutRows(first, rows); err != nil {
				t.Fatal(err)
			}
		}
	}
	const held = (48 + 3) << 10 * k
	if n := residentBytes(t) - before; n < held {
		t.Fatalf("%d bytes of weights, %d resident", held, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The last region of small ones is kept for the next.
	if n := residentBytes(t) - before; n > 64<<20 {
		t.Errorf("%d bytes are resident after closing", n)
	}
}

// TestRegionIsGivenBack: memory that nothing refers to goes back to the system.
func TestRegionIsGivenBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the resident memory is read from /proc")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const size = 256 << 20
	before := settledBytes(t)
	r, err := newRegion(size, true)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < size; i += 4096 {
		r.data[i] = 1
	}
	if held := residentBytes(t) - before; held < size*9/10 {
		t.Fatalf("%d bytes written, %d resident", size, held)
	}
	runtime.KeepAlive(r)
	r = nil
	for start := time.Now(); residentBytes(t)-before > size/2; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Since(start) > 10*time.Second {
			t.Fatalf("%d bytes are still resident", residentBytes(t)-before)
		}
	}
}

// settledBytes is what is resident when all that tests before have left is gone: cleanups run some time after a collection.
func settledBytes(t *testing.T) int {
	t.Helper()
	last := -1
	for same := 0; same < 5; time.Sleep(10 * time.Millisecond) {
		debug.FreeOSMemory()
		if now := residentBytes(t); now/(1<<20) == last/(1<<20) {
			same++
		} else {
			last, same = now, 0
		}
	}
	return last
}

func residentBytes(t *testing.T) int { return statmBytes(t, 1) }

// statmBytes is a field of /proc/self/statm: 0 is all that is mapped, 1 what is resident.
func statmBytes(t *testing.T, field int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[field])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
