//go:build arm64 && !purego

#include "textflag.h"
#include "kernels_arm64.h"

// NEON kernels of linear operations, for any arm64 processor.

// PAIR adds the products of 16 weight bytes of an even group (w) and of the odd one after it (x), complemented, with a
// limb row's bytes a and b to the sums c and d, by way of t and u.
#define PAIR(w, x, a, b, t, u, c, d) \
	SMULL8H(a, w, t)   \
	SMULL28H(a, w, u)  \
	SMLSL8H(b, x, t)   \
	SMLSL28H(b, x, u)  \
	SADALP4S(t, c)     \
	SADALP4S(u, d)

// EIGHT loads the weights of eight output rows of both groups and adds them to c .. c+3 (first limb row) and
// c+8 .. c+11 (second).
#define EIGHT(o, c) \
	FLDPQ (o)(R2), (F0, F1)         \
	FLDPQ (o+64)(R2), (F2, F3)      \
	VEOR V30.B16, V0.B16, V0.B16    \
	VEOR V30.B16, V1.B16, V1.B16    \
	VEOR V31.B16, V2.B16, V2.B16    \
	VEOR V31.B16, V3.B16, V3.B16    \
	PAIR(0, 2, 26, 28, 4, 5, c, c+1)     \
	PAIR(0, 2, 27, 29, 6, 7, c+8, c+9)   \
	PAIR(1, 3, 26, 28, 4, 5, c+2, c+3)   \
	PAIR(1, 3, 27, 29, 6, 7, c+10, c+11)

// func panelNEON(dst, init *int32, w *uint8, a *int8, stride, groups int)
// Two limb rows: dst is [2][16], init [2], the rows' groups are 8 bytes at a, a+stride, ...
//
// Bytes are multiplied to 16 bits, where the products of two groups meet before they widen to 32. Of two products of -128
// and -128 the sum would not fit, so that of the odd group is subtracted after its weight v was replaced by ~v = -v-1,
//
//	a*v - b*~x = a*v + b*x + b,   which is within -32640 and 32640,
//
// and b, with 128 times the sum of the limb row for the weights' offset, is put right at the end.
TEXT ·panelNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD init+8(FP), R1
	MOVD w+16(FP), R2
	MOVD a+24(FP), R3
	MOVD stride+32(FP), R5
	MOVD groups+40(FP), R4
	VMOVI $0x80, V30.B16 // a weight from what is stored
	VMOVI $0x7f, V31.B16 // its complement
	CLEAR4(V8, V9, V10, V11)
	CLEAR4(V12, V13, V14, V15)
	CLEAR4(V16, V17, V18, V19)
	CLEAR4(V20, V21, V22, V23)
	VEOR V24.B16, V24.B16, V24.B16 // sums of the limb rows: even groups, then odd ones

loop:
	VLD1.P (R3)(R5), V25.D[0]
	VLD1.P (R3)(R5), V25.D[1]
	VDUP V25.S[0], V26.S4
	VDUP V25.S[1], V27.S4
	VDUP V25.S[2], V28.S4
	VDUP V25.S[3], V29.S4
	SADDLP8H(25, 25)
	SADALP4S(25, 24)
	EIGHT(0, 8)
	EIGHT(32, 12)
	ADD  $128, R2
	SUB  $2, R4
	CBNZ R4, loop

	VADDP V9.S4, V8.S4, V8.S4
	VADDP V11.S4, V10.S4, V9.S4
	VADDP V13.S4, V12.S4, V10.S4
	VADDP V15.S4, V14.S4, V11.S4
	VADDP V17.S4, V16.S4, V16.S4
	VADDP V19.S4, V18.S4, V17.S4
	VADDP V21.S4, V20.S4, V18.S4
	VADDP V23.S4, V22.S4, V19.S4
	VEXT $8, V24.B16, V24.B16, V25.B16
	VADD V25.S4, V24.S4, V24.S4
	VSHL $7, V24.S4, V24.S4
	VSUB V25.S4, V24.S4, V24.S4
	VLD1 (R1), [V25.S2]
	VADD V25.S4, V24.S4, V24.S4
	VDUP V24.S[0], V0.S4
	VDUP V24.S[1], V1.S4
	VADD V0.S4, V8.S4, V8.S4
	VADD V0.S4, V9.S4, V9.S4
	VADD V0.S4, V10.S4, V10.S4
	VADD V0.S4, V11.S4, V11.S4
	VADD V1.S4, V16.S4, V16.S4
	VADD V1.S4, V17.S4, V17.S4
	VADD V1.S4, V18.S4, V18.S4
	VADD V1.S4, V19.S4, V19.S4
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R0)
	VST1 [V16.S4, V17.S4, V18.S4, V19.S4], (R0)
	RET

