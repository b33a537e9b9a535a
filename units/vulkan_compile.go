package units

import "golang.org/x/sync/errgroup"

// prepare makes ready what runs with these batches need that takes long: their shaders, several at a time.
func (e *vulkanExecutable) prepare(batches ...[]Row) error {
	most := 0
	for _, rows := range batches {
		most = max(most, min(len(rows), e.maxRows))
	}
	if err := e.reserve(most); err != nil {
		return err
	}
	var shapes []batchShape
	for _, rows := range batches {
		rows = rows[:min(len(rows), e.maxRows)]
		shapes = append(shapes, batchShape{len(rows), e.contextOf(rows)})
	}
	return e.compile(shapes...)
}

// compile has the shaders of batches compiled.
func (e *vulkanExecutable) compile(shapes ...batchShape) error {
	var compiling errgroup.Group
	compiling.SetLimit(DefaultThreads())
	var err error
	for _, shape := range shapes {
		r := e.newRecording(shape)
		r.compiling, r.seen = &compiling, map[string]bool{}
		r.ops()
		r.free()
		if err = r.err; err != nil {
			break
		}
	}
	if failed := compiling.Wait(); err == nil {
		err = failed
	}
	return err
}

// compileLater has the shader of a dispatch compiled, in place of the dispatch.
func (r *recording) compileLater(s shader, bindings, pushBytes int) {
	key := s.key()
	if r.seen[key] {
		return
	}
	r.seen[key] = true
	r.compiling.Go(func() error {
		_, err := r.dev.pipeline(s, bindings, pushBytes)
		return err
	})
}
