//go:build amd64 && !purego

#include "textflag.h"
#include "kernels_amx_amd64.h"

// The matrix product of Intel AMX. A tile register holds 16 rows of 64 bytes; TDPBSUD multiplies a tile of limb rows
// (signed) with a tile of 16 rows of four inputs of 16 weight rows (unsigned: value + 128), which is 64 inputs of a panel
// as it lies, and adds to a tile of 32-bit sums, without saturation.

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
