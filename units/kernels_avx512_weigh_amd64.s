//go:build amd64 && !purego

#include "go_asm.h"
#include "textflag.h"
#include "kernels_amd64.h"

// The weights of attention (NUMERICS.md section 8) and their limbs in one pass, for AVX-512.

// Constants of weighAVX512, at R10: the order in which groups of 4 positions come out of the packing of four registers, then
// single values.
DATA ·weighConst+0x00(SB)/8, $0x0000000400000000
DATA ·weighConst+0x08(SB)/8, $0x0000000c00000008
DATA ·weighConst+0x10(SB)/8, $0x0000000500000001
DATA ·weighConst+0x18(SB)/8, $0x0000000d00000009
DATA ·weighConst+0x20(SB)/8, $0x0000000600000002
DATA ·weighConst+0x28(SB)/8, $0x0000000e0000000a
DATA ·weighConst+0x30(SB)/8, $0x0000000700000003
DATA ·weighConst+0x38(SB)/8, $0x0000000f0000000b
DATA ·weighConst+0x40(SB)/8, $0x8080800680808002 // byte 2 of each word
DATA ·weighConst+0x48(SB)/8, $0x8080800e8080800a
DATA ·weighConst+0x50(SB)/4, $0x4bb8aa3b // log2 e * 2^24
DATA ·weighConst+0x54(SB)/4, $0xd8000000 // -40 * 2^24
DATA ·weighConst+0x58(SB)/4, $0x0000ffff
DATA ·weighConst+0x5c(SB)/4, $0x4b000000 // bits of 2^23
DATA ·weighConst+0x60(SB)/4, $0x33317218 // ln 2 * 2^-24
DATA ·weighConst+0x64(SB)/4, $0xbeb17218 // the same times -2^23
DATA ·weighConst+0x68(SB)/4, $0x3f000000 // 0.5
DATA ·weighConst+0x6c(SB)/4, $0x3f800000 // 1
DATA ·weighConst+0x70(SB)/4, $0xff800000
DATA ·weighConst+0x74(SB)/4, $0x39400000 // 1.5 * 2^-13
DATA ·weighConst+0x78(SB)/4, $0x1b000000 // its bits, times -4
DATA ·weighConst+0x7c(SB)/4, $0x42000000 // 32
DATA ·weighConst+0x80(SB)/4, $0x00800080
DATA ·weighConst+0x84(SB)/4, $0x00010001
DATA ·weighConst+0x88(SB)/4, $0x00ff00ff
DATA ·weighConst+0x8c(SB)/4, $0x000000ff
DATA ·weighConst+0x90(SB)/4, $0x4afefefe // 8355711
DATA ·weighConst+0x94(SB)/4, $127
DATA ·weighConst+0x98(SB)/4, $128
DATA ·weighConst+0x9c(SB)/4, $0x43800000 // 256
GLOBL ·weighConst(SB), RODATA|NOPTR, $0xa0

#define W_ORDER   0x00(R10)
#define W_BYTE2   0x40(R10)
#define W_LOG2E   0x50(R10)
#define W_LEAST   0x54(R10)
#define W_LOW16   0x58(R10)
#define W_TWO23   0x5c(R10)
#define W_STEP    0x60(R10)
#define W_STEP23  0x64(R10)
#define W_HALF    0x68(R10)
#define W_ONE     0x6c(R10)
#define W_EXPS    0x70(R10)
#define W_MAGIC   0x74(R10)
#define W_MAGICS  0x78(R10)
#define W_32      0x7c(R10)
#define W_128S    0x80(R10)
#define W_ONES    0x84(R10)
#define W_BYTES   0x88(R10)
#define W_BYTE    0x8c(R10)
#define W_MOST3   0x90(R10)
#define W_BIAS    0x94(R10)
#define W_128     0x98(R10)
#define W_256     0x9c(R10)

// POWERS makes the powers of two of 16 exponents at o(BX).
#define POWERS(o, z) \
	VPMOVSXWD (o)(BX), z        \
	VPADDD.BCST W_BIAS, z, z    \
	VPSLLD $23, z, z

// STEPS makes i = RNE((s - m) * log2 e * 2^24) of 16 scores at o(SI), and the mask of those whose p is at least 2^-40, which is
// where i >= -40 * 2^24.
#define STEPS(o, z, k) \
	VMOVUPS (o)(SI), z          \
	VSUBPS Z15, z, z            \
	VMULPS Z16, z, z            \
	VCVTPS2DQ z, z              \
	VPCMPD $5, Z17, z, k

