//go:build amd64 && !purego

#include "textflag.h"

// AVX-512 VNNI kernels. VPDPBUSD adds four products of an unsigned byte (the weight + 128, a register) and a signed one
// (an activation limb, four bytes broadcast from memory) to each 32-bit lane, without saturation. A lane is one of the
// 16 output rows of a panel, so no sum crosses lanes.

// DOT4 and DOT8 add the products of weights w with limb rows o/4 .. of the group at SI.
#define DOT4(o, w, c0, c1, c2, c3) \
	VPDPBUSD.BCST (o+0)(SI), w, c0  \
	VPDPBUSD.BCST (o+4)(SI), w, c1  \
	VPDPBUSD.BCST (o+8)(SI), w, c2  \
	VPDPBUSD.BCST (o+12)(SI), w, c3

#define DOT8(o, w, c0, c1, c2, c3, c4, c5, c6, c7) \
	DOT4(o, w, c0, c1, c2, c3)                      \
	DOT4(o+16, w, c4, c5, c6, c7)

// INIT4 starts four sums from init, STORE4 writes them to dst.
#define INIT4(o, c0, c1, c2, c3) \
	VPBROADCASTD (o+0)(BX), c0    \
	VPBROADCASTD (o+4)(BX), c1    \
	VPBROADCASTD (o+8)(BX), c2    \
	VPBROADCASTD (o+12)(BX), c3

#define STORE4(o, c0, c1, c2, c3) \
	VMOVDQU32 c0, (o+0)(DI)        \
	VMOVDQU32 c1, (o+64)(DI)       \
	VMOVDQU32 c2, (o+128)(DI)      \
	VMOVDQU32 c3, (o+192)(DI)

#define CLEAR4(c0, c1, c2, c3) \
	VPXORD c0, c0, c0           \
	VPXORD c1, c1, c1           \
	VPXORD c2, c2, c2           \
	VPXORD c3, c3, c3

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ init+8(FP), BX    \
	MOVQ w+16(FP), DX      \
	MOVQ a+24(FP), SI      \
	MOVQ groups+32(FP), CX

// func panelVNNI2(dst, init *int32, w *uint8, a *int8, groups int)
// Four groups at a time with sums of their own: the additions of one sum would wait for each other.
TEXT ·panelVNNI2(SB), NOSPLIT, $0-40
	ARGS
	VPBROADCASTD (BX), Z8
	VPBROADCASTD 4(BX), Z9
	CLEAR4(Z10, Z11, Z12, Z13)
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15

loop2:
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	VMOVDQU32 128(DX), Z2
	VMOVDQU32 192(DX), Z3
	VPDPBUSD.BCST (SI), Z0, Z8
	VPDPBUSD.BCST 4(SI), Z0, Z9
	VPDPBUSD.BCST 8(SI), Z1, Z10
	VPDPBUSD.BCST 12(SI), Z1, Z11
	VPDPBUSD.BCST 16(SI), Z2, Z12
	VPDPBUSD.BCST 20(SI), Z2, Z13
	VPDPBUSD.BCST 24(SI), Z3, Z14
	VPDPBUSD.BCST 28(SI), Z3, Z15
	ADDQ $256, DX
	ADDQ $32, SI
	SUBQ $4, CX
	JNZ  loop2

	VPADDD Z10, Z8, Z8
	VPADDD Z11, Z9, Z9
	VPADDD Z14, Z12, Z12
	VPADDD Z15, Z13, Z13
	VPADDD Z12, Z8, Z8
	VPADDD Z13, Z9, Z9
	VMOVDQU32 Z8, (DI)
	VMOVDQU32 Z9, 64(DI)
	VZEROUPPER
	RET

// func panelVNNI4(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI4(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	CLEAR4(Z12, Z13, Z14, Z15)

loop4:
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	VMOVDQU32 128(DX), Z2
	VMOVDQU32 192(DX), Z3
	DOT4(0, Z0, Z8, Z9, Z10, Z11)
	DOT4(16, Z1, Z12, Z13, Z14, Z15)
	DOT4(32, Z2, Z8, Z9, Z10, Z11)
	DOT4(48, Z3, Z12, Z13, Z14, Z15)
	ADDQ $256, DX
	ADDQ $64, SI
	SUBQ $4, CX
	JNZ  loop4

	VPADDD Z12, Z8, Z8
	VPADDD Z13, Z9, Z9
	VPADDD Z14, Z10, Z10
	VPADDD Z15, Z11, Z11
	STORE4(0, Z8, Z9, Z10, Z11)
	VZEROUPPER
	RET

