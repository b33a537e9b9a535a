package stage

import (
	"math"
	"time"
)

// crowd tells from the last batches how many sessions the next one is worth waiting for. Sessions that decode come back
// for every token, at nearly the same time; a batch that leaves without one of them costs that session a whole round, and
// reads the weights once more.
//
// Where several machines compute, the sessions go round in as many groups, so that each machine has one to work on. They
// form at the readout, wherever that is: all sessions pass through it, and it waits up to a round; a stage waits less, for
// sessions that left the readout or the stage before together. If both waited as long, each would wait for what the other
// holds.
type crowd struct {
	groups int           // 0 is 1
	share  time.Duration // of a round that a batch waits: 1/share
	most   time.Duration // and at most this

	batches int
	last    map[int32]visit
	round   time.Duration // of the quickest session of the last batch to which one came back
	vain    bool          // the last batch that waited did so for a session that did not come
}

// visit is the last batch a session took part in.
type visit struct {
	batch int
	at    time.Time
}

// How long a stage waits, and the readout of a ring.
const (
	passingShare, passingMost = 4, 50 * time.Millisecond
	meetingShare, meetingMost = 1, 2 * time.Second
)

const (
	retry    = 8                // batches after which one waits in spite of vain
	shortest = time.Millisecond // what comes together comes within this
)

// meets makes a stage wait like the readout if it is that of a ring.
func (c *crowd) meets(reads bool) {
	c.share, c.most = passingShare, passingMost
	if reads && c.groups > 1 {
		c.share, c.most = meetingShare, meetingMost
	}
}

// expect is the number of sessions to wait for.
func (c *crowd) expect() int {
	groups := max(1, c.groups)
	active := 0
	for id, v := range c.last {
		if c.batches-v.batch < 2*groups {
			active++
		} else {
			delete(c.last, id)
		}
	}
	return max(1, (active+groups-1)/groups)
}

// full says whether a batch of so many sessions leaves the others to another group.
func (c *crowd) full(sessions int) bool { return c.groups > 1 && sessions >= c.expect() }

// patience is how long a batch may wait.
func (c *crowd) patience() time.Duration {
	p := min(c.most, c.round/c.share)
	if c.vain && c.batches%retry != 0 {
		p = min(p, shortest)
	}
	return p
}

// waited notes whether those came that a batch waited for.
func (c *crowd) waited(came bool) { c.vain = !came }

// ran notes that a batch of these sessions was computed.
func (c *crowd) ran(sessions map[int32]bool) {
	if c.last == nil {
		c.last = map[int32]visit{}
	}
	c.batches++
	now := time.Now()
	shortest := time.Duration(math.MaxInt64)
	for id := range sessions {
		if v, ok := c.last[id]; ok {
			shortest = min(shortest, now.Sub(v.at))
			c.round = shortest
		}
		c.last[id] = visit{c.batches, now}
	}
}

// steady says that the last batch was of these sessions, but for those that have ended.
func (c *crowd) steady(sessions map[int32]bool) bool {
	again := 0
	for id, v := range c.last {
		if v.batch == c.batches {
			if !sessions[id] {
				return false
			}
			again++
		}
	}
	return again == len(sessions)
}

// forget drops a session that has ended.
func (c *crowd) forget(session int32) { delete(c.last, session) }

// Groups is in how many groups the sessions of a ring that decode go round: one for each of its stages. own says that
// the head has layers too, which makes two beside a single stage.
func Groups(stages int, own bool) int {
	if own {
		return max(2, stages)
	}
	return stages
}
