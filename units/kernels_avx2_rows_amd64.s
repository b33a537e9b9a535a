//go:build amd64 && !purego

#include "textflag.h"
#include "kernels_amd64.h" // the constants

// AVX2 kernels of norms, activations and attention: 8 values at a time, each operation rounded as in the scalar form.
// All work on whole blocks of 8.

// FLUSHY zeroes what is below 2^-63 in z; t and u are temporaries. NaN passes.
#define FLUSHY(z, t, u) \
	VBROADCASTSS C_ABS, t   \
	VPAND z, t, t           \
	VBROADCASTSS C_FLUSH, u \
	VPCMPGTD t, u, t        \
	VPANDN z, t, z

// EXPY replaces x <= 0 in z by e^x. Temporaries: k, t, u, v, w; R11 points to the exp2 table.
#define EXPY(z, k, t, u, v, w) \
	VBROADCASTSS C_LOG2E, t     \
	VMULPS t, z, z              \
	VBROADCASTSS C_MIN60, t     \
	VCMPPS $5, t, z, k          \
	VBROADCASTSS C_TWO24, t     \
	VMULPS t, z, z              \
	VCVTPS2DQ z, z              \
	VBROADCASTSS C_LOW16, t     \
	VPAND z, t, t               \
	VCVTDQ2PS t, t              \
	VBROADCASTSS C_LN2STEP, u   \
	VMULPS u, t, t              \
	VBROADCASTSS C_HALF, u      \
	VMULPS t, u, u              \
	VBROADCASTSS C_ONE, v       \
	VADDPS v, u, u              \
	VMULPS t, u, u              \
	VADDPS v, u, u              \
	VPSRLD $16, z, t            \
	VBROADCASTSS C_LOW8, v      \
	VPAND v, t, t               \
	VPCMPEQD w, w, w            \
	VGATHERDPS w, (R11)(t*4), v \
	VMULPS u, v, v              \
	VPSRAD $24, z, z            \
	VBROADCASTSS C_BIAS, t      \
	VPADDD t, z, z              \
	VPSLLD $23, z, z            \
	VMULPS z, v, z              \
	VPAND k, z, z

// RECIPY replaces d > 0 in z by 1/d. Temporaries: t, u, v, w; R12 points to the recip table.
#define RECIPY(z, t, u, v, w) \
	VBROADCASTSS C_MANT, t      \
	VPAND z, t, t               \
	VBROADCASTSS C_ONE, u       \
	VPOR u, t, t                \
	VPSRLD $15, z, u            \
	VBROADCASTSS C_LOW8, v      \
	VPAND v, u, u               \
	VPCMPEQD w, w, w            \
	VGATHERDPS w, (R12)(u*4), v \
	VPSRLD $23, z, z            \
	VBROADCASTSS C_EXP254, u    \
	VPSUBD z, u, z              \
	VPSLLD $23, z, z            \
	VBROADCASTSS C_TWO, w       \
	VMULPS v, t, u              \
	VSUBPS u, w, u              \
	VMULPS u, v, v              \
	VMULPS v, t, u              \
	VSUBPS u, w, u              \
	VMULPS u, v, v              \
	VMULPS z, v, z

// SIGMOIDY replaces x in Y1 by 1/(1+e^-x), with Y2 to Y8.
#define SIGMOIDY \
	VPXOR Y3, Y3, Y3                   \
	VCMPPS $13, Y3, Y1, Y8             \
	VBROADCASTSS C_ABS, Y4             \
	VPAND Y4, Y1, Y2                   \
	VSUBPS Y2, Y3, Y2                  \
	EXPY(Y2, Y7, Y3, Y4, Y5, Y6)       \
	VBROADCASTSS C_ONE, Y3             \
	VADDPS Y3, Y2, Y1                  \
	RECIPY(Y1, Y3, Y4, Y5, Y6)         \
	VMULPS Y1, Y2, Y2                  \
	VBLENDVPS Y8, Y1, Y2, Y1

#define ACTARGS \
	MOVQ y+0(FP), DI       \
	MOVQ x+8(FP), SI       \
	MOVQ up+16(FP), DX     \
	MOVQ blocks+24(FP), CX \
	MOVQ exp2+32(FP), R11  \
	MOVQ recip+40(FP), R12 \
	CONSTANTS

