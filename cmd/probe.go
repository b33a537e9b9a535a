package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dchain/plan"
	"dchain/units"
	"dchain/units/vk"
)

type probeFlags struct {
	model   string
	weights string
	threads int
	json    bool
	backendFlags
}

func (a *app) probeCommand() *cobra.Command {
	var f probeFlags
	c := &cobra.Command{
		Use:   "probe",
		Short: "Check this machine's arithmetic and measure its capacity",
		Long: `probe compares every backend of this machine, the tiers of a GPU and the sets of kernels of the processor, with the plain
reference, bit for bit, at the shapes of a model, and measures the capacity that plans count with. The probe hash is over the bits of one fixed product: it is the same on
every machine and backend of a numerics version, and stages whose hash differs are refused.

The environment variable DCHAIN_CPU, here as for every command, allows one set of kernels alone: generic, avx2, avxvnni,
avx512vnni, amx, neon or sdot.

Exit code 1: no backend passes.`,
		Example: `  dchain probe
  dchain probe --model Qwen/Qwen2.5-0.5B-Instruct --threads 4 --json`,
		Args: atMost(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return a.probe(c.Context(), &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.model, "model", "", "the model whose shapes to try (default builtin)")
	fl.StringVar(&f.weights, "weights", "int8", "weight format: int8 or int8x2")
	fl.IntVar(&f.threads, "threads", 0, "threads to measure with (default: the cores)")
	f.backendFlags.register(fl)
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// probeReport is the JSON of probe.
type probeReport struct {
	Model         string           `json:"model"` // whose shapes were tried
	Numerics      int              `json:"numerics"`
	Threads       int              `json:"threads"`
	Vulkan        []probeVulkan    `json:"vulkan"`
	NoVulkan      string           `json:"no_vulkan,omitempty"`      // why there is none
	RefusedVulkan []string         `json:"refused_vulkan,omitempty"` // devices that cannot be used, and why
	Devices       []probeDevice    `json:"devices"`
	Used          string           `json:"used"` // backend, "" when none passes
	ProbeHash     string           `json:"probe_hash,omitempty"`
	CapacityGBps  float64          `json:"capacity_gbps"`  // the score of a plan
	CapacityGMACs float64          `json:"capacity_gmacs"` // int8 multiply-adds per second when decoding, in 1e9
	PrefillGMACs  float64          `json:"prefill_gmacs"`
	BandwidthGBps float64          `json:"bandwidth_gbps"`
	FreeMemory    int64            `json:"free_memory_bytes"` // 0 where the system does not tell
	Counters      map[string]int64 `json:"counters"`          // units.Metrics
}

// probeDevice is a set of kernels and the gates it passed.
type probeDevice struct {
	kernelGate
	Gates []probeGate `json:"gates"`
}

// probeVulkan is a device that --device names.
type probeVulkan struct {
	Index       int                `json:"index"`
	Name        string             `json:"name"`
	Type        string             `json:"type"`
	Driver      string             `json:"driver"`
	Vulkan      string             `json:"vulkan"`
	MemoryBytes int64              `json:"memory_bytes"`
	Tiers       []units.VulkanTier `json:"tiers"`
}

// listVulkan fills in the Vulkan devices.
func (r *probeReport) listVulkan() {
	devices, err := vk.List()
	if err != nil {
		r.NoVulkan = err.Error()
	}
	for _, err := range vk.Refused() {
		r.RefusedVulkan = append(r.RefusedVulkan, err.Error())
	}
	for i := range devices {
		d := &devices[i]
		r.Vulkan = append(r.Vulkan, probeVulkan{d.Index, d.Name, d.Type, d.DriverName, fmt.Sprintf("%d.%d", d.API[0], d.API[1]), d.Memory, units.VulkanTiers(d)})
	}
}

type probeGate struct {
	Op     string   `json:"op"`
	Checks int      `json:"checks"`
	Values int      `json:"values"` // results compared bit for bit
	Shapes []string `json:"shapes"`
}

func (a *app) probe(ctx context.Context, f *probeFlags) error {
	mode, err := units.ParseWeightMode(f.weights)
	if err != nil {
		return usageError("--weights: %w", err)
	}
	if f.threads < 0 {
		return usageError("--threads: %d is negative", f.threads)
	}
	if err := f.backendFlags.check(); err != nil {
		return err
	}
	m, err := a.openModel(ctx, f.model)
	if err != nil {
		return err
	}
	defer m.Close()
	r := probeReport{Model: modelName(f.model), Numerics: units.NumericsVersion, Threads: cmp.Or(f.threads, units.DefaultThreads()), FreeMemory: freeMemory()}
	shapes := gateShapes(&m.Spec, mode, true, true, stageGateContext)
	if f.backend == "cpu" {
		r.NoVulkan = "not looked for with --backend cpu"
	} else {
		r.listVulkan()
	}
	backends, err := a.backends(&f.backendFlags, units.CPUOptions{Threads: r.Threads}, anyMemory)
	if err != nil {
		return err
	}
	for _, b := range backends {
		device, g, err := gateBackend(ctx, b, shapes)
		if err != nil {
			return err
		}
		r.Devices = append(r.Devices, probeDevice{kernelGate: g, Gates: gatesByOp(g.report)})
		if device == nil {
			continue
		}
		if r.Used == "" {
			err = r.measure(device, b.name)
		}
		if err = errors.Join(err, ctx.Err(), device.Close()); err != nil {
			return err
		}
	}
	r.Counters = map[string]int64{}
	units.Metrics.Each(func(name string, value int64) { r.Counters[name] = value })
	if f.json {
		err = a.ui.json(r)
	} else {
		err = a.showProbe(&r)
	}
	if err == nil && r.Used == "" {
		err = fmt.Errorf("%s: %s", nothingComputes(r.Devices[0].Wrong), r.Devices[0].Error)
	}
	return err
}

// measure fills in what the backend that is going to be used can do.
func (r *probeReport) measure(device units.Device, kernels string) error {
	p, err := units.Probe(device)
	if err != nil {
		return err
	}
	r.Used, r.ProbeHash = kernels, fmt.Sprintf("%x", p.Hash)
	r.CapacityGBps, r.CapacityGMACs, r.PrefillGMACs = scoreOf(p.GMACs), p.GMACs, p.PrefillGMACs
	r.BandwidthGBps, err = units.MemoryBandwidth(r.Threads)
	return err
}

// gatesByOp sums the checks of each operation, in the order they were made.
func gatesByOp(report units.GateReport) []probeGate {
	var gates []probeGate
	at := map[units.OpKind]int{}
	for _, c := range report.Checks {
		i, ok := at[c.Op]
		if !ok {
			i = len(gates)
			at[c.Op] = i
			gates = append(gates, probeGate{Op: c.Op.String()})
		}
		if !slices.Contains(gates[i].Shapes, c.Shape) {
			gates[i].Shapes = append(gates[i].Shapes, c.Shape)
		}
		gates[i].Checks++
		gates[i].Values += c.Values
	}
	return gates
}

func (a *app) showProbe(r *probeReport) error {
	rows := make([][]string, len(r.Devices))
	for i, d := range r.Devices {
		var ops []string
		for _, g := range d.Gates {
			ops = append(ops, g.Op)
		}
		state := "not used"
		switch {
		case d.Wrong:
			state = "WRONG: " + d.Error
		case !d.Passed:
			state = "not usable: " + d.Error
		case d.Kernels == r.Used:
			state = "used"
		}
		rows[i] = []string{d.Device, fmt.Sprint(len(d.report.Checks)), strings.Join(ops, " "), fmt.Sprintf("%.2f", d.Seconds), oneLine(state)}
	}
	if err := a.ui.table([]string{"device", ">gates passed", "operations", ">s", ""}, rows); err != nil || r.Used == "" {
		return err
	}
	memory := ""
	if r.FreeMemory > 0 {
		memory = plan.Bytes(r.FreeMemory).String()
	}
	if err := a.ui.printf("\n"); err != nil {
		return err
	}
	var vulkan []string
	if r.NoVulkan != "" {
		vulkan = append(vulkan, r.NoVulkan)
	}
	for _, d := range r.Vulkan {
		vulkan = append(vulkan, fmt.Sprintf("%d: %s (%s, %s, %v)", d.Index, d.Name, d.Type, plan.Bytes(d.MemoryBytes), d.Tiers))
	}
	for _, why := range r.RefusedVulkan {
		vulkan = append(vulkan, "not usable: "+why)
	}
	return a.ui.pairs([][2]string{
		{"vulkan", strings.Join(vulkan, "; ")},
		{"shapes of", r.Model},
		{"threads", fmt.Sprint(r.Threads)},
		{"capacity", fmt.Sprintf("%.1f GB/s of int8 weights decoding (%.1f GMAC/s; prefill %.1f GMAC/s)", r.CapacityGBps, r.CapacityGMACs, r.PrefillGMACs)},
		{"memory", fmt.Sprintf("%.1f GB/s read", r.BandwidthGBps)},
		{"free memory", memory},
		{"numerics", fmt.Sprint(r.Numerics)},
		{"probe hash", r.ProbeHash},
	})
}
