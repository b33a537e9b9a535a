//go:build arm64 && !purego

#include "textflag.h"
#include "kernels_arm64.h"

// Panel kernels with SDOT, which adds four products of signed bytes to each 32-bit lane: 16 weight bytes, four of each of
// four output rows, with the four bytes of one limb row that an index picks. Weights are stored as value + 128; flipping
// their top bit gives the value itself, so 128 times the sum of each limb row, counted along, is added at the end.
//
// V30 holds 0x80 in every byte, V31 one.

// QUAD adds the products of a group's weights in registers w to w+3 with limb row i of register a, to c .. c+3.
#define QUAD(i, a, w, c) \
	SDOT4SI(i, a, w, c)     \
	SDOT4SI(i, a, w+1, c+1) \
	SDOT4SI(i, a, w+2, c+2) \
	SDOT4SI(i, a, w+3, c+3)

#define SIGNED4(a, b, c, d) \
	VEOR V30.B16, a.B16, a.B16 \
	VEOR V30.B16, b.B16, b.B16 \
	VEOR V30.B16, c.B16, c.B16 \
	VEOR V30.B16, d.B16, d.B16

// ROW adds lane i of v to the 16 sums of a limb row and stores them.
#define ROW(i, v, a, b, c, d) \
	VDUP v.S[i], V0.S4       \
	VADD V0.S4, a.S4, a.S4   \
	VADD V0.S4, b.S4, b.S4   \
	VADD V0.S4, c.S4, c.S4   \
	VADD V0.S4, d.S4, d.S4   \
	VST1.P [a.S4, b.S4, c.S4, d.S4], 64(R0)

#define ARGS \
	MOVD dst+0(FP), R0         \
	MOVD init+8(FP), R1        \
	MOVD w+16(FP), R2          \
	MOVD a+24(FP), R3          \
	VMOVI $0x80, V30.B16       \
	VMOVI $1, V31.B16          \
	CLEAR4(V8, V9, V10, V11)   \
	CLEAR4(V12, V13, V14, V15) \
	CLEAR4(V16, V17, V18, V19) \
	CLEAR4(V20, V21, V22, V23) \
	VEOR V24.B16, V24.B16, V24.B16

// func panelSDOT2(dst, init *int32, w *uint8, a *int8, groups int)
// Two groups at a time with sums of their own: the additions of one sum would wait for each other.
TEXT ·panelSDOT2(SB), NOSPLIT, $0-40
	ARGS
	MOVD groups+32(FP), R4

loop2:
	VLD1.P 64(R2), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	VLD1.P 16(R3), [V25.B16]
	SIGNED4(V0, V1, V2, V3)
	SIGNED4(V4, V5, V6, V7)
	SDOT4S(31, 25, 24)
	QUAD(0, 25, 0, 8)
	QUAD(1, 25, 0, 12)
	QUAD(2, 25, 4, 16)
	QUAD(3, 25, 4, 20)
	SUB  $2, R4
	CBNZ R4, loop2

	VADD V16.S4, V8.S4, V8.S4
	VADD V17.S4, V9.S4, V9.S4
	VADD V18.S4, V10.S4, V10.S4
	VADD V19.S4, V11.S4, V11.S4
	VADD V20.S4, V12.S4, V12.S4
	VADD V21.S4, V13.S4, V13.S4
	VADD V22.S4, V14.S4, V14.S4
	VADD V23.S4, V15.S4, V15.S4
	VEXT $8, V24.B16, V24.B16, V25.B16
	VADD V25.S4, V24.S4, V24.S4
	VSHL $7, V24.S4, V24.S4
	VLD1 (R1), [V25.S2]
	VADD V25.S4, V24.S4, V24.S4
	ROW(0, V24, V8, V9, V10, V11)
	ROW(1, V24, V12, V13, V14, V15)
	RET

// func panelSDOT4(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelSDOT4(SB), NOSPLIT, $0-40
	ARGS
	MOVD groups+32(FP), R4

