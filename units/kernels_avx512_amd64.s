//go:build amd64 && !purego

#include "textflag.h"
#include "kernels_amd64.h"

// AVX-512 VNNI kernels. VPDPBUSD adds four products of an unsigned byte (the weight + 128, a register) and a signed one
// (an activation limb, four bytes broadcast from memory) to each 32-bit lane, without saturation. A lane is one of the
// 16 output rows of a panel, so no sum crosses lanes.

// DOT4 and DOT8 add the products of weights w with limb rows o/4 .. of the group at SI.
#define DOT4(o, w, c0, c1, c2, c3) \
	VPDPBUSD.BCST (o+0)(SI), w, c0  \
	VPDPBUSD.BCST (o+4)(SI), w, c1  \
	VPDPBUSD.BCST (o+8)(SI), w, c2  \
	VPDPBUSD.BCST (o+12)(SI), w, c3

#define DOT8(o, w, c0, c1, c2, c3, c4, c5, c6, c7) \
	DOT4(o, w, c0, c1, c2, c3)                      \
	DOT4(o+16, w, c4, c5, c6, c7)

// INIT4 starts four sums from init, STORE4 writes them to dst.
#define INIT4(o, c0, c1, c2, c3) \
	VPBROADCASTD (o+0)(BX), c0    \
	VPBROADCASTD (o+4)(BX), c1    \
	VPBROADCASTD (o+8)(BX), c2    \
	VPBROADCASTD (o+12)(BX), c3

#define STORE4(o, c0, c1, c2, c3) \
	VMOVDQU32 c0, (o+0)(DI)        \
	VMOVDQU32 c1, (o+64)(DI)       \
	VMOVDQU32 c2, (o+128)(DI)      \
	VMOVDQU32 c3, (o+192)(DI)

// FETCH2 and FETCH4 ask for the weights of a few thousand cycles ahead: they come from memory, and the processor's own
// prefetchers stop at every page. They go past the end of a panel on purpose, into the next one.
#define FETCH2(o) \
	PREFETCHT1 (o+8192)(DX) \
	PREFETCHT1 (o+8256)(DX)

#define FETCH4 \
	FETCH2(0)   \
	FETCH2(128)

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ init+8(FP), BX    \
	MOVQ w+16(FP), DX      \
	MOVQ a+24(FP), SI      \
	MOVQ groups+32(FP), CX

// func panelVNNI2(dst, init *int32, w *uint8, a *int8, groups int)
// Four groups at a time with sums of their own: the additions of one sum would wait for each other.
TEXT ·panelVNNI2(SB), NOSPLIT, $0-40
	ARGS
	VPBROADCASTD (BX), Z8
	VPBROADCASTD 4(BX), Z9
	CLEAR4(Z10, Z11, Z12, Z13)
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15

loop2:
	FETCH4
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	VMOVDQU32 128(DX), Z2
	VMOVDQU32 192(DX), Z3
	VPDPBUSD.BCST (SI), Z0, Z8
	VPDPBUSD.BCST 4(SI), Z0, Z9
	VPDPBUSD.BCST 8(SI), Z1, Z10
	VPDPBUSD.BCST 12(SI), Z1, Z11
	VPDPBUSD.BCST 16(SI), Z2, Z12
	VPDPBUSD.BCST 20(SI), Z2, Z13
	VPDPBUSD.BCST 24(SI), Z3, Z14
	VPDPBUSD.BCST 28(SI), Z3, Z15
	ADDQ $256, DX
	ADDQ $32, SI
	SUBQ $4, CX
	JNZ  loop2

	VPADDD Z10, Z8, Z8
	VPADDD Z11, Z9, Z9
	VPADDD Z14, Z12, Z12
	VPADDD Z15, Z13, Z13
	VPADDD Z12, Z8, Z8
	VPADDD Z13, Z9, Z9
	VMOVDQU32 Z8, (DI)
	VMOVDQU32 Z9, 64(DI)
	VZEROUPPER
	RET

// func panelVNNI4(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI4(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	CLEAR4(Z12, Z13, Z14, Z15)

loop4:
	FETCH4
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	VMOVDQU32 128(DX), Z2
	VMOVDQU32 192(DX), Z3
	DOT4(0, Z0, Z8, Z9, Z10, Z11)
	DOT4(16, Z1, Z12, Z13, Z14, Z15)
	DOT4(32, Z2, Z8, Z9, Z10, Z11)
	DOT4(48, Z3, Z12, Z13, Z14, Z15)
	ADDQ $256, DX
	ADDQ $64, SI
	SUBQ $4, CX
	JNZ  loop4

	VPADDD Z12, Z8, Z8
	VPADDD Z13, Z9, Z9
	VPADDD Z14, Z10, Z10
	VPADDD Z15, Z11, Z11
	STORE4(0, Z8, Z9, Z10, Z11)
	VZEROUPPER
	RET

