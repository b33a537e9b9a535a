package units

import "golang.org/x/sync/errgroup"

// prepare makes ready what runs with these batches need that takes long: their shaders, several at a time, then their recordings.
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
	err := e.compile(shapes...)
	if err == nil {
		err = e.reserveLane(0)
	}
	for _, shape := range shapes {
		if err == nil {
			_, err = e.recorded(recordingKey{batchShape: shape})
		}
	}
	return err
}

// compile has the shaders of batches compiled.
func (e *vulkanExecutable) compile(shapes ...batchShape) error {
	var compiling errgroup.Group
	compiling.SetLimit(DefaultThreads())
	var err error
	seen := map[string]bool{}
	for _, shape := range shapes {
		r := e.newRecording(shape)
		r.compile = func(s shader, bindings, pushBytes int) {
			key := s.key()
			if seen[key] {
				return
			}
			seen[key] = true
			compiling.Go(func() error {
				_, err := e.dev.pipeline(s, bindings, pushBytes)
				return err
			})
		}
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
