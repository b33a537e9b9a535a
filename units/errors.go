package units

// ErrNonFinite is wrapped by the error of a run that met a NaN or an infinity.
var ErrNonFinite = errNotFinite

// Flush stores nothing below 2^-63 in magnitude (NUMERICS.md section 1), in place.
func Flush(row []float32) {
	for i, v := range row {
		row[i] = flush(v)
	}
}
