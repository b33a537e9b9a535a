//go:build amd64 && !purego

#include "go_asm.h"
#include "textflag.h"
#include "kernels_amd64.h"

// AVX-512 kernels of attention (NUMERICS.md section 8).

// A product with a power of two is exact, so that it may be fused with the sum that follows.

// func scoresAVX512(dst *float32, u *unitSums, exp2q *float32, n, panels int, exps *int16, scale float32)
TEXT ·scoresAVX512(SB), NOSPLIT, $0-52
	MOVQ dst+0(FP), DI
	MOVQ u+8(FP), SI
	MOVQ exp2q+16(FP), R8
	MOVQ n+24(FP), R9
	MOVQ panels+32(FP), R13
	MOVQ exps+40(FP), BX
	CONSTANTS
	VBROADCASTSS C_256, Z16
	VBROADCASTSS scale+48(FP), Z17
	MOVL $0x60000000, AX // the bits of the exponent one of which is set from 2^-63 on
	VPBROADCASTD AX, Z18

scorepanel:
	VPMOVSXWD (BX), Z19
	VPADDD.BCST C_BIAS, Z19, Z19
	VPSLLD $23, Z19, Z19
	MOVQ DI, R11
	MOVQ SI, R12
	MOVQ R8, DX
	MOVQ R9, CX

scorequery:
	VCVTDQ2PS (R12), Z0 // H
	VMOVDQU32 64(R12), Z1
	VPADDD 2048(R12), Z1, Z1
	VCVTDQ2PS Z1, Z1 // M
	VCVTDQ2PS 2112(R12), Z2 // L
	VFMADD213PS Z1, Z16, Z0
	VFMADD213PS Z2, Z16, Z0
	VMULPS.BCST (DX), Z0, Z0
	VMULPS Z19, Z0, Z0
	VMULPS Z17, Z0, Z0
	VPTESTMD Z18, Z0, K1
	VMOVAPS.Z Z0, K1, Z0
	VMOVUPS Z0, (R11)
	ADDQ $128, R12
	ADDQ $256, R11
	ADDQ $4, DX
	DECQ CX
	JNZ  scorequery

	ADDQ $64, DI
	ADDQ $4096, SI
	ADDQ $32, BX
	DECQ R13
	JNZ  scorepanel
	VZEROUPPER
	RET

// ROWMAX makes in z, with temporary t, the lanes' maxima of the 64 values at o(SI).
#define ROWMAX(o, z, t) \
	VMOVUPS (o)(SI), z          \
	VMOVUPS (o+64)(SI), t       \
	VMAXPS (o+128)(SI), z, z    \
	VMAXPS (o+192)(SI), t, t    \
	VMAXPS t, z, z

// PAIRMAX leaves in a the maxima of the halves of a and b in turn, by the unpacking instructions lo and hi; t is a temporary.
#define PAIRMAX(lo, hi, a, b, t) \
	lo b, a, t                  \
	hi b, a, a                  \
	VMAXPS t, a, a

// func highestAVX512(best, x *float32, n int)
// Four queries at a time, the last four again where n is no multiple: it changes nothing.
TEXT ·highestAVX512(SB), NOSPLIT, $0-24
	MOVQ best+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	CMPQ CX, $4
	JLT  highestone

highestfour:
	ROWMAX(0, Z0, Z4)
	ROWMAX(256, Z1, Z5)
	ROWMAX(512, Z2, Z6)
	ROWMAX(768, Z3, Z7)
	PAIRMAX(VUNPCKLPS, VUNPCKHPS, Z0, Z1, Z4)
	PAIRMAX(VUNPCKLPS, VUNPCKHPS, Z2, Z3, Z5)
	PAIRMAX(VUNPCKLPD, VUNPCKHPD, Z0, Z2, Z4)
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VMAXPS (DI), X0, X0
	VMOVUPS X0, (DI)
	SUBQ $4, CX
	JZ   highestdone
	ADDQ $1024, SI
	ADDQ $16, DI
	CMPQ CX, $4
	JGE  highestfour
	SUBQ $4, CX // back to the last four
	LEAQ (DI)(CX*4), DI
	SHLQ $8, CX
	ADDQ CX, SI
	MOVQ $4, CX
	JMP  highestfour

highestone:
	ROWMAX(0, Z0, Z1)
	HIGHEST(Z0, Y0, X0, Y1, X1)
	VMAXSS (DI), X0, X0
	VMOVSS X0, (DI)
	ADDQ $256, SI
	ADDQ $4, DI
	DECQ CX
	JNZ  highestone

highestdone:
	VZEROUPPER
	RET

// JOIN2 makes in Z0 and Z1 the sums with two limbs, of unit sums at BX, and an offset in Z30; JOIN3 those with three, the
// unit sums of the third at R13.
#define JOIN2 \
	VMOVDQU32 64(BX), Z2           \
	VPADDD 2048(BX), Z2, Z2        \
	VPSLLD $8, Z2, Z2              \
	VPADDD 2112(BX), Z2, Z2        \
	VPMOVSXDQ (BX), Z0             \
	VPMOVSXDQ 32(BX), Z1           \
	VPSLLQ $16, Z0, Z0             \
	VPSLLQ $16, Z1, Z1             \
	VPMOVSXDQ Y2, Z3               \
	VEXTRACTI64X4 $1, Z2, Y2       \
	VPMOVSXDQ Y2, Z2               \
	VPADDQ Z30, Z0, Z0             \
	VPADDQ Z30, Z1, Z1             \
	VPADDQ Z3, Z0, Z0              \
	VPADDQ Z2, Z1, Z1