// func panelVNNI8(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI8(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	INIT4(16, Z12, Z13, Z14, Z15)
	CLEAR4(Z16, Z17, Z18, Z19)
	CLEAR4(Z20, Z21, Z22, Z23)

loop8:
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	DOT8(0, Z0, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(32, Z1, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	ADDQ $128, DX
	ADDQ $64, SI
	SUBQ $2, CX
	JNZ  loop8

	VPADDD Z16, Z8, Z8
	VPADDD Z17, Z9, Z9
	VPADDD Z18, Z10, Z10
	VPADDD Z19, Z11, Z11
	VPADDD Z20, Z12, Z12
	VPADDD Z21, Z13, Z13
	VPADDD Z22, Z14, Z14
	VPADDD Z23, Z15, Z15
	STORE4(0, Z8, Z9, Z10, Z11)
	STORE4(256, Z12, Z13, Z14, Z15)
	VZEROUPPER
	RET

// func panelVNNI16(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI16(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	INIT4(16, Z12, Z13, Z14, Z15)
	INIT4(32, Z16, Z17, Z18, Z19)
	INIT4(48, Z20, Z21, Z22, Z23)

loop16:
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	DOT8(0, Z0, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(32, Z0, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	DOT8(64, Z1, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(96, Z1, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	ADDQ $128, DX
	ADDQ $128, SI
	SUBQ $2, CX
	JNZ  loop16

	STORE4(0, Z8, Z9, Z10, Z11)
	STORE4(256, Z12, Z13, Z14, Z15)
	STORE4(512, Z16, Z17, Z18, Z19)
	STORE4(768, Z20, Z21, Z22, Z23)
	VZEROUPPER
	RET

// func panelVNNI24(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI24(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	INIT4(16, Z12, Z13, Z14, Z15)
	INIT4(32, Z16, Z17, Z18, Z19)
	INIT4(48, Z20, Z21, Z22, Z23)
	INIT4(64, Z24, Z25, Z26, Z27)
	INIT4(80, Z28, Z29, Z30, Z31)

loop24:
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	DOT8(0, Z0, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(32, Z0, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	DOT8(64, Z0, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	DOT8(96, Z1, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(128, Z1, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	DOT8(160, Z1, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	ADDQ $128, DX
	ADDQ $192, SI
	SUBQ $2, CX
	JNZ  loop24

	STORE4(0, Z8, Z9, Z10, Z11)
	STORE4(256, Z12, Z13, Z14, Z15)
	STORE4(512, Z16, Z17, Z18, Z19)
	STORE4(768, Z20, Z21, Z22, Z23)
	STORE4(1024, Z24, Z25, Z26, Z27)
	STORE4(1280, Z28, Z29, Z30, Z31)
	VZEROUPPER
	RET

// TAILMASK sets K1 to the low n bits, n < 16 in CX.
#define TAILMASK \
	MOVL  $1, AX  \
	SHLL  CX, AX  \
	DECL  AX      \
	KMOVW AX, K1

// func absMaxAVX512(x *float32, n int) uint32
TEXT ·absMaxAVX512(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z4
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1

absmax32:
	CMPQ CX, $32
	JLT  absmax16
	VPANDD (SI), Z4, Z2
	VPANDD 64(SI), Z4, Z3
	VPMAXUD Z2, Z0, Z0
	VPMAXUD Z3, Z1, Z1
	ADDQ $128, SI
	SUBQ $32, CX
	JMP  absmax32

absmax16:
	CMPQ CX, $16
	JLT  absmaxtail
	VPANDD (SI), Z4, Z2
	VPMAXUD Z2, Z0, Z0
	ADDQ $64, SI
	SUBQ $16, CX

absmaxtail:
	TAILMASK
	VMOVDQU32.Z (SI), K1, Z2
	VPANDD Z4, Z2, Z2
	VPMAXUD Z2, Z0, Z0
	VPMAXUD Z1, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+16(FP)
	VZEROUPPER
	RET

// REDUCE adds the lanes of z into its lowest, through the registers y, x of the same number and temporaries.
#define REDUCE(z, y, x, ty, tx) \
	VEXTRACTI64X4 $1, z, ty     \
	VPADDD ty, y, y             \
	VEXTRACTI128 $1, y, tx      \
	VPADDD tx, x, x             \
	VPSHUFD $0x4e, x, tx        \
	VPADDD tx, x, x             \
	VPSHUFD $0xb1, x, tx        \
	VPADDD tx, x, x

// func split2AVX512(hi, lo *int8, x *float32, n int, scale float32, out *[4]int32)
// out: largest and sum of |q|>>1, sums of the limbs.
TEXT ·split2AVX512(SB), NOSPLIT, $0-48
	MOVQ hi+0(FP), DI
	MOVQ lo+8(FP), DX
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), CX
	VBROADCASTSS scale+32(FP), Z4
	MOVL $128, AX
	VPBROADCASTD AX, Z5
	CLEAR4(Z0, Z1, Z2, Z3)

split2loop:
	CMPQ CX, $16
	JLT  split2tail
	VMULPS (SI), Z4, Z6
	VCVTPS2DQ Z6, Z6
	VPABSD Z6, Z7
	VPSRLD $1, Z7, Z7
	VPMAXUD Z7, Z0, Z0
	VPADDD Z7, Z1, Z1
	VPADDD Z5, Z6, Z7
	VPSRAD $8, Z7, Z7
	VPSLLD $8, Z7, Z8
	VPSUBD Z8, Z6, Z6
	VPADDD Z7, Z2, Z2
	VPADDD Z6, Z3, Z3
	VPMOVDB Z7, (DI)
	VPMOVDB Z6, (DX)
	ADDQ $64, SI
	ADDQ $16, DI
	ADDQ $16, DX
	SUBQ $16, CX
	JMP  split2loop

split2tail:
	TAILMASK
	VMOVUPS.Z (SI), K1, Z6
	VMULPS Z6, Z4, Z6
	VCVTPS2DQ Z6, Z6
	VPABSD Z6, Z7
	VPSRLD $1, Z7, Z7
	VPMAXUD Z7, Z0, Z0
	VPADDD Z7, Z1, Z1
	VPADDD Z5, Z6, Z7
	VPSRAD $8, Z7, Z7
	VPSLLD $8, Z7, Z8
	VPSUBD Z8, Z6, Z6
	VPADDD Z7, Z2, Z2
	VPADDD Z6, Z3, Z3
	VPMOVDB Z7, K1, (DI)
	VPMOVDB Z6, K1, (DX)

	VEXTRACTI64X4 $1, Z0, Y6
	VPMAXUD Y6, Y0, Y0
	VEXTRACTI128 $1, Y0, X6
	VPMAXUD X6, X0, X0
	VPSHUFD $0x4e, X0, X6
	VPMAXUD X6, X0, X0
	VPSHUFD $0xb1, X0, X6
	VPMAXUD X6, X0, X0
	REDUCE(Z1, Y1, X1, Y6, X6)
	REDUCE(Z2, Y2, X2, Y6, X6)
	REDUCE(Z3, Y3, X3, Y6, X6)
	MOVQ out+40(FP), BX
	VMOVD X0, (BX)
	VMOVD X1, 4(BX)
	VMOVD X2, 8(BX)
	VMOVD X3, 12(BX)
	VZEROUPPER
	RET

// THREE cuts the products in Z6 into limbs Z7, Z8, Z6 and adds them to the sums Z0, Z1, Z2.
#define THREE \
	VCVTPS2DQ Z6, Z6    \
	VPMINSD Z11, Z6, Z6 \
	VPMAXSD Z12, Z6, Z6 \
	VPADDD Z10, Z6, Z7  \
	VPSRAD $16, Z7, Z7  \
	VPSLLD $16, Z7, Z8  \
	VPSUBD Z8, Z6, Z6   \
	VPADDD Z5, Z6, Z8   \
	VPSRAD $8, Z8, Z8   \
	VPSLLD $8, Z8, Z9   \
	VPSUBD Z9, Z6, Z6   \
	VPADDD Z7, Z0, Z0   \
	VPADDD Z8, Z1, Z1   \
	VPADDD Z6, Z2, Z2

// func split3AVX512(h2, h1, h0 *int8, x *float32, n int, scale float32, out *[3]int32)
TEXT ·split3AVX512(SB), NOSPLIT, $0-56
	MOVQ h2+0(FP), DI
	MOVQ h1+8(FP), DX
	MOVQ h0+16(FP), R8
	MOVQ x+24(FP), SI
	MOVQ n+32(FP), CX
	VBROADCASTSS scale+40(FP), Z4
	MOVL $128, AX
	VPBROADCASTD AX, Z5
	MOVL $32896, AX
	VPBROADCASTD AX, Z10
	MOVL $8355711, AX
	VPBROADCASTD AX, Z11
	NEGL AX
	VPBROADCASTD AX, Z12
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2

split3loop:
	CMPQ CX, $16
	JLT  split3tail
	VMULPS (SI), Z4, Z6
	THREE
	VPMOVDB Z7, (DI)
	VPMOVDB Z8, (DX)
	VPMOVDB Z6, (R8)
	ADDQ $64, SI
	ADDQ $16, DI
	ADDQ $16, DX
	ADDQ $16, R8
	SUBQ $16, CX
	JMP  split3loop

split3tail:
	TAILMASK
	VMOVUPS.Z (SI), K1, Z6
	VMULPS Z6, Z4, Z6
	THREE
	VPMOVDB Z7, K1, (DI)
	VPMOVDB Z8, K1, (DX)
	VPMOVDB Z6, K1, (R8)
	REDUCE(Z0, Y0, X0, Y6, X6)
	REDUCE(Z1, Y1, X1, Y6, X6)
	REDUCE(Z2, Y2, X2, Y6, X6)
	MOVQ out+48(FP), BX
	VMOVD X0, (BX)
	VMOVD X1, 4(BX)
	VMOVD X2, 8(BX)
	VZEROUPPER
	RET

// JOIN makes T of the unit sums [limbs][16] at p: t, with temporary x; Z4 holds 256, BX the number of limbs.
#define JOIN(p, t, x, done) \
	VCVTDQ2PS (p), t      \
	VMULPS Z4, t, t       \
	VCVTDQ2PS 64(p), x    \
	VADDPS x, t, t        \
	CMPQ BX, $3           \
	JNE  done             \
	VMULPS Z4, t, t       \
	VCVTDQ2PS 128(p), x   \
	VADDPS x, t, t        \
done:

// func combineAVX512(dst *float32, n int, u, u2 *int32, limbs int, exp2e float32, scale, bias *float32)
TEXT ·combineAVX512(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ u+16(FP), SI
	MOVQ u2+24(FP), DX
	MOVQ limbs+32(FP), BX
	MOVQ scale+48(FP), R8
	MOVQ bias+56(FP), R9
	MOVL $0x43800000, AX // 256
	VPBROADCASTD AX, Z4
	TAILMASK // n = 16 shifts the bit out of the word: all ones
	JOIN(SI, Z0, Z1, joined)
	TESTQ DX, DX
	JZ   one
	JOIN(DX, Z2, Z3, joined2)
	VMULPS Z4, Z0, Z0
	VADDPS Z2, Z0, Z0

one:
	VBROADCASTSS exp2e+40(FP), Z5
	VMULPS Z5, Z0, Z0
	VMOVUPS.Z (R8), K1, Z6
	VMULPS Z6, Z0, Z0
	TESTQ R9, R9
	JZ   nobias
	VMOVUPS.Z (R9), K1, Z6
	VADDPS Z6, Z0, Z0

nobias:
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z6
	MOVL $0x20000000, AX // 2^-63
	VPBROADCASTD AX, Z7
	VPANDD Z6, Z0, Z8
	VPCMPUD $5, Z7, Z8, K2 // keep what is not less, as integers
	VMOVAPS.Z Z0, K2, Z0
	VMOVUPS Z0, K1, (DI)
	VZEROUPPER
	RET

// func sumAVX512(x *uint64, blocks int) uint64
// blocks of 32 words.
TEXT ·sumAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), SI
	MOVQ blocks+8(FP), CX
	CLEAR4(Z0, Z1, Z2, Z3)

sumloop:
	VPADDQ (SI), Z0, Z0
	VPADDQ 64(SI), Z1, Z1
	VPADDQ 128(SI), Z2, Z2
	VPADDQ 192(SI), Z3, Z3
	ADDQ $256, SI
	DECQ CX
	JNZ  sumloop

	VPADDQ Z1, Z0, Z0
	VPADDQ Z3, Z2, Z2
	VPADDQ Z2, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDQ Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPADDQ X1, X0, X0
	VMOVQ X0, AX
	MOVQ AX, ret+16(FP)
	VZEROUPPER
	RET