// GATE multiplies Y0 by up, if there is one, and stores it.
#define GATE(plain) \
	TESTQ DX, DX         \
	JZ   plain           \
	VMULPS (DX), Y0, Y0  \
	FLUSHY(Y0, Y3, Y4)   \
	ADDQ $32, DX         \
plain:                 \
	VMOVUPS Y0, (DI)     \
	ADDQ $32, SI         \
	ADDQ $32, DI

// func siluX8(y, x, up *float32, blocks int, exp2, recip *float32)
TEXT ·siluX8(SB), NOSPLIT, $0-48
	ACTARGS

silu:
	VMOVUPS (SI), Y0
	VMOVAPS Y0, Y1
	SIGMOIDY
	VMULPS Y1, Y0, Y0
	FLUSHY(Y0, Y3, Y4)
	GATE(siluplain)
	DECQ CX
	JNZ  silu
	VZEROUPPER
	RET

// func geluX8(y, x, up *float32, blocks int, exp2, recip *float32)
TEXT ·geluX8(SB), NOSPLIT, $0-48
	ACTARGS

gelu:
	VMOVUPS (SI), Y0
	VMULPS Y0, Y0, Y1
	VMULPS Y0, Y1, Y1
	VBROADCASTSS C_CUBE, Y2
	VMULPS Y2, Y1, Y1
	VADDPS Y1, Y0, Y1
	VBROADCASTSS C_GELU, Y2
	VMULPS Y2, Y1, Y1
	SIGMOIDY
	VMULPS Y1, Y0, Y1
	FLUSHY(Y1, Y3, Y4)
	VBROADCASTSS C_SIXTEEN, Y2
	VCMPPS $14, Y2, Y0, Y2 // x > 16
	VBLENDVPS Y2, Y0, Y1, Y1
	VBROADCASTSS C_MIN16, Y2
	VCMPPS $5, Y2, Y0, Y2 // not x < -16
	VPAND Y2, Y1, Y0
	GATE(geluplain)
	DECQ CX
	JNZ  gelu
	VZEROUPPER
	RET

// func scoresX16(dst *float32, hi, lo *int32, exp2q float32, exps *int16, scale float32)
TEXT ·scoresX16(SB), NOSPLIT, $0-44
	MOVQ dst+0(FP), DI
	MOVQ hi+8(FP), SI
	MOVQ lo+16(FP), DX
	MOVQ exps+32(FP), BX
	CONSTANTS
	VBROADCASTSS exp2q+24(FP), Y7
	VBROADCASTSS scale+40(FP), Y8
	VBROADCASTSS C_256, Y9
	VBROADCASTSS C_BIAS, Y10
	MOVQ $2, CX

scores:
	VCVTDQ2PS (SI), Y0 // H
	VMOVDQU 64(SI), Y1
	VPADDD (DX), Y1, Y1
	VCVTDQ2PS Y1, Y1 // M
	VCVTDQ2PS 64(DX), Y2 // L
	VMULPS Y9, Y0, Y0
	VADDPS Y1, Y0, Y0
	VMULPS Y9, Y0, Y0
	VADDPS Y2, Y0, Y0
	VMULPS Y7, Y0, Y0
	VPMOVSXWD (BX), Y1
	VPADDD Y10, Y1, Y1
	VPSLLD $23, Y1, Y1
	VMULPS Y1, Y0, Y0
	VMULPS Y8, Y0, Y0
	FLUSHY(Y0, Y3, Y4)
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	ADDQ $16, BX
	DECQ CX
	JNZ  scores
	VZEROUPPER
	RET

// func weighX8(w *float32, blocks int, m float32, exps *int16, exp2 *float32) (sum int64, top uint32)
// RNE(p * 2^36) as an integer is what adding 1.5 * 2^52 leaves in the low bits of a float64.
TEXT ·weighX8(SB), NOSPLIT, $0-52
	MOVQ w+0(FP), SI
	MOVQ blocks+8(FP), CX
	VBROADCASTSS m+16(FP), Y10
	MOVQ exps+24(FP), BX
	MOVQ exp2+32(FP), R11
	CONSTANTS
	MOVQ $0x4338000000000000, AX
	VMOVQ AX, X11
	VPBROADCASTQ X11, Y11
	VPXOR Y8, Y8, Y8 // sum
	VPXOR Y9, Y9, Y9 // largest

