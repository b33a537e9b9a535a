//go:build amd64 && !purego

#include "textflag.h"

// AVX-512 kernels of norms, activations and attention: the functions of NUMERICS.md on 16 values at a time, each
// operation rounded as in the scalar form. Constants are broadcast from vectorConst at offsets C_*.

#define C_ABS     0x00(R10)
#define C_FLUSH   0x04(R10) // bits of 2^-63
#define C_ONE     0x08(R10)
#define C_HALF    0x0c(R10)
#define C_TWO     0x10(R10)
#define C_LOG2E   0x14(R10)
#define C_LN2STEP 0x18(R10)
#define C_MIN60   0x1c(R10) // -60
#define C_TWO24   0x20(R10)
#define C_LOW24   0x24(R10) // integer
#define C_LOW16   0x28(R10)
#define C_LOW8    0x2c(R10)
#define C_MANT    0x30(R10) // mantissa mask
#define C_EXP254  0x34(R10)
#define C_CUBE    0x38(R10)
#define C_GELU    0x3c(R10)
#define C_SIXTEEN 0x40(R10)
#define C_MIN16   0x44(R10)
#define C_256     0x48(R10)
#define C_BIAS    0x4c(R10) // 127
#define C_TWO36   0x50(R10)
#define C_MINP    0x54(R10) // bits of 2^-40

DATA vectorConst<>+0x00(SB)/4, $0x7fffffff
DATA vectorConst<>+0x04(SB)/4, $0x20000000
DATA vectorConst<>+0x08(SB)/4, $0x3f800000
DATA vectorConst<>+0x0c(SB)/4, $0x3f000000
DATA vectorConst<>+0x10(SB)/4, $0x40000000
DATA vectorConst<>+0x14(SB)/4, $0x3fb8aa3b
DATA vectorConst<>+0x18(SB)/4, $0x33317218
DATA vectorConst<>+0x1c(SB)/4, $0xc2700000
DATA vectorConst<>+0x20(SB)/4, $0x4b800000
DATA vectorConst<>+0x24(SB)/4, $0x00ffffff
DATA vectorConst<>+0x28(SB)/4, $0x0000ffff
DATA vectorConst<>+0x2c(SB)/4, $0x000000ff
DATA vectorConst<>+0x30(SB)/4, $0x007fffff
DATA vectorConst<>+0x34(SB)/4, $0x000000fe
DATA vectorConst<>+0x38(SB)/4, $0x3d372713
DATA vectorConst<>+0x3c(SB)/4, $0x3fcc422a
DATA vectorConst<>+0x40(SB)/4, $0x41800000
DATA vectorConst<>+0x44(SB)/4, $0xc1800000
DATA vectorConst<>+0x48(SB)/4, $0x43800000
DATA vectorConst<>+0x4c(SB)/4, $0x0000007f
DATA vectorConst<>+0x50(SB)/4, $0x51800000
DATA vectorConst<>+0x54(SB)/4, $0x2b800000
GLOBL vectorConst<>(SB), RODATA|NOPTR, $0x58

#define CONSTANTS LEAQ vectorConst<>(SB), R10

// FLUSH zeroes what is below 2^-63 in z; t and k are temporaries. NaN passes.
#define FLUSH(z, t, k)            \
	VPANDD.BCST C_ABS, z, t          \
	VPCMPUD.BCST $5, C_FLUSH, t, k   \
	VMOVAPS.Z z, k, z

// EXP replaces x <= 0 in z by e^x. Temporaries: t, u, v and the masks k, k2; R11 points to the exp2 table.
#define EXP(z, t, u, v, k, k2)    \
	VMULPS.BCST C_LOG2E, z, z        \
	VCMPPS.BCST $5, C_MIN60, z, k    \
	VMULPS.BCST C_TWO24, z, z        \
	VCVTPS2DQ z, z                   \
	VPANDD.BCST C_LOW16, z, t        \
	VCVTDQ2PS t, t                   \
	VMULPS.BCST C_LN2STEP, t, t      \
	VMULPS.BCST C_HALF, t, u         \
	VADDPS.BCST C_ONE, u, u          \
	VMULPS t, u, u                   \
	VADDPS.BCST C_ONE, u, u          \
	VPSRLD $16, z, t                 \
	VPANDD.BCST C_LOW8, t, t         \
	KXNORW k2, k2, k2                \
	VPXORD v, v, v                   \
	VGATHERDPS (R11)(t*4), k2, v     \
	VMULPS u, v, v                   \
	VPSRAD $24, z, z                 \
	VPADDD.BCST C_BIAS, z, z         \
	VPSLLD $23, z, z                 \
	VMULPS.Z z, v, k, z

