package units

import "fmt"

// follows gates steps that take their ids from the step before on the device, of a row and of many: each looks a row up, which
// begins with the next id.
func (g *gate) follows() error {
	const rows, wide, steps = 37, 3, 5
	const shape = "ids of the step before"
	e, err := g.pair(func(d Device, s *gateSeries) (Program, error) {
		t, err := d.NewTable("gate", TableSpec{Rows: rows, Width: wide, Type: TableF32})
		for id := 0; id < rows && err == nil; id++ {
			row := append([]float32{float32((5*id + 3) % rows)}, s.values(wide-1, 1)...)
			err = t.PutRows(id, floatBytes(nil, row))
		}
		if err == nil {
			err = t.Finish()
		}
		return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, 1}, {F32, wide}},
			Ops: []Op{{Kind: OpEmbed, Dst: 1, A: 0, B: None, Table: t}}}, err
	}, make([]Row, 1), make([]Row, rows))
	if err == nil {
		err = e.ready()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", OpEmbed, shape, err)
	}
	dev, ok := e.dev.(Follower)
	if !ok {
		return nil
	}
	g.common.turn.Lock()
	defer g.common.turn.Unlock()
	defer dev.Abandon()
	for _, n := range []int{1, rows} {
		batch, in := make([]Row, n), make([]float32, n)
		for i := range in {
			in[i] = float32(rows - 1 - i)
		}
		got, next, want := make([]float32, n*e.width), make([]float32, n*e.width), make([]float32, n*e.width)
		begun := false
		for step := range steps {
			if !begun { // the first, and after a step that ran by itself
				if err := dev.Begin(batch, in, got); err != nil {
					return fmt.Errorf("%s %s: %w", OpEmbed, shape, err)
				}
			}
			begun = step < steps-1 && dev.Follow(next)
			if err := dev.Wait(); err != nil {
				return fmt.Errorf("%s %s: %w", OpEmbed, shape, err)
			}
			if err := e.ref.Run(batch, in, want); err != nil {
				return fmt.Errorf("%s %s, reference: %w", OpEmbed, shape, err)
			}
			if err := g.compare(OpEmbed, shape, 0, got, want, e.width); err != nil {
				if wrong, ok := err.(*GateError); ok {
					wrong.Input = fmt.Sprintf("id %v", in[wrong.Row])
				}
				return err
			}
			g.checks = append(g.checks, GateCheck{OpEmbed, shape, len(got)})
			for i := range in {
				in[i] = want[i*e.width]
			}
			got, next = next, got
		}
	}
	return nil
}
