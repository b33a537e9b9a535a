package inspect

import (
	"math"
	"testing"
)

// TestInvFreq holds the frequencies against values computed with 50 decimal digits and rounded to float32 wherever
// float32 arithmetic rounds.
func TestInvFreq(t *testing.T) {
	for _, c := range []struct {
		name string
		spec RopeSpec
		want []float32
	}{
		{"default", RopeSpec{RopeTheta: 1e4, RotaryDim: 16, RopeScaling: ropeNone}, []float32{
			1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}},
		{"llama3, small", RopeSpec{RopeTheta: 500000, RotaryDim: 16, RopeScaling: ropeLlama3, RopeFactor: 8,
			RopeLowFreq: 1, RopeHighFreq: 4, RopeOriginal: 64}, []float32{
			1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
		{"llama3, 1B", RopeSpec{RopeTheta: 500000, RotaryDim: 64, RopeScaling: ropeLlama3, RopeFactor: 32,
			RopeLowFreq: 1, RopeHighFreq: 4, RopeOriginal: 8192}, []float32{
			1, 0.663601279, 0.440366626, 0.292227834, 0.193922758, 0.128687382, 0.0853971019, 0.0566696189, 0.0376060307,
			0.0249554086, 0.0165604409, 0.0109895291, 0.00729266508, 0.00483942125, 0.00321144611, 0.00129054801,
			0.000429556705, 9.70828623e-05, 1.94616387e-05, 1.29147675e-05, 8.57025589e-06, 5.68723226e-06, 3.77405445e-06,
			2.50446715e-06, 1.66196742e-06, 1.10288363e-06, 7.31874934e-07, 4.85673127e-07, 3.22293289e-07, 2.1387423e-07,
			1.41927202e-07, 9.41830649e-08}},
	} {
		got := c.spec.InvFreq(0)
		if len(got) != len(c.want) {
			t.Fatalf("%s: %d frequencies, want %d", c.name, len(got), len(c.want))
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: frequency %d is %.9g, want %.9g", c.name, i, got[i], c.want[i])
			}
		}
	}
}

func TestPow(t *testing.T) {
	for _, x := range []float64{1, 1.5, 2, 10000, 100000, 500000, 1e6, 1e7, 1e12} {
		for i := range 256 {
			y := float64(i) / 256
			got, want := pow(x, y), math.Pow(x, y)
			if math.Abs(got-want) > 4e-15*want {
				t.Errorf("%g^%g = %.17g, want %.17g", x, y, got, want)
			}
		}
	}
}