#define JOIN3 \
	VMOVDQU32 64(BX), Z4           \
	VPADDD 2048(BX), Z4, Z4        \
	VMOVDQU32 2112(BX), Z2         \
	VPADDD (R13), Z2, Z2           \
	VPSLLD $8, Z2, Z2              \
	VPADDD 2048(R13), Z2, Z2       \
	VPMOVSXDQ (BX), Z0             \
	VPMOVSXDQ 32(BX), Z1           \
	VPSLLQ $8, Z0, Z0              \
	VPSLLQ $8, Z1, Z1              \
	VPMOVSXDQ Y4, Z3               \
	VEXTRACTI64X4 $1, Z4, Y4       \
	VPMOVSXDQ Y4, Z4               \
	VPADDQ Z3, Z0, Z0              \
	VPADDQ Z4, Z1, Z1              \
	VPSLLQ $16, Z0, Z0             \
	VPSLLQ $16, Z1, Z1             \
	VPMOVSXDQ Y2, Z3               \
	VEXTRACTI64X4 $1, Z2, Y2       \
	VPMOVSXDQ Y2, Z2               \
	VPADDQ Z30, Z0, Z0             \
	VPADDQ Z30, Z1, Z1             \
	VPADDQ Z3, Z0, Z0              \
	VPADDQ Z2, Z1, Z1

// TOTAL adds Z0 and Z1 to the totals at AX and goes on to the next panel.
#define TOTAL \
	VPADDQ (AX), Z0, Z0            \
	VPADDQ 64(AX), Z1, Z1          \
	VMOVDQU64 Z0, (AX)             \
	VMOVDQU64 Z1, 64(AX)           \
	ADDQ $128, AX                  \
	ADDQ $4096, BX                 \
	DECQ DX

// func accumulateAVX512(total *int64, stride int, u, low *unitSums, panels int, parts *blockWeights, tops *int32, n int)
TEXT ·accumulateAVX512(SB), NOSPLIT, $0-64
	MOVQ total+0(FP), DI
	MOVQ stride+8(FP), R11
	SHLQ $3, R11
	MOVQ u+16(FP), SI
	MOVQ low+24(FP), R8
	MOVQ parts+40(FP), R9
	MOVQ tops+48(FP), R12
	MOVQ n+56(FP), R14

sumquery:
	MOVL blockWeights_limbs(R9), AX
	TESTL AX, AX
	JZ   sumnext
	MOVLQSX blockWeights_exp(R9), CX
	MOVLQSX (R12), DX
	SUBQ DX, CX
	ADDQ $12, CX
	CMPQ CX, $-62
	JLT  sumnext
	MOVLQSX blockWeights_sum(R9), R10
	IMULQ $-32896, R10
	MOVQ SI, BX
	MOVQ panels+32(FP), DX
	CMPL AX, $3
	MOVQ DI, AX
	JEQ  sumwide
	TESTQ CX, CX
	JLT  sumright
	VPBROADCASTQ CX, Z31
	VPBROADCASTQ R10, Z30

sumleft:
	JOIN2
	VPSLLVQ Z31, Z0, Z0
	VPSLLVQ Z31, Z1, Z1
	TOTAL
	JNZ  sumleft

sumnext:
	ADDQ $128, SI
	ADDQ $64, R8
	ADDQ R11, DI
	ADDQ $blockWeights__size, R9
	ADDQ $4, R12
	DECQ R14
	JNZ  sumquery
	VZEROUPPER
	RET

sumright:
	NEGQ CX
	VPBROADCASTQ CX, Z31
	DECQ CX
	MOVQ $1, R13
	SHLQ CX, R13
	ADDQ R13, R10
	VPBROADCASTQ R10, Z30

sumrightpanel:
	JOIN2
	VPSRAVQ Z31, Z0, Z0
	VPSRAVQ Z31, Z1, Z1
	TOTAL
	JNZ  sumrightpanel
	JMP  sumnext

sumwide:
	MOVQ R8, R13
	TESTQ CX, CX
	JGE  sumwideleft
	NEGQ CX
	VPBROADCASTQ CX, Z31
	DECQ CX
	MOVQ $1, R15
	SHLQ CX, R15
	ADDQ R15, R10
	XORL CX, CX
	VPBROADCASTQ CX, Z29
	JMP  sumwidepanels

sumwideleft:
	VPBROADCASTQ CX, Z29
	VPXORD Z31, Z31, Z31

sumwidepanels:
	VPBROADCASTQ R10, Z30

sumwidepanel:
	JOIN3
	VPSLLVQ Z29, Z0, Z0
	VPSLLVQ Z29, Z1, Z1
	VPSRAVQ Z31, Z0, Z0
	VPSRAVQ Z31, Z1, Z1
	ADDQ $4096, R13
	TOTAL
	JNZ  sumwidepanel
	JMP  sumnext
