package units

import "errors"

// Follower is an Executable that begins a step with what the step before puts out, before the host has seen it: the device does
// not wait for the host between the two. Run must not be called while a step is under way. Like Run, the methods may be called
// from one goroutine at a time.
type Follower interface {
	Executable
	// Begin is Run but for the waiting: when Wait has returned nil, out is filled. Nothing may be under way.
	Begin(rows []Row, in, out []float32) error
	// Follow begins the step after the one under way: the rows are one position further, In of each is the first values of its
	// Out, and there is as much out. It says whether it has: not if the program cannot be followed or a row is at the end of its
	// context, and not if one of the two steps must run by itself.
	Follow(out []float32) bool
	// Wait waits for the step under way, the first of two, and returns what Run does. After an error nothing is under way.
	Wait() error
	// Abandon waits for what is under way and throws it away. What it has stored in the cache must be stored again before it is
	// read.
	Abandon()
}

var (
	errRunning  = errors.New("running a program: it is running already")
	errUnderWay = errors.New("running a program: a step is under way")
	errNoStep   = errors.New("running a program: no step is under way")
)
