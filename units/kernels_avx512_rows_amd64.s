//go:build amd64 && !purego

#include "textflag.h"
#include "kernels_amd64.h"

// AVX-512 kernels of norms and activations: the functions of NUMERICS.md on 16 values at a time, each operation rounded
// as in the scalar form.

DATA ·vectorConst+0x00(SB)/4, $0x7fffffff
DATA ·vectorConst+0x04(SB)/4, $0x20000000
DATA ·vectorConst+0x08(SB)/4, $0x3f800000
DATA ·vectorConst+0x0c(SB)/4, $0x3f000000
DATA ·vectorConst+0x10(SB)/4, $0x40000000
DATA ·vectorConst+0x14(SB)/4, $0x3fb8aa3b
DATA ·vectorConst+0x18(SB)/4, $0x33317218
DATA ·vectorConst+0x1c(SB)/4, $0xc2700000
DATA ·vectorConst+0x20(SB)/4, $0x4b800000
DATA ·vectorConst+0x24(SB)/4, $0x00ffffff
DATA ·vectorConst+0x28(SB)/4, $0x0000ffff
DATA ·vectorConst+0x2c(SB)/4, $0x000000ff
DATA ·vectorConst+0x30(SB)/4, $0x007fffff
DATA ·vectorConst+0x34(SB)/4, $0x000000fe
DATA ·vectorConst+0x38(SB)/4, $0x3d372713
DATA ·vectorConst+0x3c(SB)/4, $0x3fcc422a
DATA ·vectorConst+0x40(SB)/4, $0x41800000
DATA ·vectorConst+0x44(SB)/4, $0xc1800000
DATA ·vectorConst+0x48(SB)/4, $0x43800000
DATA ·vectorConst+0x4c(SB)/4, $0x0000007f
DATA ·vectorConst+0x50(SB)/4, $0x51800000
DATA ·vectorConst+0x54(SB)/4, $0x2b800000
GLOBL ·vectorConst(SB), RODATA|NOPTR, $0x58


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
