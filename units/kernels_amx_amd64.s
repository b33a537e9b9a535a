//go:build amd64 && !purego

#include "textflag.h"

// The matrix product of Intel AMX. A tile register holds 16 rows of 64 bytes; TDPBSUD multiplies a tile of limb rows
// (signed) with a tile of 16 rows of four inputs of 16 weight rows (unsigned: value + 128), which is 64 inputs of a panel
// as it lies, and adds to a tile of 32-bit sums, without saturation.
//
// The assembler does not know these instructions. Memory operands are [base + RAX], rows RAX bytes apart.

#define BASE_CX 1
#define BASE_DX 2
#define BASE_BX 3
#define BASE_SI 6
#define BASE_DI 7

// ldtilecfg [r9]
#define LDTILECFG_R9 BYTE $0xc4; BYTE $0xc2; BYTE $0x78; BYTE $0x49; BYTE $0x01

// tilerelease
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0

// tileloadd tmm(t), [base + rax]
#define TILELOAD(t, base) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x04|t<<3); BYTE $base

// tileloadd tmm(t), [base + rax + o]
#define TILELOADAT(t, base, o) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $base; LONG $o

// tilestored [base + rax + o], tmm(t)
#define TILESTOREAT(t, base, o) BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $base; LONG $o

// tileloadd tmm(t), [base + rcx + o]
#define TILELOADWIDE(t, base, o) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $(0x08|base); LONG $o

// tilestored [base + rcx + o], tmm(t)
#define TILESTOREWIDE(t, base, o) BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $(0x08|base); LONG $o

// tilezero tmm(t)
#define TILEZERO(t) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $(0xc0|t<<3)

// tdpbsud tmm(c), tmm(a), tmm(b)
#define TDPBSUD(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $((0xf^b)<<3|2); BYTE $0x5e; BYTE $(0xc0|c<<3|a)

// func blockTiles(dst *unitSums, init *int32, w *uint8, panel int, a *int8, count, rows, steps int, tail *uint8, config *tileConfig, pair int)
// count times the sums of a block tile of rows limb rows, 2 to 32, with the panel at w and the one panel bytes further:
// steps of 64 inputs and, if tail is not nil, one more with the weights of both panels there. If pair is 0 the next sums
// are those of the next tile with the same panels, else those of the same tile with the panels pair bytes further.
// Tile registers: 0 and 1 the sums with the first panel of the first 16 and the other limb rows, 2 and 3 with the second,
// 4 and 5 the limb rows, 6 and 7 the panels.
TEXT ·blockTiles(SB), NOSPLIT, $0-88
	MOVQ dst+0(FP), DI
	MOVQ init+8(FP), CX
	MOVQ panel+24(FP), R12
	MOVQ a+32(FP), SI
	MOVQ count+40(FP), R13
	MOVQ rows+48(FP), R8
	SHLQ $6, R8 // bytes of a step of a tile, and of its initial sums
	MOVQ config+72(FP), R9
	MOVL $64, AX
	LDTILECFG_R9
	MOVQ w+16(FP), R9
	MOVQ pair+80(FP), R14

tile:
	MOVQ R9, DX
	LEAQ (R9)(R12*1), BX
	MOVQ steps+56(FP), R10
	MOVQ tail+64(FP), R11
	TILELOAD(0, BASE_CX)
	TILELOAD(2, BASE_CX)
	CMPQ R8, $1024
	JLE  half
	TILELOADAT(1, BASE_CX, 1024)
	TILELOADAT(3, BASE_CX, 1024)
	TESTQ R10, R10
	JZ   fulltail

full:
	TILELOAD(4, BASE_SI)
	TILELOAD(6, BASE_DX)
	TDPBSUD(0, 4, 6)
	TILELOADAT(5, BASE_SI, 1024)
	TDPBSUD(1, 5, 6)
	TILELOAD(7, BASE_BX)
	TDPBSUD(2, 4, 7)
	TDPBSUD(3, 5, 7)
	ADDQ R8, SI
	ADDQ $1024, DX
	ADDQ $1024, BX
	DECQ R10
	JNZ  full

