package transport

// RawWrite puts bytes on the link's stream as they are, as a peer that follows no rules would.
func (l *Link) RawWrite(b []byte) error {
	_, err := l.stream.Write(b)
	return err
}

// RawFinish ends this side of the stream.
func (l *Link) RawFinish() error { return l.stream.Close() }

// Bytewise gives the encodings used on big-endian machines, whatever this one is.
func Bytewise(p []float32) (encoded []byte, swapped []float32) {
	swapped = append(swapped, p...)
	swapFloats(swapped)
	return appendFloatsEach(nil, p), swapped
}

// NativeBytes is the encoding used on this machine.
func NativeBytes(p []float32) []byte { return appendFloats(nil, p) }
