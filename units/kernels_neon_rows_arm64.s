//go:build arm64 && !purego

#include "textflag.h"
#include "kernels_arm64.h"

// NEON kernels of norms, activations and attention: four values at a time, each operation rounded as in the scalar form.

// EXPCONSTS loads the constants of EXP, RECIPCONSTS those that RECIP and SIGMOID need beside them.
#define EXPCONSTS \
	SET(0x3fb8aa3b, V16) /* log2(e) */      \
	SET(0xc2700000, V17) /* -60 */          \
	SET(0x4b800000, V18) /* 2^24 */         \
	SET(0x0000ffff, V19)                    \
	SET(0x33317218, V20) /* ln(2) * 2^-24 */\
	SET(0x3f000000, V21) /* 0.5 */          \
	SET(0x3f800000, V22) /* 1 */            \
	SET(0x000000ff, V23)                    \
	SET(127, V24)

#define RECIPCONSTS \
	SET(0x007fffff, V25) /* mantissa */ \
	SET(254, V26)                       \
	SET(0x40000000, V27) /* 2 */        \
	SET(0x80000000, V28) /* sign */

// GATHER replaces the indices in V4 by the entries of the table at r.
#define GATHER(r) \
	VMOV V4.S[0], R8    \
	VMOV V4.S[1], R9    \
	VMOV V4.S[2], R10   \
	VMOV V4.S[3], R11   \
	ADD  R8<<2, r, R8   \
	ADD  R9<<2, r, R9   \
	ADD  R10<<2, r, R10 \
	ADD  R11<<2, r, R11 \
	VLD1 (R8), V4.S[0]  \
	VLD1 (R9), V4.S[1]  \
	VLD1 (R10), V4.S[2] \
	VLD1 (R11), V4.S[3]

// EXP replaces x <= 0 in V0 by e^x, with V1 to V4; R6 points to the exp2 table.
#define EXP \
	FMUL4S(16, 0, 0)               \
	FCMGT4S(0, 17, 1)              \
	FMUL4S(18, 0, 0)               \
	FCVTNS4S(0, 0)                 \
	VUSHR $16, V0.S4, V4.S4        \
	VAND V23.B16, V4.B16, V4.B16   \
	GATHER(R6)                     \
	VAND V19.B16, V0.B16, V2.B16   \
	SCVTF4S(2, 2)                  \
	FMUL4S(20, 2, 2)               \
	FMUL4S(21, 2, 3)               \
	FADD4S(22, 3, 3)               \
	FMUL4S(2, 3, 3)                \
	FADD4S(22, 3, 3)               \
	FMUL4S(3, 4, 4)                \
	SSHR4S(24, 0, 0)               \
	VADD V24.S4, V0.S4, V0.S4      \
	VSHL $23, V0.S4, V0.S4         \
	FMUL4S(0, 4, 0)                \
	BIC16B(1, 0, 0)

// RECIP replaces d > 0 in V0 by 1/d, with V1 to V4; R5 points to the recip table.
#define RECIP \
	VUSHR $15, V0.S4, V4.S4        \
	VAND V23.B16, V4.B16, V4.B16   \
	GATHER(R5)                     \
	VAND V25.B16, V0.B16, V1.B16   \
	VORR V22.B16, V1.B16, V1.B16   \
	VUSHR $23, V0.S4, V0.S4        \
	VSUB V0.S4, V26.S4, V0.S4      \
	VSHL $23, V0.S4, V0.S4         \
	FMUL4S(4, 1, 2)                \
	FSUB4S(2, 27, 2)               \
	FMUL4S(2, 4, 4)                \
	FMUL4S(4, 1, 2)                \
	FSUB4S(2, 27, 2)               \
	FMUL4S(2, 4, 4)                \
	FMUL4S(0, 4, 0)