fulltail:
	TESTQ R11, R11
	JZ   fulldone
	MOVQ R11, DX
	LEAQ 1024(R11), BX
	XORL R11, R11
	MOVL $1, R10
	JMP  full

fulldone:
	TILESTOREAT(1, BASE_DI, 1024)
	TILESTOREAT(3, BASE_DI, 3072)
	JMP  store

half:
	TESTQ R10, R10
	JZ   halftail

halfloop:
	TILELOAD(4, BASE_SI)
	TILELOAD(6, BASE_DX)
	TDPBSUD(0, 4, 6)
	TILELOAD(7, BASE_BX)
	TDPBSUD(2, 4, 7)
	ADDQ R8, SI
	ADDQ $1024, DX
	ADDQ $1024, BX
	DECQ R10
	JNZ  halfloop

halftail:
	TESTQ R11, R11
	JZ   store
	MOVQ R11, DX
	LEAQ 1024(R11), BX
	XORL R11, R11
	MOVL $1, R10
	JMP  halfloop

store:
	TILESTOREAT(0, BASE_DI, 0)
	TILESTOREAT(2, BASE_DI, 2048)
	TESTQ R14, R14
	JNZ  nextpair
	ADDQ R8, CX
	JMP  next

nextpair:
	ADDQ R14, R9
	MOVQ a+32(FP), SI

next:
	ADDQ $4096, DI
	DECQ R13
	JNZ  tile
	TILERELEASE
	RET

// HEADPRODUCTS adds the products of a step: the two in the middle are far apart, since each waits for the one before.
#define HEADPRODUCTS \
	TILELOAD(6, BASE_DX)  \
	TDPBSUD(1, 5, 6)      \
	TDPBSUD(0, 4, 6)      \
	TILELOAD(7, BASE_BX)  \
	TDPBSUD(2, 5, 7)      \
	TDPBSUD(1, 4, 7)      \
	ADDQ $1024, DX        \
	ADDQ $1024, BX

// func headTiles(dst *unitSums, init *int32, w *uint8, a *int8, count, rows, steps int, config *tileConfig)
// count times the sums of a block tile of rows limb rows, high and low ones in turn, with the two limbs of a panel, which lie
// one after the other, as kernels.heads has them. Tile registers: 0 to 2 the sums, 4 and 5 the high and the low limb
// rows, 6 and 7 the limbs of the panel. Rows are RAX bytes apart, those of one limb and their sums RCX.
TEXT ·headTiles(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ init+8(FP), R8
	MOVQ w+16(FP), DX
	MOVQ a+24(FP), SI
	MOVQ count+32(FP), R13
	MOVQ rows+40(FP), R11
	SHLQ $6, R11 // bytes of a step of the tile
	MOVQ steps+48(FP), R12
	MOVQ config+56(FP), R9
	MOVL $64, AX
	MOVL $128, CX
	LDTILECFG_R9
	TILELOADWIDE(4, BASE_SI, 0)
	TILELOADWIDE(5, BASE_SI, 64)

headpanel:
	TESTQ R8, R8
	JZ   headzero
	MOVQ R8, BX
	TILELOAD(0, BASE_BX)
	TILELOADAT(1, BASE_BX, 1024)
	TILELOADAT(2, BASE_BX, 2048)
	JMP  headsums

headzero:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)

headsums:
	MOVQ R12, R10
	SHLQ $10, R10
	LEAQ (DX)(R10*1), BX
	CMPQ R12, $1
	JNE  headsteps
	HEADPRODUCTS

headstore:
	TILESTOREWIDE(0, BASE_DI, 0)
	TILESTOREWIDE(2, BASE_DI, 2112)
	TILESTOREWIDE(1, BASE_DI, 64)
	MOVQ BX, DX
	ADDQ $4096, DI
	DECQ R13
	JNZ  headpanel
	TILERELEASE
	RET

headsteps:
	MOVQ R12, R10
	MOVQ a+24(FP), SI

headstep:
	TILELOADWIDE(4, BASE_SI, 0)
	TILELOADWIDE(5, BASE_SI, 64)
	HEADPRODUCTS
	ADDQ R11, SI
	DECQ R10
	JNZ  headstep
	JMP  headstore