// WEIGH makes of i in z the weights p * 2^ev and adds p to D. The low 16 bits become a float as the low bits of one of 2^23,
// which the fused product takes off again; 2^n goes into the exponent by an integer addition. p is cut at 2^-18: what is above
// is added to the floats in from, giving those in to, which stay between 32 and 64, and RNE(what is below * 2^36) is added to
// the integers in Z11, with the bits of 1.5 * 2^-13.
#define WEIGH(z, k, ev, from, to) \
	VMOVDQA32 z, Z4                  \
	VPTERNLOGD $0xea, Z19, Z18, Z4   \
	VFMADD213PS Z21, Z20, Z4         \
	VMOVAPS Z23, Z5                  \
	VFMADD231PS Z22, Z4, Z5          \
	VMULPS Z4, Z5, Z5                \
	VADDPS Z23, Z5, Z5               \
	VPSHUFB Z24, z, Z6               \
	KMOVW k, K5                      \
	VPXORD Z7, Z7, Z7                \
	VGATHERDPS (R11)(Z6*4), K5, Z7   \
	VMULPS Z5, Z7, Z7                \
	VPSRAD $1, z, z                  \
	VPANDD Z25, z, z                 \
	VPADDD.Z Z7, z, k, z             \
	VADDPS z, from, to               \
	VSUBPS from, to, Z14             \
	VSUBPS Z14, z, Z14               \
	VADDPS Z26, Z14, Z14             \
	VPADDD Z14, Z11, Z11             \
	VMULPS ev, z, z

// QUANTISE makes integers in z of the weights w and the scale in Z5.
#define QUANTISE(w, z) \
	VMULPS Z5, w, z        \
	VCVTPS2DQ z, z

#define QUANTISE3(w, z) \
	VMULPS Z5, w, z            \
	VMINPS.BCST W_MOST3, z, z  \
	VCVTPS2DQ z, z

// WORDS packs the integers 0 to 32640 of Z6 to Z9 into the words of Z10 and Z11, LIMBS those into two limb rows at DI, low
// limbs also in Z13.
#define WORDS \
	VPACKSSDW Z7, Z6, Z10   \
	VPACKSSDW Z9, Z8, Z11

#define LIMBS \
	VPANDD.BCST W_BYTES, Z10, Z13   \
	VPANDD.BCST W_BYTES, Z11, Z14   \
	VPACKUSWB Z14, Z13, Z13         \
	VPMULHRSW Z31, Z10, Z10         \
	VPMULHRSW Z31, Z11, Z11         \
	VPACKSSWB Z11, Z10, Z10         \
	VPERMD Z13, Z15, Z13            \
	VPERMD Z10, Z15, Z10            \
	VMOVDQU32 Z10, (DI)             \
	VMOVDQU32 Z13, 64(DI)

// func weighAVX512(x *float32, low *int8, parts *blockWeights, m *float32, exps *int16, sums *weightSums, n int, exp2 *float32)
// Limb rows are stored where the scores of the same query, or of one before, were.
TEXT ·weighAVX512(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), SI
	MOVQ SI, DI
	MOVQ low+8(FP), R8
	MOVQ parts+16(FP), R9
	MOVQ m+24(FP), R12
	MOVQ exps+32(FP), BX
	MOVQ sums+40(FP), R13
	MOVQ n+48(FP), R14
	MOVQ exp2+56(FP), R11
	LEAQ ·weighConst(SB), R10
	VBROADCASTSS W_LOG2E, Z16
	VPBROADCASTD W_LEAST, Z17
	VPBROADCASTD W_LOW16, Z18
	VPBROADCASTD W_TWO23, Z19
	VBROADCASTSS W_STEP, Z20
	VBROADCASTSS W_STEP23, Z21
	VBROADCASTSS W_HALF, Z22
	VBROADCASTSS W_ONE, Z23
	VBROADCASTI32X4 W_BYTE2, Z24
	VPBROADCASTD W_EXPS, Z25
	VBROADCASTSS W_MAGIC, Z26
	POWERS(0, Z27)
	POWERS(32, Z28)
	POWERS(64, Z29)
	POWERS(96, Z30)
	VPBROADCASTD W_128S, Z31

