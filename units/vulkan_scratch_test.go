package units

import "testing"

// TestVulkanScratch: recordings of other batches add hardly any memory, and the last of them leaves none.
func TestVulkanScratch(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{})
	oldRows := shortRows
	defer func() { shortRows = oldRows }()
	shortRows = 0 // scores, weights and totals go by way of memory
	e := testLayer(t, d).(*vulkanExecutable)
	s := gateSeries(3)
	if err := e.reserve(testCtx); err != nil {
		t.Fatal(err)
	}
	bytes := func() (n int64) {
		for key, p := range e.scratch {
			if p.recordings < 1 || p.recordings > len(e.recordings) || p.buf.Size() != key.size {
				t.Errorf("%+v: %d recordings of %d, %d bytes", key, p.recordings, len(e.recordings), p.buf.Size())
			}
			n += key.size
		}
		return n
	}
	var first int64
	for n := 12; n > 7; n-- {
		rows := make([]Row, n)
		for i := range rows {
			rows[i].Pos = i
		}
		if err := e.Run(rows, s.values(n*testHidden, 1), make([]float32, n*testHidden)); err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = bytes()
		}
	}
	if n := bytes(); len(e.recordings) < 5 || first == 0 || n > 2*first {
		t.Errorf("%d recordings have %d bytes, the first %d", len(e.recordings), n, first)
	}
	e.drop()
	if len(e.scratch) != 0 {
		t.Errorf("%d buffers are left", len(e.scratch))
	}
}

func TestScratchSize(t *testing.T) {
	for bytes := int64(1); bytes < 1<<33; bytes += bytes/3 + 1 {
		if n := scratchSize(bytes); n < bytes || n%4 != 0 || n > bytes+bytes/4+4 || scratchSize(n) != n {
			t.Errorf("%d bytes: %d, then %d", bytes, n, scratchSize(n))
		}
	}
}
