package cmd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"dchain/plan"
	"dchain/units/vk"
)

// A device of its own memory is judged by that, one that shares the machine's by what is free of it.
func TestVulkanMemory(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		kind            string
		own, free, want int64
	}{
		{kind: "discrete", own: 140 * gib, free: 2 * gib, want: 140 * gib},
		{kind: "discrete", own: 0, free: 2 * gib, want: 1},
		{kind: "integrated", own: 16 * gib, free: 2 * gib, want: 2 * gib},
		{kind: "cpu", own: 2 * gib, free: 8 * gib, want: 2 * gib},
		{kind: "cpu", own: 2 * gib, free: 0, want: 2 * gib}, // the system does not tell
	} {
		if got := vulkanMemory(&vk.DeviceInfo{Type: c.kind}, c.own, c.free); got != c.want {
			t.Errorf("%s device of %d bytes, %d free: %d, want %d", c.kind, c.own, c.free, got, c.want)
		}
	}
}

func TestCheckMemory(t *testing.T) {
	need := plan.Need{Layers: 4, Limbs: 1, Layer: plan.Tensors{Weights: 1000}, KVPosition: 1, Context: 1, Sessions: 1}
	want := need.Total(4, false)
	if err := checkMemory(want, "the GPU", need, 4, false); err != nil {
		t.Error(err)
	}
	if err := checkMemory(0, "the GPU", need, 4, false); err != nil {
		t.Errorf("memory that is not known: %v", err)
	}
	if err := checkMemory(want-1, "the GPU", need, 4, false); err == nil || !strings.Contains(err.Error(), "4 layers on the GPU") {
		t.Errorf("a byte less than is needed: %v", err)
	}
}

// Only a command that may use a GPU is left to the build with Vulkan, and not a stage whose parent computes here.
func TestGPUBackend(t *testing.T) {
	a := &app{}
	for _, c := range []struct{ args, want string }{
		{"generate", "auto"},
		{"generate --backend vulkan-lut", "vulkan-lut"},
		{"generate --backend cpu", ""},
		{"tokenize", ""},
		{"version", ""},
		{"serve-stage --gated-kernels avx2", ""},
		{"serve-stage --gated-kernels vulkan-dp4a", "auto"},
	} {
		args := strings.Fields(c.args)
		command, flags, err := a.root().Find(args)
		if err == nil {
			err = command.ParseFlags(flags)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := gpuBackend(command); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

// A GPU that nobody has asked for makes way for the processor when it has no room or is lost, and for nothing else.
func TestStandIn(t *testing.T) {
	full := fmt.Errorf("reserving: %w", &vk.Error{Call: "vkAllocateMemory", Result: -2})
	lost := fmt.Errorf("uploading: %w", &vk.Error{Call: "vkQueueSubmit", Result: -4})
	auto := backendFlags{"auto", firstDevice}
	for _, c := range []struct {
		f    backendFlags
		err  error
		want bool
	}{
		{auto, full, true}, {auto, lost, true}, {auto, errors.New("no such tensor"), false}, {auto, nil, false},
		{backendFlags{"vulkan", firstDevice}, full, false}, {backendFlags{"auto", 0}, full, false}, {backendFlags{"cpu", firstDevice}, full, false},
	} {
		if got := c.f.standIn(c.err); got != c.want {
			t.Errorf("%+v, %v: %v", c.f, c.err, got)
		}
	}
}