weighquery:
	VBROADCASTSS (R12), Z15
	STEPS(0, Z0, K1)
	STEPS(64, Z1, K2)
	STEPS(128, Z2, K3)
	STEPS(192, Z3, K4)
	KORW K1, K2, K5
	KORW K3, K4, K6
	KORTESTW K5, K6
	JZ   weighnone
	VBROADCASTSS W_32, Z12
	VPBROADCASTD W_MAGICS, Z11
	WEIGH(Z0, K1, Z27, Z12, Z13)
	WEIGH(Z1, K2, Z28, Z13, Z12)
	WEIGH(Z2, K3, Z29, Z12, Z13)
	WEIGH(Z3, K4, Z30, Z13, Z12)
	VPSUBD.BCST W_32, Z12, Z12
	VPADDD (R13), Z12, Z12
	VPADDD 64(R13), Z11, Z11
	VMOVDQU32 Z12, (R13)
	VMOVDQU32 Z11, 64(R13)

	// The exponent: adding to the bits carries where the largest would round to more than 32639.
	VMAXPS Z1, Z0, Z4
	VMAXPS Z3, Z2, Z5
	VMAXPS Z5, Z4, Z4
	HIGHEST(Z4, Y4, X4, Y5, X5)
	VMOVD X4, AX
	LEAL 0x10100(AX), CX
	SHRL $23, CX
	SUBL $141, CX
	MOVL $-80, DX
	CMPL CX, DX
	CMOVLLT DX, CX
	MOVL $127, DX
	SUBL CX, DX
	SHLL $23, DX
	VPBROADCASTD DX, Z5
	QUANTISE(Z0, Z6)
	QUANTISE(Z1, Z7)
	QUANTISE(Z2, Z8)
	QUANTISE(Z3, Z9)
	VMULSS X5, X4, X4
	VCVTSS2SI X4, DX
	SHRL $1, DX // A
	VMOVDQU32 W_ORDER, Z15
	WORDS
	VPXORD Z12, Z12, Z12
	VPDPWSSD.BCST W_ONES, Z10, Z12
	VPDPWSSD.BCST W_ONES, Z11, Z12
	LIMBS
	REDUCE(Z12, Y12, X12, Y14, X14)
	VMOVD X12, AX
	MOVL AX, blockWeights_sum(R9)

	// Rule 4: the sum of q>>1 is half of what the sum of q exceeds the number of odd ones by.
	VPSLLW $7, Z13, Z13
	VPMOVB2M Z13, K5
	KMOVQ K5, BX
	POPCNTQ BX, BX
	SUBL BX, AX
	SHRL $1, AX
	SUBL DX, AX // S
	MOVL DX, BX
	CMPL blockWeights_seen(R9), $64
	JNE  weighdivide
	SHRL $6, AX

weighrule:
	IMULL $48, AX
	CMPL BX, AX
	JHI  weighwide
	MOVL CX, blockWeights_exp(R9)
	MOVL $2, blockWeights_limbs(R9)

weighnext:
	ADDQ $256, SI
	ADDQ $128, DI
	ADDQ $64, R8
	ADDQ $blockWeights__size, R9
	ADDQ $4, R12
	ADDQ $128, R13
	DECQ R14
	JNZ  weighquery
	VZEROUPPER
	RET

weighdivide:
	XORL DX, DX
	DIVL blockWeights_seen(R9)
	JMP  weighrule

weighwide:
	VMULPS.BCST W_256, Z5, Z5
	QUANTISE3(Z0, Z6)
	QUANTISE3(Z1, Z7)
	QUANTISE3(Z2, Z8)
	QUANTISE3(Z3, Z9)
	VPADDD Z7, Z6, Z12
	VPADDD Z9, Z8, Z13
	VPADDD Z13, Z12, Z12
	REDUCE(Z12, Y12, X12, Y14, X14)
	VMOVD X12, blockWeights_sum(R9)
	VPANDD.BCST W_BYTE, Z6, Z10
	VPANDD.BCST W_BYTE, Z7, Z11
	VPANDD.BCST W_BYTE, Z8, Z13
	VPANDD.BCST W_BYTE, Z9, Z14
	VPACKSSDW Z11, Z10, Z10
	VPACKSSDW Z14, Z13, Z13
	VPACKUSWB Z13, Z10, Z10
	VPERMD Z10, Z15, Z10
	VMOVDQU32 Z10, (R8)

	// What is left above the third limb are integers of two.
	VPBROADCASTD W_128, Z14
	VPADDD Z14, Z6, Z6
	VPADDD Z14, Z7, Z7
	VPADDD Z14, Z8, Z8
	VPADDD Z14, Z9, Z9
	VPSRAD $8, Z6, Z6
	VPSRAD $8, Z7, Z7
	VPSRAD $8, Z8, Z8
	VPSRAD $8, Z9, Z9
	WORDS
	LIMBS
	SUBL $8, CX
	MOVL CX, blockWeights_exp(R9)
	MOVL $3, blockWeights_limbs(R9)
	JMP  weighnext

weighnone:
	VPXORD Z4, Z4, Z4
	VMOVDQU32 Z4, (DI)
	VMOVDQU32 Z4, 64(DI)
	MOVL $0, blockWeights_limbs(R9)
	JMP  weighnext
