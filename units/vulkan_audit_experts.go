package units

// Audits of OpExperts: one of the row's experts, of each of its matrices a panel of outputs, and what is made of them.

// takeExperts adds what lies between the dispatches of the mixture.
func (a *vulkanAuditor) takeExperts(whole *recording, op *Op) {
	a.between, a.choice = whole.expertScratch(op), a.rng.IntN(op.TopK)
	inner, width := a.innerOf(op), len(a.st.f32[op.Dst])
	a.takeLimbs(a.limbsOf(op.A))
	a.take(&a.after, a.e.bufs[op.B], a.rowAt(op.B), 8*int64(op.TopK))
	a.takeLimbs(a.hiddenOf(op))
	a.take(&a.after, a.between.gate.Buffer, 4*int64(a.slot(op)*inner), 4*int64(inner))
	first, end := a.panelAt(inner)
	a.take(&a.after, a.between.up.Buffer, 4*int64(a.slot(op)*inner+first), 4*int64(end-first))
	first, end = a.panelAt(width)
	for c := range op.TopK {
		a.take(&a.after, a.between.down.Buffer, 4*int64((a.row*op.TopK+c)*width+first), 4*int64(end-first))
	}
}

// innerOf is the number of values between the matrices of an expert.
func (a *vulkanAuditor) innerOf(op *Op) int {
	inner, _ := op.Experts[0].Gate.Shape()
	return inner
}

// slot is the audited row and choice, as experts.glsl counts them.
func (a *vulkanAuditor) slot(op *Op) int { return a.row*op.TopK + a.choice }

// hiddenOf is the input of the last matrix.
func (a *vulkanAuditor) hiddenOf(op *Op) limbsAt {
	return limbsAt{a.between.hidden.Buffer, a.innerOf(op), a.rows * op.TopK, a.slot(op)}
}

// experts recomputes what the row's expert adds, each matrix from what the device has of its input, and the sum of all experts.
func (a *vulkanAuditor) experts(op *Op) error {
	inner, width, k := a.innerOf(op), len(a.st.f32[op.Dst]), op.TopK
	route := floats32(a.copy(a.after, a.e.bufs[op.B], a.rowAt(op.B), 8*int64(k)))
	chosen := route[a.choice]
	if !(chosen >= 0 && chosen < float32(len(op.Experts))) {
		return a.differs(op, a.choice, float64(chosen), float64(len(op.Experts)-1))
	}
	e := &op.Experts[int(chosen)]

	first, end := a.panelAt(inner)
	gate, up := make([]float32, end-first), make([]float32, end-first)
	x := a.limbs(a.limbsOf(op.A))
	if err := a.expertPanel(e.Up, x, first, up); err != nil {
		return err
	}
	if err := a.compare(op, first, floats32(a.copy(a.after, a.between.up.Buffer, 4*int64(a.slot(op)*inner+first), 4*int64(end-first))), up); err != nil {
		return err
	}
	if err := a.expertPanel(e.Gate, x, first, gate); err != nil {
		return err
	}
	genericKernels.act(op.Act, gate, gate, up)
	product := floats32(a.copy(a.after, a.between.gate.Buffer, 4*int64(a.slot(op)*inner), 4*int64(inner)))
	if err := a.compare(op, first, product[first:end], gate); err != nil {
		return err
	}

	want := newLimbBuffer(&genericKernels, inner)
	want.resize(1)
	want.quantise(0, product)
	hidden := a.limbs(a.hiddenOf(op))
	if err := a.compareLimbRow(op, hidden, want); err != nil {
		return err
	}

	first, end = a.panelAt(width)
	down, sum := make([]float32, end-first), make([]float32, end-first)
	if err := a.expertPanel(e.Down, hidden, first, down); err != nil {
		return err
	}
	for c := range k {
		got := floats32(a.copy(a.after, a.between.down.Buffer, 4*int64((a.row*k+c)*width+first), 4*int64(end-first)))
		if c == a.choice {
			if err := a.compare(op, first, got, down); err != nil {
				return err
			}
		}
		for i, v := range got {
			sum[i] = flush(sum[i] + flush(float32(route[k+c]*v)))
		}
	}
	return a.compareWith(op, first, sum)
}

// expertPanel computes outputs of a matrix from first on. Which matrix it is turns out too late for its weights to be copied beside
// the rest, and they do not change.
func (a *vulkanAuditor) expertPanel(w Linear, x limbRow, first int, out []float32) error {
	l := w.(*vulkanLinear)
	part := &l.parts[first/l.perPart]
	var weights [2][]byte
	for b := range l.mode.Limbs() {
		weights[b] = make([]byte, len(out)*l.rowBytes)
		if err := part.buf.Read(l.offset(part, b, first-part.first), weights[b]); err != nil {
			return err
		}
	}
	l.panel(x, weights, nil, first, out)
	return nil
}
