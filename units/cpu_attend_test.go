package units

import (
	"math"
	"testing"
)

// TestAttendFold: the denominators of a context so long, with scores so even, that the lanes they are summed in would overflow
// unless they are folded in time. Every kernel set gives the bits of the generic one.
func TestAttendFold(t *testing.T) {
	const context, hd = 1 << 17, 64
	made, err := newTestDevice(t, CPUOptions{Threads: 1}, &genericKernels).NewCache(CacheSpec{Layers: 1, Slots: 1, Context: context, KVHeads: 1, HeadDim: hd})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	c := made.(*cpuCache)
	limbs := &[3][]int8{make([]int8, hd), make([]int8, hd)}
	for pos := range context {
		b, p := c.block(0, 0, 0, pos/blockPositions), pos%blockPositions
		if limbs[0][0] = 0; p%panelRows != 0 {
			limbs[0][0] = -64 // -1; one lane of 16 has nearly all the weight
		}
		c.storeK(b, p, limbs, -14)
		limbs[0][0] = 64 // 1
		c.storeV(b, p, limbs, -14)
	}
	attend := func(kern *kernels, heads int) []float32 {
		q := make([]float32, heads*hd)
		for h := range heads {
			q[h*hd] = 1
		}
		p := &Program{Bufs: []BufSpec{{F32, heads * hd}, {F32, heads * hd}}, Cache: c}
		st := newState(p, kern)
		st.rows = []Row{{Pos: context - 1}}
		st.resize(1)
		copy(st.f32[0], q)
		st.attendRow(&Op{Kind: OpAttend, A: 0, Dst: 1, Heads: heads, KVHeads: 1, HeadDim: hd, Scale: 1}, 0, &scratch{})
		if st.err != nil {
			t.Fatal(st.err)
		}
		return st.f32[1]
	}
	for _, heads := range []int{1, 8} {
		want := attend(&genericKernels, heads)
		for _, kern := range kernelSets() {
			for i, got := range attend(kern, heads) {
				if math.Float32bits(got) != math.Float32bits(want[i]) {
					t.Fatalf("%s, %d heads, channel %d: %v, want %v", kern.name, heads, i, got, want[i])
				}
			}
		}
	}
}