loop4:
	VLD1.P 64(R2), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	VLD1.P 32(R3), [V25.B16, V26.B16]
	SIGNED4(V0, V1, V2, V3)
	SIGNED4(V4, V5, V6, V7)
	SDOT4S(31, 25, 24)
	QUAD(0, 25, 0, 8)
	QUAD(1, 25, 0, 12)
	QUAD(2, 25, 0, 16)
	QUAD(3, 25, 0, 20)
	SDOT4S(31, 26, 24)
	QUAD(0, 26, 4, 8)
	QUAD(1, 26, 4, 12)
	QUAD(2, 26, 4, 16)
	QUAD(3, 26, 4, 20)
	SUB  $2, R4
	CBNZ R4, loop4

	VSHL $7, V24.S4, V24.S4
	VLD1 (R1), [V25.S4]
	VADD V25.S4, V24.S4, V24.S4
	ROW(0, V24, V8, V9, V10, V11)
	ROW(1, V24, V12, V13, V14, V15)
	ROW(2, V24, V16, V17, V18, V19)
	ROW(3, V24, V20, V21, V22, V23)
	RET

// HALF adds the products of half a group's weights in registers w and w+1 with the eight limb rows in a and a+1.
#define HALF(a, w) \
	SDOT4S(31, a, 24)         \
	SDOT4S(31, a+1, 25)       \
	SDOT4SI(0, a, w, 8)       \
	SDOT4SI(0, a, w+1, 9)     \
	SDOT4SI(1, a, w, 10)      \
	SDOT4SI(1, a, w+1, 11)    \
	SDOT4SI(2, a, w, 12)      \
	SDOT4SI(2, a, w+1, 13)    \
	SDOT4SI(3, a, w, 14)      \
	SDOT4SI(3, a, w+1, 15)    \
	SDOT4SI(0, a+1, w, 16)    \
	SDOT4SI(0, a+1, w+1, 17)  \
	SDOT4SI(1, a+1, w, 18)    \
	SDOT4SI(1, a+1, w+1, 19)  \
	SDOT4SI(2, a+1, w, 20)    \
	SDOT4SI(2, a+1, w+1, 21)  \
	SDOT4SI(3, a+1, w, 22)    \
	SDOT4SI(3, a+1, w+1, 23)

// HALFROW is ROW for eight sums.
#define HALFROW(i, v, a, b) \
	VDUP v.S[i], V0.S4     \
	VADD V0.S4, a.S4, a.S4 \
	VADD V0.S4, b.S4, b.S4 \
	VST1.P [a.S4, b.S4], (R0)(R6)

// func panelSDOT8(dst, init *int32, w *uint8, a *int8, stride, groups int)
// Eight limb rows and half a panel, all that 32 registers hold: dst is the first of eight rows of 16 of which 8 are
// written, w the half's first byte, and the limb rows' groups are 32 bytes at a, a+stride, ...
TEXT ·panelSDOT8(SB), NOSPLIT, $0-48
	ARGS
	MOVD stride+32(FP), R5
	MOVD groups+40(FP), R4
	MOVD $64, R6
	VEOR V25.B16, V25.B16, V25.B16

loop8:
	VLD1.P (R2)(R6), [V0.B16, V1.B16]
	VLD1.P (R2)(R6), [V2.B16, V3.B16]
	VLD1.P (R3)(R5), [V4.B16, V5.B16]
	VLD1.P (R3)(R5), [V6.B16, V7.B16]
	SIGNED4(V0, V1, V2, V3)
	HALF(4, 0)
	HALF(6, 2)
	SUB  $2, R4
	CBNZ R4, loop8

	VSHL $7, V24.S4, V24.S4
	VSHL $7, V25.S4, V25.S4
	VLD1 (R1), [V26.S4, V27.S4]
	VADD V26.S4, V24.S4, V24.S4
	VADD V27.S4, V25.S4, V25.S4
	HALFROW(0, V24, V8, V9)
	HALFROW(1, V24, V10, V11)
	HALFROW(2, V24, V12, V13)
	HALFROW(3, V24, V14, V15)
	HALFROW(0, V25, V16, V17)
	HALFROW(1, V25, V18, V19)
	HALFROW(2, V25, V20, V21)
	HALFROW(3, V25, V22, V23)
	RET
