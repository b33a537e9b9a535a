package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/bits"
	"sync"
	"unsafe"
)

// Return is the NextIndex of an activation on its way back to the head.
const Return int32 = -1

const (
	activationHeader = 24 // kind, seq, tokenIdx, nextIndex, actHash, modelHash, in bytes
	// headFloats is the room, in float32, that a whole encoded activation has in front of its payload.
	headFloats = (lengthSize + activationHeader) / 4
)

// Activation carries the hidden state of one or more positions of a session to stage NextIndex, or back to the head.
//
// ActHash is the sender's business: Seal sets it, Intact compares it. Send transmits the field as it is.
type Activation struct {
	Seq       int32 // session
	TokenIdx  int32 // position of the first row
	NextIndex int32 // stage addressed, or Return
	ActHash   uint32
	ModelHash uint32
	Hidden    []float32 // [rows][hidden], at least one number

	// buf, when set, holds headFloats numbers of room and then Hidden, so that Send needs no copy.
	buf []float32
}

// NewActivation returns an activation whose Hidden has n numbers of unspecified value and whose memory has room for the
// frame's header, so that Send writes it in place. It may come from a pool: see Release.
func NewActivation(n int) *Activation {
	total := n + headFloats
	class := bits.Len(uint(total - 1))
	if class < len(activationPools) {
		if a, _ := activationPools[class].Get().(*Activation); a != nil {
			buf := a.buf[:total]
			*a = Activation{buf: buf, Hidden: buf[headFloats:total:total]}
			return a
		}
		buf := make([]float32, total, 1<<class)
		return &Activation{buf: buf, Hidden: buf[headFloats:total:total]}
	}
	buf := make([]float32, total)
	return &Activation{buf: buf, Hidden: buf[headFloats:]}
}

// activationPools hold released activations by the power of two of their capacity, up to 16 MiB each.
var activationPools [23]sync.Pool

// Release gives the memory of an activation made by NewActivation or returned by Recv back for reuse; the caller must not
// touch it, or Hidden, afterwards. It is optional, and does nothing for other activations.
func (a *Activation) Release() {
	c := cap(a.buf)
	if c == 0 || c&(c-1) != 0 {
		return
	}
	class := bits.Len(uint(c - 1))
	if class >= len(activationPools) {
		return
	}
	activationPools[class].Put(&Activation{buf: a.buf[:c]})
	a.buf, a.Hidden = nil, nil
}

// inPlace reports whether Hidden still lies in buf right behind the room for the header.
func (a *Activation) inPlace() bool {
	return len(a.Hidden) > 0 && len(a.buf) == headFloats+len(a.Hidden) && &a.buf[headFloats] == &a.Hidden[0]
}

// Seal sets ActHash to the hash of Hidden.
func (a *Activation) Seal() { a.ActHash = ActHash(a.Hidden) }

// Intact reports whether Hidden is what ActHash was made from.
func (a *Activation) Intact() bool { return a.ActHash == ActHash(a.Hidden) }

func (*Activation) Kind() Kind { return KindActivation }

func (a *Activation) encode(e *encoder) {
	if len(a.Hidden) == 0 {
		e.fail("Hidden", errors.New("empty"))
		return
	}
	if len(a.Hidden) > (MaxFrame-activationHeader)/4 {
		e.fail("Hidden", errors.New("too long"))
		return
	}
	a.encodeFields(e)
	e.b = appendFloats(e.b, a.Hidden)
}

func (a *Activation) encodeFields(e *encoder) {
	e.i32(a.Seq)
	e.i32(a.TokenIdx)
	e.i32(a.NextIndex)
	e.u32(a.ActHash)
	e.u32(a.ModelHash)
}

// encodeInPlace writes the header into the room before Hidden and returns the whole frame, which is a's own memory. It
// is only for an activation that is inPlace, on a little-endian machine.
func (a *Activation) encodeInPlace() []byte {
	frame := floatBytes(a.buf)
	e := encoder{b: frame[:0]}
	e.u32(uint32(len(frame) - lengthSize))
	e.i32(int32(KindActivation))
	a.encodeFields(&e)
	return frame
}

func (a *Activation) decodeFields(d *decoder) {
	a.Seq = d.i32("Seq")
	a.TokenIdx = d.i32("TokenIdx")
	a.NextIndex = d.i32("NextIndex")
	a.ActHash = d.u32("ActHash")
	a.ModelHash = d.u32("ModelHash")
}

func (a *Activation) decode(d *decoder) {
	a.decodeFields(d)
	payload := d.take("Hidden", len(d.b))
	if d.err != nil {
		return
	}
	if len(payload) == 0 || len(payload)%4 != 0 {
		d.fail("Hidden", errors.New("not a whole number of float32"))
		return
	}
	*a = Activation{Seq: a.Seq, TokenIdx: a.TokenIdx, NextIndex: a.NextIndex, ActHash: a.ActHash, ModelHash: a.ModelHash}
	fresh := NewActivation(len(payload) / 4)
	a.buf, a.Hidden = fresh.buf, fresh.Hidden
	copy(floatBytes(a.Hidden), payload)
	if bigEndian {
		swapFloats(a.Hidden)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ActHash is the CRC-32C of the little-endian bytes of p.
func ActHash(p []float32) uint32 {
	if bigEndian {
		return crc32.Checksum(appendFloats(nil, p), castagnoli)
	}
	return crc32.Checksum(floatBytes(p), castagnoli)
}

// RowHash is the first 8 bytes of the SHA-256 of the little-endian bytes of row, read as a little-endian number.
func RowHash(row []float32) uint64 {
	b := floatBytes(row)
	if bigEndian {
		b = appendFloats(nil, row)
	}
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// floatBytes is the memory of p as bytes, in the machine's own order.
func floatBytes(p []float32) []byte {
	if len(p) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), 4*len(p))
}

// appendFloats appends p in little-endian order.
func appendFloats(b []byte, p []float32) []byte {
	if !bigEndian {
		return append(b, floatBytes(p)...)
	}
	return appendFloatsEach(b, p)
}

// appendFloatsEach is appendFloats for any machine.
func appendFloatsEach(b []byte, p []float32) []byte {
	for _, v := range p {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// swapFloats reverses the bytes of every number.
func swapFloats(p []float32) {
	b := floatBytes(p)
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
}