// SIGMOID makes 1/(1+e^-x) of V5 in V0, with V1 to V7.
#define SIGMOID \
	FCMGEZ4S(5, 7)                 \
	VORR V28.B16, V5.B16, V0.B16   \
	EXP                            \
	VMOV V0.B16, V6.B16            \
	FADD4S(22, 0, 0)               \
	RECIP                          \
	FMUL4S(0, 6, 6)                \
	VBIF V7.B16, V6.B16, V0.B16

#define ACTARGS \
	MOVD y+0(FP), R0      \
	MOVD x+8(FP), R1      \
	MOVD up+16(FP), R2    \
	MOVD blocks+24(FP), R3\
	LSL  $1, R3           \
	MOVD exp2+32(FP), R6  \
	MOVD recip+40(FP), R5 \
	EXPCONSTS             \
	RECIPCONSTS           \
	FLUSHCONST

// GATE multiplies V0 by up, if there is one, and stores it.
#define GATE(plain) \
	CBZ  R2, plain            \
	VLD1.P 16(R2), [V9.S4]    \
	FMUL4S(9, 0, 0)           \
	FLUSH(0, 1)               \
plain:                     \
	VST1.P [V0.S4], 16(R0)

// func siluX8(y, x, up *float32, blocks int, exp2, recip *float32)
TEXT ·siluX8(SB), NOSPLIT, $0-48
	ACTARGS

silu:
	VLD1.P 16(R1), [V8.S4]
	VMOV V8.B16, V5.B16
	SIGMOID
	FMUL4S(8, 0, 0)
	FLUSH(0, 1)
	GATE(siluplain)
	SUB  $1, R3
	CBNZ R3, silu
	RET

// func geluX8(y, x, up *float32, blocks int, exp2, recip *float32)
TEXT ·geluX8(SB), NOSPLIT, $0-48
	ACTARGS
	SET(0x3d372713, V29) // 0.044715
	SET(0x3fcc422a, V31) // 2*sqrt(2/pi)
	SET(0x41800000, V15) // 16
	SET(0xc1800000, V14) // -16

gelu:
	VLD1.P 16(R1), [V8.S4]
	FMUL4S(8, 8, 5)
	FMUL4S(8, 5, 5)
	FMUL4S(29, 5, 5)
	FADD4S(5, 8, 5)
	FMUL4S(31, 5, 5)
	SIGMOID
	FMUL4S(8, 0, 0)
	FLUSH(0, 1)
	FCMGT4S(15, 8, 1)
	VBIT V1.B16, V8.B16, V0.B16
	FCMGT4S(8, 14, 1)
	BIC16B(1, 0, 0)
	GATE(geluplain)
	SUB  $1, R3
	CBNZ R3, gelu
	RET

// func scoresX16(dst *float32, hi, lo *int32, exp2q float32, exps *int16, scale float32)
TEXT ·scoresX16(SB), NOSPLIT, $0-44
	MOVD dst+0(FP), R0
	MOVD hi+8(FP), R1
	MOVD lo+16(FP), R2
	FMOVS exp2q+24(FP), F28
	VDUP V28.S[0], V28.S4
	MOVD exps+32(FP), R3
	FMOVS scale+40(FP), F29
	VDUP V29.S[0], V29.S4
	FLUSHCONST
	SET(0x43800000, V31) // 256
	SET(127, V27)
	MOVD $4, R4

scores:
	FMOVQ (R1), F0 // H
	FMOVQ 64(R1), F1
	FMOVQ (R2), F2
	FMOVQ 64(R2), F3 // L
	VADD V2.S4, V1.S4, V1.S4 // M
	SCVTF4S(0, 0)
	SCVTF4S(1, 1)
	SCVTF4S(3, 3)
	FMUL4S(31, 0, 0)
	FADD4S(1, 0, 0)
	FMUL4S(31, 0, 0)
	FADD4S(3, 0, 0)
	FMUL4S(28, 0, 0)
	VLD1.P 8(R3), [V4.H4]
	SSHLL4S(0, 4, 4)
	VADD V27.S4, V4.S4, V4.S4
	VSHL $23, V4.S4, V4.S4
	FMUL4S(4, 0, 0)
	FMUL4S(29, 0, 0)
	FLUSH(0, 1)
	VST1.P [V0.S4], 16(R0)
	ADD  $16, R1
	ADD  $16, R2
	SUB  $1, R4
	CBNZ R4, scores
	RET