// RECIP replaces d > 0 in z by 1/d. R12 points to the recip table.
#define RECIP(z, t, u, v, k2)     \
	VPANDD.BCST C_MANT, z, t         \
	VPORD.BCST C_ONE, t, t           \
	VPSRLD $15, z, u                 \
	VPANDD.BCST C_LOW8, u, u         \
	KXNORW k2, k2, k2                \
	VPXORD v, v, v                   \
	VGATHERDPS (R12)(u*4), k2, v     \
	VPSRLD $23, z, z                 \
	VPBROADCASTD C_EXP254, u         \
	VPSUBD z, u, z                   \
	VPSLLD $23, z, z                 \
	VMULPS v, t, u                   \
	VBROADCASTSS C_TWO, Z31          \
	VSUBPS u, Z31, u                 \
	VMULPS u, v, v                   \
	VMULPS v, t, u                   \
	VSUBPS u, Z31, u                 \
	VMULPS u, v, v                   \
	VMULPS z, v, z

// SIGMOID replaces x in z by 1/(1+e^-x).
#define SIGMOID(z, e, t, u, v, k, k2)\
	VPXORD t, t, t                   \
	VCMPPS $13, t, z, K5             \
	VPANDD.BCST C_ABS, z, e          \
	VSUBPS e, t, e                   \
	EXP(e, t, u, v, k, k2)           \
	VADDPS.BCST C_ONE, e, z          \
	RECIP(z, t, u, v, k2)            \
	VMULPS z, e, e                   \
	VMOVAPS z, K5, e                 \
	VMOVAPS e, z

