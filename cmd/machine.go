package cmd

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"dchain/plan"
)

// freeMemory is what this machine can give without swapping, in bytes; 0 where the system does not tell.
func freeMemory() int64 { return procValue("/proc/meminfo", "MemAvailable:") << 10 }

// peakMemory is the most memory this process has held since it started or since resetPeakMemory, in bytes; 0 where the
// system does not tell.
func peakMemory() int64 { return peakMemoryOf("self") }

// peakMemoryOf is the same for another process.
func peakMemoryOf(pid string) int64 { return procValue("/proc/"+pid+"/status", "VmHWM:") << 10 }

// resetPeakMemory starts a new measurement, where the system can.
func resetPeakMemory() { os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// addressSpace is what the Go runtime, the threads of the C library and a GPU's driver reserve together, though they use little
// of it, in bytes. Without it the runtime ends the process in ways that no error tells.
const addressSpace = 3 << 30

// noteAddressSpace says that the address space is limited to less than that.
func (a *app) noteAddressSpace() {
	if most := procValue("/proc/self/limits", "Max address space"); most > 0 && most < addressSpace {
		a.ui.note("the address space is limited to %s (ulimit -v): with less than %s this program may crash", plan.Bytes(most), plan.Bytes(addressSpace))
	}
}

// procValue reads the number of a line such as "MemAvailable:  123 kB"; 0 where there is none.
func procValue(file, key string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return 0
}

// checkMemory refuses a load that would not fit into the memory of a device, in bytes, before anything is read; 0 is not
// known.
func checkMemory(have int64, device string, need plan.Need, layers int, head bool) error {
	if want := need.Total(layers, head); have > 0 && want > have {
		return &plan.FitError{What: plan.Plural(layers, "layer") + " on " + device, Need: want, Have: have, Of: need}
	}
	return nil
}

// reachable is the address of a listener as another machine can use it: where it listens on every interface, the first
// address of an interface that is up, else the host's name.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsUnspecified() {
		return addr.String()
	}
	if name := ownAddress(); name != "" {
		return net.JoinHostPort(name, port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func ownAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return hostName()
	}
	six := ""
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			return n.IP.String()
		case six == "":
			six = n.IP.String()
		}
	}
	if six != "" {
		return six
	}
	return hostName()
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
