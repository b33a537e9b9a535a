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
func freeMemory() int64 { return procValue("/proc/meminfo", "MemAvailable:") }

// peakMemory is the most memory this process has held since it started or since resetPeakMemory, in bytes; 0 where the
// system does not tell.
func peakMemory() int64 { return peakMemoryOf("self") }

// peakMemoryOf is the same for another process.
func peakMemoryOf(pid string) int64 { return procValue("/proc/"+pid+"/status", "VmHWM:") }

// resetPeakMemory starts a new measurement, where the system can.
func resetPeakMemory() { os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// procValue reads a line such as "MemAvailable:  123 kB".
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
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}

// checkMemory refuses a load that would not fit into the memory of a device, in bytes, before anything is read; 0 is not
// known.
func checkMemory(have int64, device string, need plan.Need, layers int, head bool) error {
	if want := need.Total(layers, head); have > 0 && want > have {
		return &plan.FitError{What: strconv.Itoa(layers) + " layers on " + device, Need: want, Have: have}
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