// func panelVNNI8(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI8(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	INIT4(16, Z12, Z13, Z14, Z15)
	CLEAR4(Z16, Z17, Z18, Z19)
	CLEAR4(Z20, Z21, Z22, Z23)

loop8:
	FETCH2(0)
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	DOT8(0, Z0, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(32, Z1, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	ADDQ $128, DX
	ADDQ $64, SI
	SUBQ $2, CX
	JNZ  loop8

	VPADDD Z16, Z8, Z8
	VPADDD Z17, Z9, Z9
	VPADDD Z18, Z10, Z10
	VPADDD Z19, Z11, Z11
	VPADDD Z20, Z12, Z12
	VPADDD Z21, Z13, Z13
	VPADDD Z22, Z14, Z14
	VPADDD Z23, Z15, Z15
	STORE4(0, Z8, Z9, Z10, Z11)
	STORE4(256, Z12, Z13, Z14, Z15)
	VZEROUPPER
	RET

// func panelVNNI16(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI16(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	INIT4(16, Z12, Z13, Z14, Z15)
	INIT4(32, Z16, Z17, Z18, Z19)
	INIT4(48, Z20, Z21, Z22, Z23)

loop16:
	FETCH2(0)
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	DOT8(0, Z0, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(32, Z0, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	DOT8(64, Z1, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(96, Z1, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	ADDQ $128, DX
	ADDQ $128, SI
	SUBQ $2, CX
	JNZ  loop16

	STORE4(0, Z8, Z9, Z10, Z11)
	STORE4(256, Z12, Z13, Z14, Z15)
	STORE4(512, Z16, Z17, Z18, Z19)
	STORE4(768, Z20, Z21, Z22, Z23)
	VZEROUPPER
	RET

// func panelVNNI24(dst, init *int32, w *uint8, a *int8, groups int)
TEXT ·panelVNNI24(SB), NOSPLIT, $0-40
	ARGS
	INIT4(0, Z8, Z9, Z10, Z11)
	INIT4(16, Z12, Z13, Z14, Z15)
	INIT4(32, Z16, Z17, Z18, Z19)
	INIT4(48, Z20, Z21, Z22, Z23)
	INIT4(64, Z24, Z25, Z26, Z27)
	INIT4(80, Z28, Z29, Z30, Z31)

loop24:
	FETCH2(0)
	VMOVDQU32 (DX), Z0
	VMOVDQU32 64(DX), Z1
	DOT8(0, Z0, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(32, Z0, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	DOT8(64, Z0, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	DOT8(96, Z1, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	DOT8(128, Z1, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	DOT8(160, Z1, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	ADDQ $128, DX
	ADDQ $192, SI
	SUBQ $2, CX
	JNZ  loop24

	STORE4(0, Z8, Z9, Z10, Z11)
	STORE4(256, Z12, Z13, Z14, Z15)
	STORE4(512, Z16, Z17, Z18, Z19)
	STORE4(768, Z20, Z21, Z22, Z23)
	STORE4(1024, Z24, Z25, Z26, Z27)
	STORE4(1280, Z28, Z29, Z30, Z31)
	VZEROUPPER
	RET

// func sumAVX512(x *uint64, blocks int) uint64
// blocks of 32 words.
TEXT ·sumAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), SI
	MOVQ blocks+8(FP), CX
	CLEAR4(Z0, Z1, Z2, Z3)

sumloop:
	PREFETCHT1 8192(SI)
	PREFETCHT1 8256(SI)
	PREFETCHT1 8320(SI)
	PREFETCHT1 8384(SI)
	VPADDQ (SI), Z0, Z0
	VPADDQ 64(SI), Z1, Z1
	VPADDQ 128(SI), Z2, Z2
	VPADDQ 192(SI), Z3, Z3
	ADDQ $256, SI
	DECQ CX
	JNZ  sumloop

	VPADDQ Z1, Z0, Z0
	VPADDQ Z3, Z2, Z2
	VPADDQ Z2, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDQ Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPADDQ X1, X0, X0
	VMOVQ X0, AX
	MOVQ AX, ret+16(FP)
	VZEROUPPER
	RET
