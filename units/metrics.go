package units

import "sync/atomic"

// Metrics are the counters of this process, over all its devices.
var Metrics Counters

// Counters count what has been checked and what was found. They only grow, and may be read at any time.
type Counters struct {
	Gates     atomic.Int64 // devices compared with the reference before use
	Audits    atomic.Int64 // runs of which an operation was recomputed
	WrongBits atomic.Int64 // found by either
	Lost      atomic.Int64 // devices given up by their driver
	Demotions atomic.Int64 // devices left for the next best
	Unchained atomic.Int64 // devices whose dispatches do not begin in order
	Abandoned atomic.Int64 // steps that were run ahead and thrown away
}

// Each calls f with the name and value of every counter, in the manner of Prometheus.
func (c *Counters) Each(f func(name string, value int64)) {
	f("dchain_gates_total", c.Gates.Load())
	f("dchain_audits_total", c.Audits.Load())
	f("dchain_wrong_bits_total", c.WrongBits.Load())
	f("dchain_devices_lost_total", c.Lost.Load())
	f("dchain_demotions_total", c.Demotions.Load())
	f("dchain_devices_unchained_total", c.Unchained.Load())
	f("dchain_steps_abandoned_total", c.Abandoned.Load())
}
