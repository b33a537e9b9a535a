//go:build amd64 && !purego

#include "textflag.h"
#include "kernels_amd64.h"

// AVX-512 kernels of attention (NUMERICS.md section 8).

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