// func highestX8(x *float32, blocks int) float32
TEXT ·highestX8(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD blocks+8(FP), R1
	VLD1 (R0), [V0.S4, V1.S4]

highest:
	VLD1.P 32(R0), [V2.S4, V3.S4]
	FMAX4S(2, 0, 0)
	FMAX4S(3, 1, 1)
	SUB  $1, R1
	CBNZ R1, highest
	FMAX4S(1, 0, 0)
	FMAXVS(0, 0)
	FMOVS F0, ret+16(FP)
	RET

// func weighX8(w *float32, blocks int, m float32, exps *int16, exp2 *float32) (sum int64, top uint32)
TEXT ·weighX8(SB), NOSPLIT, $0-52
	MOVD w+0(FP), R0
	MOVD blocks+8(FP), R3
	LSL  $1, R3
	FMOVS m+16(FP), F15
	VDUP V15.S[0], V15.S4
	MOVD exps+24(FP), R4
	MOVD exp2+32(FP), R6
	EXPCONSTS
	SET(0x2b800000, V25) // 2^-40
	SET(0x51800000, V26) // 2^36
	VEOR V12.B16, V12.B16, V12.B16 // sum
	VEOR V13.B16, V13.B16, V13.B16 // largest

weigh:
	VLD1 (R0), [V0.S4]
	FSUB4S(15, 0, 0)
	EXP
	FCMGT4S(0, 25, 1)
	BIC16B(1, 0, 0)
	FMUL4S(26, 0, 1)
	FCVTL2D(1, 2)
	FCVTL22D(1, 3)
	FCVTNS2D(2, 2)
	FCVTNS2D(3, 3)
	VADD V2.D2, V12.D2, V12.D2
	VADD V3.D2, V12.D2, V12.D2
	VLD1.P 8(R4), [V1.H4]
	SSHLL4S(0, 1, 1)
	VADD V24.S4, V1.S4, V1.S4
	VSHL $23, V1.S4, V1.S4
	FMUL4S(1, 0, 0)
	VUMAX V0.S4, V13.S4, V13.S4
	VST1.P [V0.S4], 16(R0)
	SUB  $1, R3
	CBNZ R3, weigh

	VADDP V12.D2, V12.D2, V12.D2
	VMOV V12.D[0], R1
	MOVD R1, sum+40(FP)
	UMAXVS(13, 13)
	FMOVS F13, top+48(FP)
	RET

// WIDE adds the words at p, in registers w .. w+3, to the 64-bit sums in V0 to V7.
#define WIDE(p, a, b, c, d, w) \
	VLD1.P 64(p), [a.S4, b.S4, c.S4, d.S4] \
	SADDW2D(w, 0, 0)      \
	SADDW22D(w, 1, 1)     \
	SADDW2D(w+1, 2, 2)    \
	SADDW22D(w+1, 3, 3)   \
	SADDW2D(w+2, 4, 4)    \
	SADDW22D(w+2, 5, 5)   \
	SADDW2D(w+3, 6, 6)    \
	SADDW22D(w+3, 7, 7)

#define ADDTOTAL(a, b, c, d) \
	VLD1 (R0), [V16.D2, V17.D2, V18.D2, V19.D2] \
	VADD V16.D2, a.D2, a.D2 \
	VADD V17.D2, b.D2, b.D2 \
	VADD V18.D2, c.D2, c.D2 \
	VADD V19.D2, d.D2, d.D2 \
	VST1.P [a.D2, b.D2, c.D2, d.D2], 64(R0)

// func accumulateX16(total *int64, u, u2 *int32, limbs, n int)
// SRSHL by a negative count is the shift to the right that rounds halves up.
TEXT ·accumulateX16(SB), NOSPLIT, $0-40
	MOVD total+0(FP), R0
	MOVD u+8(FP), R1
	MOVD u2+16(FP), R2
	MOVD limbs+24(FP), R3
	MOVD n+32(FP), R4
	VDUP R4, V31.D2
	CLEAR4(V0, V1, V2, V3)
	CLEAR4(V4, V5, V6, V7)

limb:
	WIDE(R1, V16, V17, V18, V19, 16)
	VSHL $8, V0.D2, V0.D2
	VSHL $8, V1.D2, V1.D2
	VSHL $8, V2.D2, V2.D2
	VSHL $8, V3.D2, V3.D2
	VSHL $8, V4.D2, V4.D2
	VSHL $8, V5.D2, V5.D2
	VSHL $8, V6.D2, V6.D2
	VSHL $8, V7.D2, V7.D2
	WIDE(R2, V20, V21, V22, V23, 20)
	SUB  $1, R3
	CBNZ R3, limb

	SRSHL2D(31, 0, 0)
	SRSHL2D(31, 1, 1)
	SRSHL2D(31, 2, 2)
	SRSHL2D(31, 3, 3)
	SRSHL2D(31, 4, 4)
	SRSHL2D(31, 5, 5)
	SRSHL2D(31, 6, 6)
	SRSHL2D(31, 7, 7)
	ADDTOTAL(V0, V1, V2, V3)
	ADDTOTAL(V4, V5, V6, V7)
	RET

// func momentsX8(x *float32, blocks int, scale float32) (sum, squares int64)
TEXT ·momentsX8(SB), NOSPLIT, $0-40
	MOVD x+0(FP), R0
	MOVD blocks+8(FP), R1
	FMOVS scale+16(FP), F31
	VDUP V31.S[0], V31.S4
	CLEAR4(V16, V17, V18, V19)

moments:
	VLD1.P 32(R0), [V0.S4, V1.S4]
	FMUL4S(31, 0, 0)
	FMUL4S(31, 1, 1)
	FCVTNS4S(0, 0)
	FCVTNS4S(1, 1)
	SADALP2D(0, 16)
	SADALP2D(1, 17)
	SMLAL2D(0, 0, 18)
	SMLAL22D(0, 0, 19)
	SMLAL2D(1, 1, 18)
	SMLAL22D(1, 1, 19)
	SUB  $1, R1
	CBNZ R1, moments

	VADD V17.D2, V16.D2, V16.D2
	VADD V19.D2, V18.D2, V18.D2
	VADDP V16.D2, V16.D2, V16.D2
	VADDP V18.D2, V18.D2, V18.D2
	VMOV V16.D[0], R2
	VMOV V18.D[0], R3
	MOVD R2, sum+24(FP)
	MOVD R3, squares+32(FP)
	RET

// func normaliseX8(y, x *float32, blocks int, r float32, w, b *float32)
TEXT ·normaliseX8(SB), NOSPLIT, $0-48
	MOVD y+0(FP), R0
	MOVD x+8(FP), R1
	MOVD blocks+16(FP), R2
	FMOVS r+24(FP), F31
	VDUP V31.S[0], V31.S4
	MOVD w+32(FP), R3
	MOVD b+40(FP), R4
	FLUSHCONST

normalise:
	VLD1.P 32(R1), [V0.S4, V1.S4]
	VLD1.P 32(R3), [V2.S4, V3.S4]
	FMUL4S(31, 0, 0)
	FMUL4S(31, 1, 1)
	FLUSH(0, 4)
	FLUSH(1, 5)
	FMUL4S(2, 0, 0)
	FMUL4S(3, 1, 1)
	CBZ  R4, nobias
	VLD1.P 32(R4), [V2.S4, V3.S4]
	FADD4S(2, 0, 0)
	FADD4S(3, 1, 1)

nobias:
	FLUSH(0, 4)
	FLUSH(1, 5)
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUB  $1, R2
	CBNZ R2, normalise
	RET
