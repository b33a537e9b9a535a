package transport

import "fmt"

// Role is the part the sender of a Hello plays on this link.
type Role uint8

const (
	RoleHead  Role = 0
	RoleStage Role = 1 // the side that listens
	RoleHop   Role = 2 // the stage before, dialling its successor
)

func (r Role) String() string {
	switch r {
	case RoleHead:
		return "head"
	case RoleStage:
		return "stage"
	case RoleHop:
		return "hop"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Hello is the first frame each side sends: what it is and what it can hold. The dialling side sends first.
type Hello struct {
	Wire     uint16 // WireVersion
	Numerics uint16 // numerics version
	Role     Role
	Ring     [16]byte // the ring a hop belongs to; zero for the other roles

	Build   string // build of the sender, for people
	Backend string // name of its compute backend

	// The model the sender holds; "" and zero when none is loaded.
	Model         string
	Fingerprint   [32]byte // model fingerprint
	Weights       uint8    // weight format
	First, Last   int32    // layers held, both inclusive; 0 and -1 for none
	Layers        int32    // layers of the whole model
	Hidden        int32    // width of an activation row
	Context       int32    // positions per session
	MaxSessions   int32
	Threads       int32
	CapacityGMACs float64 // measured int8 multiply-adds per second, in 1e9
	MemoryBytes   uint64  // memory the sender offers for weights and cache
	ProbeHash     [32]byte
	TokenizerHash [32]byte
	Watch         bool // a stage that wants to be told the tokens
	Readout       bool // a stage that answers asks where it holds the last layer
}

func (*Hello) Kind() Kind { return KindHello }

func (h *Hello) encode(e *encoder) {
	e.u16(h.Wire)
	e.u16(h.Numerics)
	if h.Role > RoleHop {
		e.fail("Role", fmt.Errorf("unknown %s", h.Role))
	}
	e.u8(uint8(h.Role))
	e.raw(h.Ring[:])
	e.str("Build", h.Build)
	e.str("Backend", h.Backend)
	e.str("Model", h.Model)
	e.raw(h.Fingerprint[:])
	e.u8(h.Weights)
	e.i32(h.First)
	e.i32(h.Last)
	e.i32(h.Layers)
	e.i32(h.Hidden)
	e.i32(h.Context)
	e.i32(h.MaxSessions)
	e.i32(h.Threads)
	e.f64("CapacityGMACs", h.CapacityGMACs)
	e.u64(h.MemoryBytes)
	e.raw(h.ProbeHash[:])
	e.raw(h.TokenizerHash[:])
	e.flag(h.Watch)
	e.flag(h.Readout)
}

func (h *Hello) decode(d *decoder) {
	h.Wire = d.u16("Wire")
	h.Numerics = d.u16("Numerics")
	h.Role = Role(d.u8("Role"))
	if h.Role > RoleHop {
		d.fail("Role", fmt.Errorf("unknown %s", h.Role))
	}
	d.raw("Ring", h.Ring[:])
	h.Build = d.str("Build")
	h.Backend = d.str("Backend")
	h.Model = d.str("Model")
	d.raw("Fingerprint", h.Fingerprint[:])
	h.Weights = d.u8("Weights")
	h.First = d.i32("First")
	h.Last = d.i32("Last")
	h.Layers = d.i32("Layers")
	h.Hidden = d.i32("Hidden")
	h.Context = d.i32("Context")
	h.MaxSessions = d.i32("MaxSessions")
	h.Threads = d.i32("Threads")
	h.CapacityGMACs = d.f64("CapacityGMACs")
	h.MemoryBytes = d.u64("MemoryBytes")
	d.raw("ProbeHash", h.ProbeHash[:])
	d.raw("TokenizerHash", h.TokenizerHash[:])
	h.Watch = d.flag("Watch")
	h.Readout = d.flag("Readout")
}

// Assignment is the head's order to a stage: which layers of which model, and where the results go. It carries no weights.
type Assignment struct {
	Ring        [16]byte // random name of this ring
	Stage       int32    // index of the receiver in the ring; the head is 0, so this starts at 1
	Stages      int32    // stages in the ring, the head not counted
	Model       string
	Fingerprint [32]byte
	Weights     uint8
	First, Last int32 // layers, both inclusive
	Context     int32 // positions per session
	Sessions    int32

	NextAddr        string // host:port of the next stage; "" = results return to the head
	NextFingerprint string // key fingerprint of the next stage
	PrevFingerprint string // key fingerprint of the stage before; "" = the head itself

	Relay     bool // do not dial the next stage: send every result to the head, which passes it on
	ReturnAll bool // results carry every position, not only the last
	Trace     bool // send a Receipt to the head for every activation
}

func (*Assignment) Kind() Kind { return KindAssignment }

func (a *Assignment) encode(e *encoder) {
	e.raw(a.Ring[:])
	e.i32(a.Stage)
	e.i32(a.Stages)
	e.str("Model", a.Model)
	e.raw(a.Fingerprint[:])
	e.u8(a.Weights)
	e.i32(a.First)
	e.i32(a.Last)
	e.i32(a.Context)
	e.i32(a.Sessions)
	e.str("NextAddr", a.NextAddr)
	e.str("NextFingerprint", a.NextFingerprint)
	e.str("PrevFingerprint", a.PrevFingerprint)
	e.flag(a.Relay)
	e.flag(a.ReturnAll)
	e.flag(a.Trace)
}

func (a *Assignment) decode(d *decoder) {
	d.raw("Ring", a.Ring[:])
	a.Stage = d.i32("Stage")
	a.Stages = d.i32("Stages")
	a.Model = d.str("Model")
	d.raw("Fingerprint", a.Fingerprint[:])
	a.Weights = d.u8("Weights")
	a.First = d.i32("First")
	a.Last = d.i32("Last")
	a.Context = d.i32("Context")
	a.Sessions = d.i32("Sessions")
	a.NextAddr = d.str("NextAddr")
	a.NextFingerprint = d.str("NextFingerprint")
	a.PrevFingerprint = d.str("PrevFingerprint")
	a.Relay = d.flag("Relay")
	a.ReturnAll = d.flag("ReturnAll")
	a.Trace = d.flag("Trace")
}

// Ready is a stage's answer to an Assignment once its layers are loaded and checked.
type Ready struct {
	Ring        [16]byte
	Stage       int32
	Relay       bool   // the next stage could not be reached: the head must pass results on
	Detail      string // why, when Relay was not asked for
	Fingerprint [32]byte
	LoadMillis  uint32
	BytesRead   uint64
}

func (*Ready) Kind() Kind { return KindReady }

func (r *Ready) encode(e *encoder) {
	e.raw(r.Ring[:])
	e.i32(r.Stage)
	e.flag(r.Relay)
	e.str("Detail", r.Detail)
	e.raw(r.Fingerprint[:])
	e.u32(r.LoadMillis)
	e.u64(r.BytesRead)
}

func (r *Ready) decode(d *decoder) {
	d.raw("Ring", r.Ring[:])
	r.Stage = d.i32("Stage")
	r.Relay = d.flag("Relay")
	r.Detail = d.str("Detail")
	d.raw("Fingerprint", r.Fingerprint[:])
	r.LoadMillis = d.u32("LoadMillis")
	r.BytesRead = d.u64("BytesRead")
}
