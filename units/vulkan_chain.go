package units

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Chained dispatches (shaders/chain.glsl): those of a step of one row begin without a barrier between them and await each other
// in their shaders, so that one loads its weights while the one before it still computes.
//
// A dispatch awaits the one before it alone, which has awaited the one before that: where it goes on all of them have ended,
// and it may write what they read. What it reads before that must not be written by any of them.

// chain is the state of a recording.
type chain struct {
	on    bool // dispatches that can await each other do
	last  int  // the workgroups of the last dispatch, if all since the last barrier await the one before them; or 0
	taken int  // counters
}

// surplus is added to the workgroups that are awaited. Tests raise it, so that they are awaited in vain.
var surplus = 0

// early is for bindings of which a chained dispatch reads something before it awaits the one before it. Parameters, which no
// dispatch writes, need not be.
func early(a access) access {
	a.early = true
	return a
}

// chained is dispatch for a shader that ends its push constants as chain.glsl says, which are added here.
func (r *recording) chained(s shader, push []byte, x, y, z int, uses ...access) {
	barrier, link := r.link(x*y*z, uses)
	r.put(s, barrier, append(push, link...), x, y, z, uses)
}

// link is whether a barrier must stand before a dispatch of that many workgroups that can be chained, and the push constants
// that say what it awaits and counts.
func (r *recording) link(workgroups int, uses []access) (barrier bool, push []byte) {
	const uncounted = uint32(math.MaxUint32)
	c := &r.chain
	follows := c.on && c.last > 0 && c.taken < r.exec.counters && !r.tooEarly(uses)
	barrier = !follows && r.needsBarrier(uses)
	begins := barrier || len(r.pending) == 0
	if !c.on || c.taken == r.exec.counters || !follows && !begins {
		c.last = 0
		return barrier, pushConstants(0, 0, uncounted)
	}
	awaited, count := 0, 0
	if follows {
		awaited, count = c.taken-1, c.last+surplus
	}
	push = pushConstants(awaited, count, c.taken)
	c.last = workgroups
	c.taken++
	return barrier, push
}

// tooEarly says whether a dispatch since the last barrier writes what another reads before it awaits anything.
func (r *recording) tooEarly(uses []access) bool {
	for i := range uses {
		if !uses[i].early {
			continue
		}
		for j := range r.pending {
			if r.pending[j].writes && r.pending[j].conflicts(&uses[i]) {
				return true
			}
		}
	}
	return false
}

// stalled says whether a chained dispatch of the step has awaited the one before it in vain.
func (l *lane) stalled() bool { return stalled(l.down.Bytes()) }

// stalled is that of the status words.
func stalled(words []byte) bool { return binary.LittleEndian.Uint32(words[4:]) != 0 }

// unchain has steps recorded with barriers from now on: a dispatch has awaited one that the device had not begun.
func (d *vulkanDevice) unchain() {
	if d.unchained.Swap(true) {
		return
	}
	Metrics.Unchained.Add(1)
	if d.note != nil {
		d.note(fmt.Sprintf("%s does not begin its work in order: steps of one row are slower", d.info.Name))
	}
}
