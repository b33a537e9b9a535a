package units

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPool counts that every chunk runs once, for callers at the same time and chunks of very different length.
func TestPool(t *testing.T) {
	for threads := 1; threads <= 5; threads++ {
		p := newPool(threads)
		var wg sync.WaitGroup
		for caller := range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				j := newJob()
				for round := range 300 {
					chunks := (round*7 + caller) % 40
					count := make([]atomic.Int32, chunks)
					var inside [8]atomic.Int32
					p.run(j, chunks, func(worker, i int) {
						if worker >= threads || inside[worker].Add(1) != 1 {
							t.Errorf("%d threads: worker %d is used twice at once", threads, worker)
						}
						if (i+round)%50 == 0 {
							time.Sleep(100 * time.Microsecond)
						}
						count[i].Add(1)
						inside[worker].Add(-1)
					})
					for i := range count {
						if n := count[i].Load(); n != 1 {
							t.Errorf("%d threads: chunk %d of %d ran %d times", threads, i, chunks, n)
						}
					}
				}
			}()
		}
		wg.Wait()
		p.close()
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		d, err := newCPU(CPUOptions{Threads: 4}, &genericKernels)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err == nil {
			t.Error("closed twice")
		}
	}
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestRunAllocates holds a step of decoding to a small number of allocations.
func TestRunAllocates(t *testing.T) {
	e := testLayer(t, newTestDevice(t, CPUOptions{Threads: 1}, kernelSets()[0]))
	rows, in, out := []Row{{}}, make([]float32, testHidden), make([]float32, testHidden)
	in[0] = 1
	if n := testing.AllocsPerRun(100, func() {
		if err := e.Run(rows, in, out); err != nil {
			t.Fatal(err)
		}
	}); n > 60 {
		t.Errorf("%v allocations a step", n)
	} else {
		t.Logf("%v allocations a step", n)
	}
}
