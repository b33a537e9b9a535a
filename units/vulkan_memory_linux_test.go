package units

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVulkanOutOfMemory: a matrix for which there is no room leaves nothing of itself on the device. A software renderer has as
// much room as the process, which is bounded in a process of its own.
func TestVulkanOutOfMemory(t *testing.T) {
	const child = "DCHAIN_TEST_OUT_OF_MEMORY"
	d := vulkanTest(t, VulkanOptions{})
	if !d.info.CPU() {
		t.Skip("the memory of a GPU is not for tests to fill")
	}
	if os.Getenv(child) == "" {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), child+"=1", "GOGC=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	before := d.vk.MemoryUsed()
	part := min(d.info.MaxRange, d.info.MaxAllocation)
	limit := uint64(statmBytes(t, 0)) + uint64(4*part+part/2)
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	const k = 4096
	if _, err := d.NewLinear("too large", int(8*part/k), k, Int8); err == nil {
		t.Error("there was room")
	}
	if used := d.vk.MemoryUsed(); used != before {
		t.Errorf("%d bytes are in use, %d before", used, before)
	}
}
