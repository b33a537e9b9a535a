// Package luts holds the committed tables of the arithmetic in units/NUMERICS.md.
//
// Every device takes these bytes as they are: a table is part of the definition, not a cache of something that could be
// recomputed. The formula of each table is stated here, and the test of this package recomputes every entry exactly.
package luts

import (
	_ "embed"
	"encoding/binary"
	"math"
)

//go:generate go test -run TestTables -update .

// Little-endian file contents, for devices that upload them unchanged.
var (
	// Exp2Bin is 256 float32, entry j = 2^(j/256), rounded to nearest even.
	//go:embed exp2.bin
	Exp2Bin []byte
	// RecipBin is 256 float32, entry j = 1/(1 + (j+0.5)/256).
	//go:embed recip.bin
	RecipBin []byte
	// RsqrtBin is 512 float32, entry h*256 + j = 1/sqrt((1 + (j+0.5)/256) * 2^h), h = 0 or 1.
	//go:embed rsqrt.bin
	RsqrtBin []byte
	// GaussBin is 192 x 4 float32. Row j holds the Taylor coefficients, constant first, of the upper tail Q(c+h) of the
	// normal distribution in h about c = (j+0.5)/32: Q(c), -phi(c), phi(c)*c/2, -phi(c)*(c^2-1)/6, phi its density.
	//go:embed gauss.bin
	GaussBin []byte
	// MulBin is 65,536 int16, entry uint8(a)*256 + uint8(b) = a*b for int8 a and b.
	//go:embed mul.bin
	MulBin []byte
)

// The float tables, decoded. They are read-only.
var (
	Exp2  = decode[[256]float32](Exp2Bin)
	Recip = decode[[256]float32](RecipBin)
	Rsqrt = decode[[512]float32](RsqrtBin)
	Gauss = decode[[768]float32](GaussBin)
)

// Mul is the product of two int8: the definition of a unit's multiplication.
func Mul(a, b int8) int16 {
	i := 2 * (int(uint8(a))<<8 | int(uint8(b)))
	return int16(binary.LittleEndian.Uint16(MulBin[i:]))
}

// decode reads a table of little-endian float32. A length that does not fit is a broken build.
func decode[T [256]float32 | [512]float32 | [768]float32](b []byte) *T {
	var t T
	if len(b) != 4*len(t) {
		panic("luts: embedded table has the wrong length")
	}
	for i := range len(t) {
		t[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return &t
}
