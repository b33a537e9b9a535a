//go:build amd64 && !purego

#include "textflag.h"

// AVX2 kernels: bytes are widened to 16 bits, whose pairwise products (VPMADDWD) are exact in 32.

// QUARTER adds four rows of a panel: 16 weight bytes at o(DX), activations of two limb rows in Y8 and Y9.
#define QUARTER(o, c0, c1) \
	VPMOVZXBW o(DX), Y10     \
	VPMADDWD Y8, Y10, Y11    \
	VPMADDWD Y9, Y10, Y12    \
	VPADDD Y11, c0, c0       \
	VPADDD Y12, c1, c1

// func panelAVX2(dst, init *int32, w *uint8, a *int8, stride, groups int)
// Two limb rows: dst is [2][16], init [2], the rows' groups are 8 bytes at a, a+stride, ...
TEXT ·panelAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ init+8(FP), BX
	MOVQ w+16(FP), DX
	MOVQ a+24(FP), SI
	MOVQ stride+32(FP), R8
	MOVQ groups+40(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7

loop:
	VPBROADCASTD (SI), X8
	VPBROADCASTD 4(SI), X9
	VPMOVSXBW X8, Y8
	VPMOVSXBW X9, Y9
	QUARTER(0, Y0, Y4)
	QUARTER(16, Y1, Y5)
	QUARTER(32, Y2, Y6)
	QUARTER(48, Y3, Y7)
	ADDQ $64, DX
	ADDQ R8, SI
	DECQ CX
	JNZ  loop

	// Each register holds four rows, two sums each; lanes come out as rows 0 1 4 5 2 3 6 7.
	VPHADDD Y1, Y0, Y0
	VPHADDD Y3, Y2, Y2
	VPHADDD Y5, Y4, Y4
	VPHADDD Y7, Y6, Y6
	VPERMQ $0xd8, Y0, Y0
	VPERMQ $0xd8, Y2, Y2
	VPERMQ $0xd8, Y4, Y4
	VPERMQ $0xd8, Y6, Y6
	VPBROADCASTD (BX), Y8
	VPBROADCASTD 4(BX), Y9
	VPADDD Y8, Y0, Y0
	VPADDD Y8, Y2, Y2
	VPADDD Y9, Y4, Y4
	VPADDD Y9, Y6, Y6
	VMOVDQU Y0, (DI)
	VMOVDQU Y2, 32(DI)
	VMOVDQU Y4, 64(DI)
	VMOVDQU Y6, 96(DI)
	VZEROUPPER
	RET

// HMAX leaves the largest unsigned lane of y (low half x) in its lowest.
#define HMAX(y, x, t) \
	VEXTRACTI128 $1, y, t \
	VPMAXUD t, x, x       \
	VPSHUFD $0x4e, x, t   \
	VPMAXUD t, x, x       \
	VPSHUFD $0xb1, x, t   \
	VPMAXUD t, x, x

// HSUM leaves the sum of the lanes of y in its lowest.
#define HSUM(y, x, t) \
	VEXTRACTI128 $1, y, t \
	VPADDD t, x, x        \
	VPSHUFD $0x4e, x, t   \
	VPADDD t, x, x        \
	VPSHUFD $0xb1, x, t   \
	VPADDD t, x, x

// func absMaxX8(x *float32, blocks int) uint32
// blocks of 8 values.
TEXT ·absMaxX8(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ blocks+8(FP), CX
	VPCMPEQD Y2, Y2, Y2
	VPSRLD $1, Y2, Y2
	VPXOR Y0, Y0, Y0

absmax:
	VPAND (SI), Y2, Y1
	VPMAXUD Y1, Y0, Y0
	ADDQ $32, SI
	DECQ CX
	JNZ  absmax
	HMAX(Y0, X0, X1)
	VMOVD X0, AX
	MOVL AX, ret+16(FP)
	VZEROUPPER
	RET

// BYTES packs the eight lanes of y into the low half of x.
#define BYTES(y, x, t) \
	VEXTRACTI128 $1, y, t  \
	VPACKSSDW t, x, x      \
	VPACKSSWB x, x, x

// func split2X8(hi, lo *int8, x *float32, blocks int, scale float32, out *[4]int32)
TEXT ·split2X8(SB), NOSPLIT, $0-48
	MOVQ hi+0(FP), DI
	MOVQ lo+8(FP), DX
	MOVQ x+16(FP), SI
	MOVQ blocks+24(FP), CX
	VBROADCASTSS scale+32(FP), Y4
	MOVL $128, AX
	VMOVD AX, X5
	VPBROADCASTD X5, Y5
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3

split2:
	VMULPS (SI), Y4, Y6
	VCVTPS2DQ Y6, Y6
	VPABSD Y6, Y7
	VPSRLD $1, Y7, Y7
	VPMAXUD Y7, Y0, Y0
	VPADDD Y7, Y1, Y1
	VPADDD Y5, Y6, Y7
	VPSRAD $8, Y7, Y7
	VPSLLD $8, Y7, Y8
	VPSUBD Y8, Y6, Y6
	VPADDD Y7, Y2, Y2
	VPADDD Y6, Y3, Y3
	BYTES(Y7, X7, X8)
	BYTES(Y6, X6, X8)
	VMOVQ X7, (DI)
	VMOVQ X6, (DX)
	ADDQ $32, SI
	ADDQ $8, DI
	ADDQ $8, DX
	DECQ CX
	JNZ  split2

	HMAX(Y0, X0, X6)
	HSUM(Y1, X1, X6)
	HSUM(Y2, X2, X6)
	HSUM(Y3, X3, X6)
	MOVQ out+40(FP), BX
	VMOVD X0, (BX)
	VMOVD X1, 4(BX)
	VMOVD X2, 8(BX)
	VMOVD X3, 12(BX)
	VZEROUPPER
	RET

// func split3X8(h2, h1, h0 *int8, x *float32, blocks int, scale float32, out *[3]int32)
TEXT ·split3X8(SB), NOSPLIT, $0-56
	MOVQ h2+0(FP), DI
	MOVQ h1+8(FP), DX
	MOVQ h0+16(FP), R8
	MOVQ x+24(FP), SI
	MOVQ blocks+32(FP), CX
	VBROADCASTSS scale+40(FP), Y4
	MOVL $128, AX
	VMOVD AX, X5
	VPBROADCASTD X5, Y5
	MOVL $32896, AX
	VMOVD AX, X10
	VPBROADCASTD X10, Y10
	MOVL $8355711, AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11
	NEGL AX
	VMOVD AX, X12
	VPBROADCASTD X12, Y12
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2

split3:
	VMULPS (SI), Y4, Y6
	VCVTPS2DQ Y6, Y6
	VPMINSD Y11, Y6, Y6
	VPMAXSD Y12, Y6, Y6
	VPADDD Y10, Y6, Y7
	VPSRAD $16, Y7, Y7
	VPSLLD $16, Y7, Y8
	VPSUBD Y8, Y6, Y6
	VPADDD Y5, Y6, Y8
	VPSRAD $8, Y8, Y8
	VPSLLD $8, Y8, Y9
	VPSUBD Y9, Y6, Y6
	VPADDD Y7, Y0, Y0
	VPADDD Y8, Y1, Y1
	VPADDD Y6, Y2, Y2
	BYTES(Y7, X7, X9)
	BYTES(Y8, X8, X9)
	BYTES(Y6, X6, X9)
	VMOVQ X7, (DI)
	VMOVQ X8, (DX)
	VMOVQ X6, (R8)
	ADDQ $32, SI
	ADDQ $8, DI
	ADDQ $8, DX
	ADDQ $8, R8
	DECQ CX
	JNZ  split3

	HSUM(Y0, X0, X6)
	HSUM(Y1, X1, X6)
	HSUM(Y2, X2, X6)
	MOVQ out+48(FP), BX
	VMOVD X0, (BX)
	VMOVD X1, 4(BX)
	VMOVD X2, 8(BX)
	VZEROUPPER
	RET

// JOIN2 makes T of eight outputs at o(p) in t, with temporary x; BX is the number of limbs, Y4 holds 256.
#define JOIN2(o, p, t, x, done) \
	VCVTDQ2PS (o)(p), t      \
	VMULPS Y4, t, t          \
	VCVTDQ2PS (o+64)(p), x   \
	VADDPS x, t, t           \
	CMPQ BX, $3              \
	JNE  done                \
	VMULPS Y4, t, t          \
	VCVTDQ2PS (o+128)(p), x  \
	VADDPS x, t, t           \
done:

// SCALE multiplies t by 2^e and the scales, adds the biases if R9 is not 0, flushes and stores.
#define SCALE(o, t, x, nobias) \
	VMULPS Y5, t, t           \
	VMULPS o(R8), t, t        \
	TESTQ R9, R9              \
	JZ   nobias               \
	VADDPS o(R9), t, t        \
nobias:                      \
	VPAND Y6, t, x            \
	VPCMPGTD Y7, x, x         \
	VPAND x, t, t             \
	VMOVUPS t, o(DI)

// func combineX16(dst *float32, u, u2 *int32, limbs int, exp2e float32, scale, bias *float32)
// 16 outputs.
TEXT ·combineX16(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ u+8(FP), SI
	MOVQ u2+16(FP), DX
	MOVQ limbs+24(FP), BX
	VBROADCASTSS exp2e+32(FP), Y5
	MOVQ scale+40(FP), R8
	MOVQ bias+48(FP), R9
	MOVL $0x43800000, AX // 256
	VMOVD AX, X4
	VPBROADCASTD X4, Y4
	MOVL $0x7fffffff, AX
	VMOVD AX, X6
	VPBROADCASTD X6, Y6
	MOVL $0x1fffffff, AX // just below 2^-63
	VMOVD AX, X7
	VPBROADCASTD X7, Y7
	JOIN2(0, SI, Y0, Y1, joined0)
	JOIN2(32, SI, Y2, Y1, joined1)
	TESTQ DX, DX
	JZ   one
	JOIN2(0, DX, Y3, Y1, joined2)
	JOIN2(32, DX, Y8, Y1, joined3)
	VMULPS Y4, Y0, Y0
	VADDPS Y3, Y0, Y0
	VMULPS Y4, Y2, Y2
	VADDPS Y8, Y2, Y2

one:
	SCALE(0, Y0, Y1, nobias0)
	SCALE(32, Y2, Y1, nobias1)
	VZEROUPPER
	RET

// func sumX16(x *uint64, blocks int) uint64
// blocks of 16 words.
TEXT ·sumX16(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), SI
	MOVQ blocks+8(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3

sum:
	VPADDQ (SI), Y0, Y0
	VPADDQ 32(SI), Y1, Y1
	VPADDQ 64(SI), Y2, Y2
	VPADDQ 96(SI), Y3, Y3
	ADDQ $128, SI
	DECQ CX
	JNZ  sum
	VPADDQ Y1, Y0, Y0
	VPADDQ Y3, Y2, Y2
	VPADDQ Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPADDQ X1, X0, X0
	VMOVQ X0, AX
	MOVQ AX, ret+16(FP)
	VZEROUPPER
	RET
