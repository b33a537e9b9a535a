package cmd

import (
	"strings"
	"testing"

	"dchain/plan"
	"dchain/transport"
)

// Stages of --spawn take the GPUs by turns, after the head if that has layers, and gate those that the head has not.
func TestSpawnDevices(t *testing.T) {
	first := []plan.Range{{First: 0, Last: 1}, {First: 2, Last: 3}, {First: 4, Last: 5}}
	later := []plan.Range{{First: 2, Last: 3}, {First: 4, Last: 5}, {First: 6, Last: 7}}
	gated, own := "--gated-kernels vulkan-dp4a", "--backend vulkan-dp4a"
	for _, c := range []struct {
		devices []int
		ranges  []plan.Range
		want    []string
	}{
		{nil, first, []string{gated, gated, gated}},
		{[]int{1}, later, []string{"--device 1 " + gated, "--device 1 " + gated, "--device 1 " + gated}},
		{[]int{0, 2}, first, []string{"--device 0 " + gated, "--device 2 " + own, "--device 0 " + gated}},
		{[]int{2, 0}, later, []string{"--device 0 " + own, "--device 2 " + gated, "--device 0 " + own}},
	} {
		o := spawnOptions{kernels: "vulkan-dp4a", devices: c.devices, ranges: c.ranges}
		for i, want := range c.want {
			if got := strings.Join(o.backendArgs(i), " "); got != want {
				t.Errorf("devices %v, layers %v, stage %d: %s, want %s", c.devices, c.ranges, i+1, got, want)
			}
		}
	}
}

// The last child reads out, unless the head does.
func TestSpawnReadout(t *testing.T) {
	o := spawnOptions{ranges: make([]plan.Range, 2)}
	if o.reads(0) || !o.reads(1) {
		t.Error("not the last child alone reads out")
	}
	if o.returnAll = true; o.reads(0) || o.reads(1) {
		t.Error("a child reads out beside the head")
	}
}

// The memory that a head must have holds the readout where that is its own: not where the last stage has told that it reads out,
// nor where a spawned one does so on another GPU.
func TestFitOfReadout(t *testing.T) {
	var a app
	m, err := a.openModel(t.Context(), "../testdata/tales-qwen2")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range []struct {
		name    string
		spawn   int
		alike   []int
		readout bool
		returns bool
		layers  int // on the head's device
		want    bool
	}{
		{name: "peers", readout: true, want: true},
		{name: "peers that read out"},
		{name: "children on the processor", spawn: 2, layers: 8, want: true},
		{name: "children on two GPUs", spawn: 2, alike: []int{0, 1}, layers: 4},
		{name: "children on two GPUs, all logits wanted", spawn: 2, alike: []int{0, 1}, layers: 4, returns: true, want: true},
		{name: "three children on two GPUs", spawn: 3, alike: []int{0, 1}, layers: 5, want: true},
	} {
		req := &clusterRequest{layers: plan.None, peers: make([]transport.PeerAddr, 1-min(c.spawn, 1))}
		req.spawn = c.spawn
		cl := &cluster{app: &a, req: req, model: m, positions: 64}
		needs := clusterNeeds{returnAll: c.returns}
		least := cl.need(needs).Total(c.layers, c.want)
		if err := cl.checkFit(needs, least, "it", c.alike, c.readout); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := cl.checkFit(needs, least-1, "it", c.alike, c.readout); err == nil {
			t.Errorf("%s: a byte less is enough", c.name)
		}
	}
}
