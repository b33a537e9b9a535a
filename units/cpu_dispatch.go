package units

// Work below these sizes, in values, is not worth waking another core for.
const (
	cheapValues  = 1 << 15 // a sum or a product each
	normValues   = 1 << 13
	costlyValues = 1 << 11 // an activation each
)

// runStep executes one dispatch and its audit.
func (e *cpuExecutable) runStep(s *step) error {
	audited := s.audits(e.audit)
	if audited {
		e.audit.snapshot(e.st)
	}
	e.dispatch(e.st, s)
	if e.st.err != nil {
		return e.st.err
	}
	if audited {
		return e.audit.verify(e.st)
	}
	return nil
}

// dispatch shares the work of a step out. Nothing in it depends on how many take part.
func (e *cpuExecutable) dispatch(st *state, s *step) {
	op, rows := &s.ops[0], len(st.rows)
	width := 0
	if op.Kind != OpStoreKV {
		width = st.prog.Bufs[op.Dst].Width
	}
	switch op.Kind {
	case OpNorm:
		e.overRows(rows, normValues/width, func(_ *scratch, r int) { st.normRow(op, r) })
	case OpQuantize:
		e.quantise(st, op)
	case OpLinear:
		e.linear(st, s.group)
	case OpRope:
		e.overRows(rows, normValues/width, func(_ *scratch, r int) { st.ropeRow(op, r) })
	case OpStoreKV:
		e.overRows(rows, normValues/st.prog.Bufs[op.A].Width, func(s *scratch, r int) { st.storeRow(op, r, s) })
	case OpAttend:
		e.attend(st, op)
	case OpAct:
		e.overValues(rows*width, costlyValues, func(lo, hi int) { st.act(op, lo, hi) })
	case OpAdd:
		e.overValues(rows*width, cheapValues, func(lo, hi int) { st.add(op, lo, hi) })
	case OpSoftcap:
		e.overRows(rows, costlyValues/width, func(_ *scratch, r int) { st.softcapRow(op, r) })
	case OpRoute:
		e.overRows(rows, 1, func(s *scratch, r int) { st.routeRow(op, r, s) })
	case OpTop:
		e.overRows(rows, 1, func(s *scratch, r int) { st.topRow(op, r, s) })
	case OpEmbed:
		e.overRows(rows, cheapValues/width, func(_ *scratch, r int) { st.embedRow(op, r) })
	case OpExperts:
		st.runExperts(op, func(chunks int, f func(s *scratch, chunk int)) {
			e.dev.pool.run(e.job, chunks, func(worker, i int) { f(&e.scratch[worker], i) })
		})
	case OpScale:
		e.overValues(rows*width, cheapValues, func(lo, hi int) { st.scale(op, lo, hi) })
	}
}

// overRows calls f for every row, perChunk rows at a time (at least one).
func (e *cpuExecutable) overRows(rows, perChunk int, f func(s *scratch, r int)) {
	perChunk = max(1, perChunk)
	e.dev.pool.run(e.job, (rows+perChunk-1)/perChunk, func(worker, i int) {
		for r := i * perChunk; r < min(rows, (i+1)*perChunk); r++ {
			f(&e.scratch[worker], r)
		}
	})
}

// overValues calls f for consecutive ranges of at most perChunk values.
func (e *cpuExecutable) overValues(n, perChunk int, f func(lo, hi int)) {
	e.dev.pool.run(e.job, (n+perChunk-1)/perChunk, func(_, i int) { f(i*perChunk, min(n, (i+1)*perChunk)) })
}

// quantise is OpQuantize: rows on their own, then their tiles.
func (e *cpuExecutable) quantise(st *state, op *Op) {
	x, dst := st.f32[op.A], st.limbs[op.Dst]
	w := dst.width
	perChunk := normValues / w
	e.overRows(len(st.rows), perChunk, func(_ *scratch, r int) {
		if !dst.quantise(r, x[r*w:(r+1)*w]) {
			dst.rows[r].limbs = 2
			st.fail(op, r, errNotFinite)
		}
	})
	dst.arrange([]int{len(dst.rows)})
	e.overRows(len(dst.tiles), perChunk/(maxTile/2), func(_ *scratch, i int) { dst.fill(i) })
}

// linear is a group of OpLinear, cut by output panels.
func (e *cpuExecutable) linear(st *state, g *linearGroup) {
	x := st.limbs[g.ops[0].A]
	total := g.panelEnd[len(g.panelEnd)-1]
	per := g.chunkPanels(x, e.dev.threads)
	e.dev.pool.run(e.job, (total+per-1)/per, func(worker, i int) {
		st.linearChunk(g, i*per, min(total, (i+1)*per), e.scratch[worker].u[:])
	})
}

// attend is OpAttend, cut into queries of one key-value head: as many together as leave every thread something to do,
// since they share the reading of the keys and values.
func (e *cpuExecutable) attend(st *state, op *Op) {
	perKV := op.Heads / op.KVHeads
	perTask := st.kern.attendQueries(st.cache.hd)
	var tasks []attendTask
	for {
		tasks = tasks[:0]
		for first := 0; first < len(st.rows); {
			end := first + 1
			for end < len(st.rows) && st.rows[end].Slot == st.rows[first].Slot && near(st.rows[end].Pos, st.rows[end-1].Pos) {
				end++
			}
			queries := (end - first) * perKV
			cuts := (queries + perTask - 1) / perTask
			for i := range cuts {
				tasks = append(tasks, attendTask{first*perKV + i*queries/cuts, first*perKV + (i+1)*queries/cuts})
			}
			first = end
		}
		if perTask == 1 || len(tasks)*op.KVHeads >= e.dev.threads {
			break
		}
		perTask--
	}
	e.dev.pool.run(e.job, len(tasks)*op.KVHeads, func(worker, i int) {
		// One key-value head after the other, whose keys and values stay in cache. The latest rows see the most positions: they go
		// first, so that no long task is left for the end.
		t, kvh, s := tasks[len(tasks)-1-i%len(tasks)], i/len(tasks), &e.scratch[worker]
		s.queries = s.queries[:0]
		for q := t.first; q < t.end; q++ {
			s.queries = append(s.queries, st.query(op, q/perKV, kvh*perKV+q%perKV))
		}
		st.attend(op, s)
	})
}

// attendTask is a range of the queries of each key-value head, counted over all rows.
type attendTask struct{ first, end int }

// near says whether queries at two positions see almost the same.
func near(a, b int) bool { return max(a, b)-min(a, b) <= 1 }
