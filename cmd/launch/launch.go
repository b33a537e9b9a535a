// Package launch runs the build with Vulkan that a static program carries inside.
//
// A static program cannot open the Vulkan library, which needs the system's C library. So scripts/build makes a second
// build of the same command line that is linked with the C library alone, and embeds it in the static one. Where a command
// may use a GPU, the static program puts it into a file in memory, runs it as a child with the same arguments and standard
// streams, passes on signals, and ends as it ends. Where the child cannot run (no /proc, no memory files that may be
// executed, another C library or none), the static program is what it is without: a tool for the processor.
package launch

// Ended is how a child ended.
type Ended struct {
	Code   int    // exit code; 128 and the number of the signal, if a signal ended it
	Signal string // the signal that ended it, or ""
	Crash  bool   // and it is one that a fault of the program raises
}

// supervisedVar tells a child that it has a supervisor, which waits for a byte on startedFile.
const supervisedVar = "DCHAIN_SUPERVISED"
