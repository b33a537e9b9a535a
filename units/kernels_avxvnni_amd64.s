//go:build amd64 && !purego

#include "textflag.h"

// Panel kernels with the VPDPBUSD of AVX-VNNI, which the assembler knows only in its AVX-512 encoding. It adds four
// products of an unsigned byte (the weight + 128) and a signed one (an activation limb) to each 32-bit lane, without
// saturation. A lane is one of the 16 output rows of a panel, so no sum crosses lanes.

// DOT is VPDPBUSD a, w, c (VEX.256.66.0F38.W0 50 /r): c += w . a, registers given by number.
#define DOT(a, w, c) \
	BYTE $0xc4                                \
	BYTE $(0xe2 ^ ((c)>>3)<<7 ^ ((a)>>3)<<5)  \
	BYTE $(0x05 | (15-(w))<<3)                \
	BYTE $0x50                                \
	BYTE $(0xc0 | ((c)&7)<<3 | (a)&7)

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ init+8(FP), BX    \
	MOVQ w+16(FP), DX      \
	MOVQ a+24(FP), SI      \
	MOVQ stride+32(FP), R8 \
	MOVQ groups+40(FP), CX

// INIT starts the two sums of a limb row, STORE writes them.
#define INIT(r, c0, c1) \
	VPBROADCASTD (4*r)(BX), c0 \
	VMOVDQA c0, c1

#define STORE(r, c0, c1) \
	VMOVDQU c0, (64*r)(DI)    \
	VMOVDQU c1, (64*r+32)(DI)

// func panelAVXVNNI2(dst, init *int32, w *uint8, a *int8, stride, groups int)
// Two limb rows: dst is [2][16], init [2], the rows' groups are 8 bytes at a, a+stride, ... Two groups at a time with sums
// of their own: the additions of one sum would wait for each other.
TEXT ·panelAVXVNNI2(SB), NOSPLIT, $0-48
	ARGS
	INIT(0, Y0, Y1)
	INIT(1, Y2, Y3)
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7

loop2:
	VMOVDQU (DX), Y8
	VMOVDQU 32(DX), Y9
	VMOVDQU 64(DX), Y10
	VMOVDQU 96(DX), Y11
	VPBROADCASTD (SI), Y12
	VPBROADCASTD 4(SI), Y13
	VPBROADCASTD (SI)(R8*1), Y14
	VPBROADCASTD 4(SI)(R8*1), Y15
	DOT(12, 8, 0)
	DOT(12, 9, 1)
	DOT(13, 8, 2)
	DOT(13, 9, 3)
	DOT(14, 10, 4)
	DOT(14, 11, 5)
	DOT(15, 10, 6)
	DOT(15, 11, 7)
	ADDQ $128, DX
	LEAQ (SI)(R8*2), SI
	SUBQ $2, CX
	JNZ  loop2

	VPADDD Y4, Y0, Y0
	VPADDD Y5, Y1, Y1
	VPADDD Y6, Y2, Y2
	VPADDD Y7, Y3, Y3
	STORE(0, Y0, Y1)
	STORE(1, Y2, Y3)
	VZEROUPPER
	RET

// ROWS2 adds the products of the weights in Y12 and Y13 with limb rows r and r+1.
#define ROWS2(r, c0, c1, c2, c3) \
	VPBROADCASTD (4*r)(SI), Y14   \
	VPBROADCASTD (4*r+4)(SI), Y15 \
	DOT(14, 12, c0)               \
	DOT(14, 13, c1)               \
	DOT(15, 12, c2)               \
	DOT(15, 13, c3)

// func panelAVXVNNI4(dst, init *int32, w *uint8, a *int8, stride, groups int)
TEXT ·panelAVXVNNI4(SB), NOSPLIT, $0-48
	ARGS
	INIT(0, Y0, Y1)
	INIT(1, Y2, Y3)
	INIT(2, Y4, Y5)
	INIT(3, Y6, Y7)

loop4:
	VMOVDQU (DX), Y12
	VMOVDQU 32(DX), Y13
	ROWS2(0, 0, 1, 2, 3)
	ROWS2(2, 4, 5, 6, 7)
	ADDQ $64, DX
	ADDQ R8, SI
	DECQ CX
	JNZ  loop4

	STORE(0, Y0, Y1)
	STORE(1, Y2, Y3)
	STORE(2, Y4, Y5)
	STORE(3, Y6, Y7)
	VZEROUPPER
	RET

// func panelAVXVNNI6(dst, init *int32, w *uint8, a *int8, stride, groups int)
TEXT ·panelAVXVNNI6(SB), NOSPLIT, $0-48
	ARGS
	INIT(0, Y0, Y1)
	INIT(1, Y2, Y3)
	INIT(2, Y4, Y5)
	INIT(3, Y6, Y7)
	INIT(4, Y8, Y9)
	INIT(5, Y10, Y11)

loop6:
	VMOVDQU (DX), Y12
	VMOVDQU 32(DX), Y13
	ROWS2(0, 0, 1, 2, 3)
	ROWS2(2, 4, 5, 6, 7)
	ROWS2(4, 8, 9, 10, 11)
	ADDQ $64, DX
	ADDQ R8, SI
	DECQ CX
	JNZ  loop6

	STORE(0, Y0, Y1)
	STORE(1, Y2, Y3)
	STORE(2, Y4, Y5)
	STORE(3, Y6, Y7)
	STORE(4, Y8, Y9)
	STORE(5, Y10, Y11)
	VZEROUPPER
	RET