// func siluAVX512(y, x, up *float32, n int, exp2, recip *float32)
TEXT ·siluAVX512(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ up+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ exp2+32(FP), R11
	MOVQ recip+40(FP), R12
	CONSTANTS

silu:
	MOVL  $-1, AX
	CMPQ  CX, $16
	JGE   silufull
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX

silufull:
	KMOVW AX, K1
	VMOVUPS.Z (SI), K1, Z0
	VMOVAPS Z0, Z1
	SIGMOID(Z1, Z2, Z3, Z4, Z5, K2, K3)
	VMULPS Z1, Z0, Z0
	FLUSH(Z0, Z3, K2)
	TESTQ DX, DX
	JZ   siluplain
	VMOVUPS.Z (DX), K1, Z1
	VMULPS Z1, Z0, Z0
	FLUSH(Z0, Z3, K2)
	ADDQ $64, DX

siluplain:
	VMOVUPS Z0, K1, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JGT  silu
	VZEROUPPER
	RET

// func geluAVX512(y, x, up *float32, n int, exp2, recip *float32)
TEXT ·geluAVX512(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ up+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ exp2+32(FP), R11
	MOVQ recip+40(FP), R12
	CONSTANTS

gelu:
	MOVL  $-1, AX
	CMPQ  CX, $16
	JGE   gelufull
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX

gelufull:
	KMOVW AX, K1
	VMOVUPS.Z (SI), K1, Z0
	VMULPS Z0, Z0, Z1
	VMULPS Z0, Z1, Z1
	VMULPS.BCST C_CUBE, Z1, Z1
	VADDPS Z1, Z0, Z1
	VMULPS.BCST C_GELU, Z1, Z1
	SIGMOID(Z1, Z2, Z3, Z4, Z5, K2, K3)
	VMULPS Z1, Z0, Z1
	FLUSH(Z1, Z3, K2)
	VCMPPS.BCST $14, C_SIXTEEN, Z0, K2 // x > 16
	VMOVAPS Z0, K2, Z1
	VCMPPS.BCST $5, C_MIN16, Z0, K2 // not x < -16
	VMOVAPS.Z Z1, K2, Z0
	TESTQ DX, DX
	JZ   geluplain
	VMOVUPS.Z (DX), K1, Z1
	VMULPS Z1, Z0, Z0
	FLUSH(Z0, Z3, K2)
	ADDQ $64, DX

geluplain:
	VMOVUPS Z0, K1, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JGT  gelu
	VZEROUPPER
	RET

// func scoresAVX512(dst *float32, hi, lo *int32, exp2q float32, exps *int16, scale float32)
TEXT ·scoresAVX512(SB), NOSPLIT, $0-44
	MOVQ dst+0(FP), DI
	MOVQ hi+8(FP), SI
	MOVQ lo+16(FP), DX
	MOVQ exps+32(FP), BX
	CONSTANTS
	VCVTDQ2PS (SI), Z0 // H
	VMOVDQU32 64(SI), Z1
	VPADDD (DX), Z1, Z1
	VCVTDQ2PS Z1, Z1 // M
	VCVTDQ2PS 64(DX), Z2 // L
	VMULPS.BCST C_256, Z0, Z0
	VADDPS Z1, Z0, Z0
	VMULPS.BCST C_256, Z0, Z0
	VADDPS Z2, Z0, Z0
	VMULPS.BCST exp2q+24(FP), Z0, Z0
	VPMOVSXWD (BX), Z1
	VPADDD.BCST C_BIAS, Z1, Z1
	VPSLLD $23, Z1, Z1
	VMULPS Z1, Z0, Z0
	VMULPS.BCST scale+40(FP), Z0, Z0
	FLUSH(Z0, Z1, K2)
	VMOVUPS Z0, (DI)
	VZEROUPPER
	RET

// func highestAVX512(x *float32, blocks int) float32
// blocks of 16 values.
TEXT ·highestAVX512(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ blocks+8(FP), CX
	VMOVUPS (SI), Z0

highest:
	VMAXPS (SI), Z0, Z0
	ADDQ $64, SI
	DECQ CX
	JNZ  highest
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VMAXPS X1, X0, X0
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func weighAVX512(w *float32, n int, m float32, exps *int16, exp2 *float32) (sum int64, top uint32)
TEXT ·weighAVX512(SB), NOSPLIT, $0-52
	MOVQ w+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTSS m+16(FP), Z10
	MOVQ exps+24(FP), BX
	MOVQ exp2+32(FP), R11
	CONSTANTS
	VPXORD Z8, Z8, Z8 // sum
	VPXORD Z9, Z9, Z9 // largest

weigh:
	MOVL  $-1, AX
	CMPQ  CX, $16
	JGE   weighfull
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX

weighfull:
	KMOVW AX, K1
	VMOVUPS.Z (SI), K1, Z0
	VSUBPS Z10, Z0, Z0
	EXP(Z0, Z3, Z4, Z5, K2, K3)
	VPCMPUD.BCST $5, C_MINP, Z0, K1, K2 // p >= 2^-40, and only the values there are
	VMOVAPS.Z Z0, K2, Z0
	VMULPS.BCST C_TWO36, Z0, Z1
	VCVTPS2QQ Y1, Z2
	VPADDQ Z2, Z8, Z8
	VEXTRACTF64X4 $1, Z1, Y1
	VCVTPS2QQ Y1, Z2
	VPADDQ Z2, Z8, Z8
	VMOVDQU16.Z (BX), K1, Y1
	VPMOVSXWD Y1, Z1
	VPADDD.BCST C_BIAS, Z1, Z1
	VPSLLD $23, Z1, Z1
	VMULPS Z1, Z0, Z0
	VPMAXUD Z0, Z9, Z9
	VMOVUPS Z0, K1, (SI)
	ADDQ $64, SI
	ADDQ $32, BX
	SUBQ $16, CX
	JGT  weigh

	VEXTRACTI64X4 $1, Z8, Y1
	VPADDQ Y1, Y8, Y8
	VEXTRACTI128 $1, Y8, X1
	VPADDQ X1, X8, X8
	VPSHUFD $0x4e, X8, X1
	VPADDQ X1, X8, X8
	VMOVQ X8, AX
	MOVQ AX, sum+40(FP)
	VEXTRACTI64X4 $1, Z9, Y1
	VPMAXUD Y1, Y9, Y9
	VEXTRACTI128 $1, Y9, X1
	VPMAXUD X1, X9, X9
	VPSHUFD $0x4e, X9, X1
	VPMAXUD X1, X9, X9
	VPSHUFD $0xb1, X9, X1
	VPMAXUD X1, X9, X9
	VMOVD X9, AX
	MOVL AX, top+48(FP)
	VZEROUPPER
	RET

// LIMB adds b = b*2^8 + u*2^8 + u2 of limb o/64 for both halves.
#define LIMB(o)                   \
	VPMOVSXDQ (o)(SI), Z2            \
	VPMOVSXDQ (o+32)(SI), Z3         \
	VPMOVSXDQ (o)(DX), Z4            \
	VPMOVSXDQ (o+32)(DX), Z5         \
	VPADDQ Z2, Z0, Z0                \
	VPADDQ Z3, Z1, Z1                \
	VPSLLQ $8, Z0, Z0                \
	VPSLLQ $8, Z1, Z1                \
	VPADDQ Z4, Z0, Z0                \
	VPADDQ Z5, Z1, Z1

// func accumulateAVX512(total *int64, u, u2 *int32, limbs, n int)
TEXT ·accumulateAVX512(SB), NOSPLIT, $0-40
	MOVQ total+0(FP), DI
	MOVQ u+8(FP), SI
	MOVQ u2+16(FP), DX
	MOVQ limbs+24(FP), BX
	MOVQ n+32(FP), CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	LIMB(0)
	LIMB(64)
	CMPQ BX, $3
	JNE  joined
	LIMB(128)

joined:
	TESTQ CX, CX
	JLT  right
	VMOVQ CX, X2
	VPSLLQ X2, Z0, Z0
	VPSLLQ X2, Z1, Z1
	JMP  add

right:
	NEGQ CX
	VMOVQ CX, X2
	DECQ CX
	MOVQ $1, AX
	SHLQ CX, AX
	VPBROADCASTQ AX, Z3
	VPADDQ Z3, Z0, Z0
	VPADDQ Z3, Z1, Z1
	VPSRAQ X2, Z0, Z0
	VPSRAQ X2, Z1, Z1

add:
	VPADDQ (DI), Z0, Z0
	VPADDQ 64(DI), Z1, Z1
	VMOVDQU64 Z0, (DI)
	VMOVDQU64 Z1, 64(DI)
	VZEROUPPER
	RET

// func momentsAVX512(x *float32, n int, scale float32) (sum, squares int64)
TEXT ·momentsAVX512(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTSS scale+16(FP), Z4
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2

moments:
	MOVL  $-1, AX
	CMPQ  CX, $16
	JGE   momentsfull
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX

momentsfull:
	KMOVW AX, K1
	VMOVUPS.Z (SI), K1, Z5
	VMULPS Z4, Z5, Z5
	VCVTPS2DQ Z5, Z5
	VPMOVSXDQ Y5, Z6
	VPADDQ Z6, Z0, Z0
	VEXTRACTI64X4 $1, Z5, Y6
	VPMOVSXDQ Y6, Z6
	VPADDQ Z6, Z0, Z0
	VPMULDQ Z5, Z5, Z6
	VPADDQ Z6, Z1, Z1
	VPSRLQ $32, Z5, Z5
	VPMULDQ Z5, Z5, Z6
	VPADDQ Z6, Z2, Z2
	ADDQ $64, SI
	SUBQ $16, CX
	JGT  moments

	VPADDQ Z2, Z1, Z1
	VEXTRACTI64X4 $1, Z0, Y5
	VPADDQ Y5, Y0, Y0
	VEXTRACTI128 $1, Y0, X5
	VPADDQ X5, X0, X0
	VPSHUFD $0x4e, X0, X5
	VPADDQ X5, X0, X0
	VMOVQ X0, AX
	MOVQ AX, sum+24(FP)
	VEXTRACTI64X4 $1, Z1, Y5
	VPADDQ Y5, Y1, Y1
	VEXTRACTI128 $1, Y1, X5
	VPADDQ X5, X1, X1
	VPSHUFD $0x4e, X1, X5
	VPADDQ X5, X1, X1
	VMOVQ X1, AX
	MOVQ AX, squares+32(FP)
	VZEROUPPER
	RET

// func normaliseAVX512(y, x *float32, n int, r float32, w, b *float32)
TEXT ·normaliseAVX512(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS r+24(FP), Z4
	MOVQ w+32(FP), DX
	MOVQ b+40(FP), BX
	CONSTANTS

normalise:
	MOVL  $-1, AX
	CMPQ  CX, $16
	JGE   normalisefull
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX

normalisefull:
	KMOVW AX, K1
	VMOVUPS.Z (SI), K1, Z0
	VMULPS Z4, Z0, Z0
	FLUSH(Z0, Z1, K2)
	VMOVUPS.Z (DX), K1, Z1
	VMULPS Z1, Z0, Z0
	TESTQ BX, BX
	JZ   nobias
	VMOVUPS.Z (BX), K1, Z1
	VADDPS Z1, Z0, Z0
	ADDQ $64, BX

nobias:
	FLUSH(Z0, Z1, K2)
	VMOVUPS Z0, K1, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	ADDQ $64, DX
	SUBQ $16, CX
	JGT  normalise
	VZEROUPPER
	RET
