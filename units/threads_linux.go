package units

import (
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processors are those that this process may use.
var processors = sync.OnceValue(func() []int32 {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var all []int32
	for cpu := 0; len(all) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			all = append(all, int32(cpu))
		}
	}
	return all
})

// processor is the one that the calling thread runs on, -1 if that cannot be told.
func processor() int32 {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return -1
	}
	return int32(cpu)
}

// moveTo puts the calling thread, which must be locked, on a processor. It is not bound to it: the system may move it on.
func moveTo(cpu int32) {
	var one, all unix.CPUSet
	one.Set(int(cpu))
	for _, c := range processors() {
		all.Set(int(c))
	}
	if unix.SchedSetaffinity(0, &one) == nil {
		unix.SchedSetaffinity(0, &all)
	}
}

// keepFor is how long after a step the next one is waited for.
const keepFor = 100 * time.Millisecond

// keepTick is well below the 10 ms after which the run-time takes its slot from a goroutine in a system call.
const keepTick = 4 * time.Millisecond

// keep holds a slot of the run-time, in a system call that sleeps, while steps keep coming. A process all of whose
// goroutines wait for the network has its monitor thread stopped; with the first system call after that the monitor
// begins to look at everything each 20 microseconds, for milliseconds, and takes the processor from a worker each time.
// A stage waits like that once for each token. While a slot is held the monitor goes on at its slow pace.
func keep(last func() time.Time) {
	for time.Since(last()) < keepFor {
		ts := unix.NsecToTimespec(int64(keepTick))
		unix.Nanosleep(&ts, nil)
		runtime.Gosched()
	}
}