weigh:
	VMOVUPS (SI), Y0
	VSUBPS Y10, Y0, Y0
	EXPY(Y0, Y7, Y3, Y4, Y5, Y6)
	VBROADCASTSS C_MINP, Y1
	VPCMPGTD Y0, Y1, Y1 // p < 2^-40
	VPANDN Y0, Y1, Y0
	VBROADCASTSS C_TWO36, Y1
	VMULPS Y1, Y0, Y1
	VCVTPS2PD X1, Y2
	VADDPD Y11, Y2, Y2
	VPSUBQ Y11, Y2, Y2
	VPADDQ Y2, Y8, Y8
	VEXTRACTF128 $1, Y1, X1
	VCVTPS2PD X1, Y2
	VADDPD Y11, Y2, Y2
	VPSUBQ Y11, Y2, Y2
	VPADDQ Y2, Y8, Y8
	VPMOVSXWD (BX), Y1
	VBROADCASTSS C_BIAS, Y2
	VPADDD Y2, Y1, Y1
	VPSLLD $23, Y1, Y1
	VMULPS Y1, Y0, Y0
	VPMAXUD Y0, Y9, Y9
	VMOVUPS Y0, (SI)
	ADDQ $32, SI
	ADDQ $16, BX
	DECQ CX
	JNZ  weigh

	VEXTRACTI128 $1, Y8, X1
	VPADDQ X1, X8, X8
	VPSHUFD $0x4e, X8, X1
	VPADDQ X1, X8, X8
	VMOVQ X8, AX
	MOVQ AX, sum+40(FP)
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

// func momentsX8(x *float32, blocks int, scale float32) (sum, squares int64)
TEXT ·momentsX8(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), SI
	MOVQ blocks+8(FP), CX
	VBROADCASTSS scale+16(FP), Y4
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2

moments:
	VMULPS (SI), Y4, Y5
	VCVTPS2DQ Y5, Y5
	VPMOVSXDQ X5, Y6
	VPADDQ Y6, Y0, Y0
	VEXTRACTI128 $1, Y5, X6
	VPMOVSXDQ X6, Y6
	VPADDQ Y6, Y0, Y0
	VPMULDQ Y5, Y5, Y6
	VPADDQ Y6, Y1, Y1
	VPSRLQ $32, Y5, Y5
	VPMULDQ Y5, Y5, Y6
	VPADDQ Y6, Y2, Y2
	ADDQ $32, SI
	DECQ CX
	JNZ  moments

	VPADDQ Y2, Y1, Y1
	VEXTRACTI128 $1, Y0, X5
	VPADDQ X5, X0, X0
	VPSHUFD $0x4e, X0, X5
	VPADDQ X5, X0, X0
	VMOVQ X0, AX
	MOVQ AX, sum+24(FP)
	VEXTRACTI128 $1, Y1, X5
	VPADDQ X5, X1, X1
	VPSHUFD $0x4e, X1, X5
	VPADDQ X5, X1, X1
	VMOVQ X1, AX
	MOVQ AX, squares+32(FP)
	VZEROUPPER
	RET

// func normaliseX8(y, x *float32, blocks int, r float32, w, b *float32)
TEXT ·normaliseX8(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ blocks+16(FP), CX
	VBROADCASTSS r+24(FP), Y5
	MOVQ w+32(FP), DX
	MOVQ b+40(FP), BX
	CONSTANTS

normalise:
	VMULPS (SI), Y5, Y0
	FLUSHY(Y0, Y3, Y4)
	VMULPS (DX), Y0, Y0
	TESTQ BX, BX
	JZ   nobias
	VADDPS (BX), Y0, Y0
	ADDQ $32, BX

nobias:
	FLUSHY(Y0, Y3, Y4)
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, DX
	DECQ CX
	JNZ  normalise
	VZEROUPPER
	RET