// func absMaxX8(x *float32, blocks int) uint32
TEXT ·absMaxX8(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD blocks+8(FP), R1
	SET(0x7fffffff, V31)
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16

absmax:
	VLD1.P 32(R0), [V2.S4, V3.S4]
	VAND V31.B16, V2.B16, V2.B16
	VAND V31.B16, V3.B16, V3.B16
	VUMAX V2.S4, V0.S4, V0.S4
	VUMAX V3.S4, V1.S4, V1.S4
	SUB  $1, R1
	CBNZ R1, absmax
	VUMAX V1.S4, V0.S4, V0.S4
	UMAXVS(0, 0)
	FMOVS F0, ret+16(FP)
	RET

// BYTES stores the low bytes of the eight lanes of a and b at p.
#define BYTES(a, b, p) \
	VUZP1 b.H8, a.H8, a.H8    \
	VUZP1 a.B16, a.B16, a.B16 \
	VST1.P [a.B8], 8(p)

// SUM leaves the sum of the lanes of v in r.
#define SUM(v, r) \
	VADDV v.S4, v  \
	VMOV v.S[0], r

// func split2X8(hi, lo *int8, x *float32, blocks int, scale float32, out *[4]int32)
// The low limb is the low byte of q, its sum that of q less 256 times that of the high limb.
TEXT ·split2X8(SB), NOSPLIT, $0-48
	MOVD hi+0(FP), R0
	MOVD lo+8(FP), R1
	MOVD x+16(FP), R2
	MOVD blocks+24(FP), R3
	FMOVS scale+32(FP), F31
	VDUP V31.S[0], V31.S4
	MOVD out+40(FP), R4
	CLEAR4(V16, V17, V18, V19)

split2:
	VLD1.P 32(R2), [V0.S4, V1.S4]
	FMUL4S(31, 0, 0)
	FMUL4S(31, 1, 1)
	FCVTNS4S(0, 0)
	FCVTNS4S(1, 1)
	ABS4S(0, 2)
	ABS4S(1, 3)
	VUSHR $1, V2.S4, V2.S4
	VUSHR $1, V3.S4, V3.S4
	VUMAX V2.S4, V16.S4, V16.S4
	VADD V2.S4, V17.S4, V17.S4
	VUMAX V3.S4, V16.S4, V16.S4
	VADD V3.S4, V17.S4, V17.S4
	SRSHR4S(8, 0, 4) // (q+128) >> 8
	SRSHR4S(8, 1, 5)
	VADD V4.S4, V18.S4, V18.S4
	VADD V0.S4, V19.S4, V19.S4
	VADD V5.S4, V18.S4, V18.S4
	VADD V1.S4, V19.S4, V19.S4
	BYTES(V4, V5, R0)
	BYTES(V0, V1, R1)
	SUB  $1, R3
	CBNZ R3, split2

	UMAXVS(16, 16)
	VMOV V16.S[0], R5
	SUM(V17, R6)
	SUM(V18, R7)
	SUM(V19, R8)
	SUB  R7<<8, R8
	MOVW R5, (R4)
	MOVW R6, 4(R4)
	MOVW R7, 8(R4)
	MOVW R8, 12(R4)
	RET

// func split3X8(h2, h1, h0 *int8, x *float32, blocks int, scale float32, out *[3]int32)
// With m = (q+128) >> 8 = 256*h2 + h1: the lower limbs are the low bytes of m and q.
TEXT ·split3X8(SB), NOSPLIT, $0-56
	MOVD h2+0(FP), R0
	MOVD h1+8(FP), R1
	MOVD h0+16(FP), R2
	MOVD x+24(FP), R3
	MOVD blocks+32(FP), R4
	FMOVS scale+40(FP), F31
	VDUP V31.S[0], V31.S4
	MOVD out+48(FP), R5
	SET(8355711, V28)
	SET(-8355711, V29)
	SET(32896, V30)
	CLEAR4(V16, V17, V18, V19)

split3:
	VLD1.P 32(R3), [V0.S4, V1.S4]
	FMUL4S(31, 0, 0)
	FMUL4S(31, 1, 1)
	FCVTNS4S(0, 0)
	FCVTNS4S(1, 1)
	SMIN4S(28, 0, 0)
	SMIN4S(28, 1, 1)
	SMAX4S(29, 0, 0)
	SMAX4S(29, 1, 1)
	VADD V30.S4, V0.S4, V4.S4
	VADD V30.S4, V1.S4, V5.S4
	SSHR4S(16, 4, 4)
	SSHR4S(16, 5, 5)
	SRSHR4S(8, 0, 2)
	SRSHR4S(8, 1, 3)
	VADD V4.S4, V16.S4, V16.S4
	VADD V2.S4, V17.S4, V17.S4
	VADD V0.S4, V18.S4, V18.S4
	VADD V5.S4, V16.S4, V16.S4
	VADD V3.S4, V17.S4, V17.S4
	VADD V1.S4, V18.S4, V18.S4
	BYTES(V4, V5, R0)
	BYTES(V2, V3, R1)
	BYTES(V0, V1, R2)
	SUB  $1, R4
	CBNZ R4, split3

	SUM(V16, R6)
	SUM(V17, R7)
	SUM(V18, R8)
	SUB  R7<<8, R8
	SUB  R6<<8, R7
	MOVW R6, (R5)
	MOVW R7, 4(R5)
	MOVW R8, 8(R5)
	RET

// EACH applies an operation to four registers from each of m, n and d, BYALL to four from d with one other.
#define EACH(op, m, n, d) \
	op(m, n, d)              \
	op(m+1, n+1, d+1)        \
	op(m+2, n+2, d+2)        \
	op(m+3, n+3, d+3)

#define BYALL(op, m, d) \
	op(m, d, d)            \
	op(m, d+1, d+1)        \
	op(m, d+2, d+2)        \
	op(m, d+3, d+3)

#define FLOAT4(d) \
	SCVTF4S(d, d)     \
	SCVTF4S(d+1, d+1) \
	SCVTF4S(d+2, d+2) \
	SCVTF4S(d+3, d+3)

// JOIN makes T of 16 outputs from the unit sums at p in V0 to V3; R3 is the number of limbs, V31 holds 256.
#define JOIN(p, done) \
	VLD1.P 64(p), [V0.S4, V1.S4, V2.S4, V3.S4] \
	VLD1.P 64(p), [V4.S4, V5.S4, V6.S4, V7.S4] \
	FLOAT4(0)                \
	FLOAT4(4)                \
	BYALL(FMUL4S, 31, 0)     \
	EACH(FADD4S, 4, 0, 0)    \
	CMP  $3, R3              \
	BNE  done                \
	VLD1 (p), [V4.S4, V5.S4, V6.S4, V7.S4] \
	FLOAT4(4)                \
	BYALL(FMUL4S, 31, 0)     \
	EACH(FADD4S, 4, 0, 0)    \
done:

// func combineX16(dst *float32, u, u2 *int32, limbs int, exp2e float32, scale, bias *float32)
TEXT ·combineX16(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD u+8(FP), R1
	MOVD u2+16(FP), R2
	MOVD limbs+24(FP), R3
	FMOVS exp2e+32(FP), F29
	VDUP V29.S[0], V29.S4
	MOVD scale+40(FP), R4
	MOVD bias+48(FP), R5
	FLUSHCONST
	SET(0x43800000, V31) // 256
	JOIN(R1, first)
	CBZ  R2, joined
	FMUL4S(31, 0, 16)
	FMUL4S(31, 1, 17)
	FMUL4S(31, 2, 18)
	FMUL4S(31, 3, 19)
	JOIN(R2, second)
	EACH(FADD4S, 16, 0, 0)

joined:
	BYALL(FMUL4S, 29, 0)
	VLD1 (R4), [V4.S4, V5.S4, V6.S4, V7.S4]
	EACH(FMUL4S, 4, 0, 0)
	CBZ  R5, plain
	VLD1 (R5), [V4.S4, V5.S4, V6.S4, V7.S4]
	EACH(FADD4S, 4, 0, 0)

plain:
	FLUSH(0, 4)
	FLUSH(1, 5)
	FLUSH(2, 6)
	FLUSH(3, 7)
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	RET

// func sumX16(x *uint64, blocks int) uint64
TEXT ·sumX16(SB), NOSPLIT, $0-24
	MOVD x+0(FP), R0
	MOVD blocks+8(FP), R1
	CLEAR4(V16, V17, V18, V19)

sum:
	VLD1.P 64(R0), [V0.D2, V1.D2, V2.D2, V3.D2]
	VLD1.P 64(R0), [V4.D2, V5.D2, V6.D2, V7.D2]
	VADD V0.D2, V16.D2, V16.D2
	VADD V1.D2, V17.D2, V17.D2
	VADD V2.D2, V18.D2, V18.D2
	VADD V3.D2, V19.D2, V19.D2
	VADD V4.D2, V16.D2, V16.D2
	VADD V5.D2, V17.D2, V17.D2
	VADD V6.D2, V18.D2, V18.D2
	VADD V7.D2, V19.D2, V19.D2
	SUB  $1, R1
	CBNZ R1, sum
	VADD V17.D2, V16.D2, V16.D2
	VADD V19.D2, V18.D2, V18.D2
	VADD V18.D2, V16.D2, V16.D2
	VADDP V16.D2, V16.D2, V16.D2
	VMOV V16.D[0], R2
	MOVD R2, ret+16(FP)
	RET
