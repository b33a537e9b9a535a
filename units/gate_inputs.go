package units

// gateSeries is a fixed sequence of numbers, made from integers so that it is the same everywhere.
type gateSeries uint64

// next is uniform in [-1, 1).
func (s *gateSeries) next() float32 {
	*s = *s*6364136223846793005 + 1442695040888963407
	return float32(int32(*s>>40)-1<<23) / (1 << 23)
}

func (s *gateSeries) values(n int, scale float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = s.next() * scale
	}
	return v
}

// linear loads a random matrix with some extreme rows.
func (s *gateSeries) linear(d Device, n, k int, mode WeightMode) (Linear, error) {
	l, err := d.NewLinear("gate", n, k, mode)
	if err != nil {
		return nil, err
	}
	// Few enough weights that loading them leaves the device's threads to a check that runs.
	block := make([]float32, 0, max(1, min(n, weightsPerTask/k))*k)
	put := func(end int) error {
		err := l.PutRows(end-len(block)/k, block)
		block = block[:0]
		return err
	}
	for r := range n {
		if len(block) == cap(block) {
			if err := put(r); err != nil {
				return nil, err
			}
		}
		block = block[:len(block)+k]
		row := block[len(block)-k:]
		for i := range row {
			row[i] = s.next() * 0.1
		}
		switch r % 23 {
		case 3: // every weight at the end of its range
			for i := range row {
				row[i] = -1
			}
		case 9:
			clear(row)
		case 12: // low limbs of -128
			for i := range row {
				row[i] = float32(int32(s.next()*120)*256 - 128)
			}
			row[r%k] = 32639
		case 17:
			for i := range row {
				row[i] *= 1.0 / (1 << 44)
			}
		}
	}
	if err := put(n); err != nil {
		return nil, err
	}
	return l, l.Finish()
}

// gateInputs are the kinds of rows every operation is tried on. The first gateKinds have each of them, and two random rows.
var gateInputs = []struct {
	name string
	fill func(x []float32, s *gateSeries)
}{
	{"random", fillRandom},
	{"low limbs -128", func(x []float32, s *gateSeries) {
		for i := range x {
			x[i] = float32(int32(s.next()*120)*256 - 128)
		}
		x[0] = -32639
	}},
	{"all limbs at the end", func(x []float32, _ *gateSeries) {
		for i := range x {
			x[i] = -32384 // limbs -126 and -128
		}
	}},
	{"outlier", func(x []float32, s *gateSeries) {
		fillRandom(x, s)
		x[len(x)/3] = 4000
	}},
	{"zero", func(x []float32, _ *gateSeries) { clear(x) }},
	{"tiny", func(x []float32, s *gateSeries) {
		for i := range x {
			x[i] = flush(s.next() * (1.0 / (1 << 60)))
		}
	}},
	{"large", func(x []float32, s *gateSeries) {
		for i := range x {
			x[i] = s.next() * (1 << 20)
		}
	}},
	{"wide range", func(x []float32, s *gateSeries) {
		for i := range x {
			x[i] = flush(s.next() * pow2(int(s.next()*25)-20))
		}
	}},
	{"one value", func(x []float32, _ *gateSeries) {
		clear(x)
		x[len(x)-1] = -3
	}},
	{"random", fillRandom}, {"random", fillRandom}, {"random", fillRandom}, {"random", fillRandom}, {"random", fillRandom},
}

func fillRandom(x []float32, s *gateSeries) {
	for i := range x {
		x[i] = s.next() * 3
	}
}
