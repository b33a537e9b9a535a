//go:build amd64 && !purego

#include "go_asm.h"
#include "textflag.h"
#include "kernels_amd64.h"

// AVX-512 kernels that cut rows into limbs and join unit sums.

// func absMaxAVX512(x *float32, n int) uint32
TEXT ·absMaxAVX512(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z4
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1

absmax32:
	CMPQ CX, $32
	JLT  absmax16
	VPANDD (SI), Z4, Z2
	VPANDD 64(SI), Z4, Z3
	VPMAXUD Z2, Z0, Z0
	VPMAXUD Z3, Z1, Z1
	ADDQ $128, SI
	SUBQ $32, CX
	JMP  absmax32

absmax16:
	CMPQ CX, $16
	JLT  absmaxtail
	VPANDD (SI), Z4, Z2
	VPMAXUD Z2, Z0, Z0
	ADDQ $64, SI
	SUBQ $16, CX

absmaxtail:
	TAILMASK
	VMOVDQU32.Z (SI), K1, Z2
	VPANDD Z4, Z2, Z2
	VPMAXUD Z2, Z0, Z0
	VPMAXUD Z1, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+16(FP)
	VZEROUPPER
	RET

// func split2AVX512(hi, lo *int8, x *float32, n int, scale float32, out *[4]int32)
// out: largest and sum of |q|>>1, sums of the limbs.
TEXT ·split2AVX512(SB), NOSPLIT, $0-48
	MOVQ hi+0(FP), DI
	MOVQ lo+8(FP), DX
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), CX
	VBROADCASTSS scale+32(FP), Z4
	MOVL $128, AX
	VPBROADCASTD AX, Z5
	CLEAR4(Z0, Z1, Z2, Z3)

split2loop:
	CMPQ CX, $16
	JLT  split2tail
	VMULPS (SI), Z4, Z6
	VCVTPS2DQ Z6, Z6
	VPABSD Z6, Z7
	VPSRLD $1, Z7, Z7
	VPMAXUD Z7, Z0, Z0
	VPADDD Z7, Z1, Z1
	VPADDD Z5, Z6, Z7
	VPSRAD $8, Z7, Z7
	VPSLLD $8, Z7, Z8
	VPSUBD Z8, Z6, Z6
	VPADDD Z7, Z2, Z2
	VPADDD Z6, Z3, Z3
	VPMOVDB Z7, (DI)
	VPMOVDB Z6, (DX)
	ADDQ $64, SI
	ADDQ $16, DI
	ADDQ $16, DX
	SUBQ $16, CX
	JMP  split2loop

split2tail:
	TAILMASK
	VMOVUPS.Z (SI), K1, Z6
	VMULPS Z6, Z4, Z6
	VCVTPS2DQ Z6, Z6
	VPABSD Z6, Z7
	VPSRLD $1, Z7, Z7
	VPMAXUD Z7, Z0, Z0
	VPADDD Z7, Z1, Z1
	VPADDD Z5, Z6, Z7
	VPSRAD $8, Z7, Z7
	VPSLLD $8, Z7, Z8
	VPSUBD Z8, Z6, Z6
	VPADDD Z7, Z2, Z2
	VPADDD Z6, Z3, Z3
	VPMOVDB Z7, K1, (DI)
	VPMOVDB Z6, K1, (DX)

	VEXTRACTI64X4 $1, Z0, Y6
	VPMAXUD Y6, Y0, Y0
	VEXTRACTI128 $1, Y0, X6
	VPMAXUD X6, X0, X0
	VPSHUFD $0x4e, X0, X6
	VPMAXUD X6, X0, X0
	VPSHUFD $0xb1, X0, X6
	VPMAXUD X6, X0, X0
	REDUCE(Z1, Y1, X1, Y6, X6)
	REDUCE(Z2, Y2, X2, Y6, X6)
	REDUCE(Z3, Y3, X3, Y6, X6)
	MOVQ out+40(FP), BX
	VMOVD X0, (BX)
	VMOVD X1, 4(BX)
	VMOVD X2, 8(BX)
	VMOVD X3, 12(BX)
	VZEROUPPER
	RET

// THREE cuts the products in Z6 into limbs Z7, Z8, Z6 and adds them to the sums Z0, Z1, Z2.
#define THREE \
	VCVTPS2DQ Z6, Z6    \
	VPMINSD Z11, Z6, Z6 \
	VPMAXSD Z12, Z6, Z6 \
	VPADDD Z10, Z6, Z7  \
	VPSRAD $16, Z7, Z7  \
	VPSLLD $16, Z7, Z8  \
	VPSUBD Z8, Z6, Z6   \
	VPADDD Z5, Z6, Z8   \
	VPSRAD $8, Z8, Z8   \
	VPSLLD $8, Z8, Z9   \
	VPSUBD Z9, Z6, Z6   \
	VPADDD Z7, Z0, Z0   \
	VPADDD Z8, Z1, Z1   \
	VPADDD Z6, Z2, Z2

// func split3AVX512(h2, h1, h0 *int8, x *float32, n int, scale float32, out *[3]int32)
TEXT ·split3AVX512(SB), NOSPLIT, $0-56
	MOVQ h2+0(FP), DI
	MOVQ h1+8(FP), DX
	MOVQ h0+16(FP), R8
	MOVQ x+24(FP), SI
	MOVQ n+32(FP), CX
	VBROADCASTSS scale+40(FP), Z4
	MOVL $128, AX
	VPBROADCASTD AX, Z5
	MOVL $32896, AX
	VPBROADCASTD AX, Z10
	MOVL $8355711, AX
	VPBROADCASTD AX, Z11
	NEGL AX
	VPBROADCASTD AX, Z12
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2

split3loop:
	CMPQ CX, $16
	JLT  split3tail
	VMULPS (SI), Z4, Z6
	THREE
	VPMOVDB Z7, (DI)
	VPMOVDB Z8, (DX)
	VPMOVDB Z6, (R8)
	ADDQ $64, SI
	ADDQ $16, DI
	ADDQ $16, DX
	ADDQ $16, R8
	SUBQ $16, CX
	JMP  split3loop

split3tail:
	TAILMASK
	VMOVUPS.Z (SI), K1, Z6
	VMULPS Z6, Z4, Z6
	THREE
	VPMOVDB Z7, K1, (DI)
	VPMOVDB Z8, K1, (DX)
	VPMOVDB Z6, K1, (R8)
	REDUCE(Z0, Y0, X0, Y6, X6)
	REDUCE(Z1, Y1, X1, Y6, X6)
	REDUCE(Z2, Y2, X2, Y6, X6)
	MOVQ out+48(FP), BX
	VMOVD X0, (BX)
	VMOVD X1, 4(BX)
	VMOVD X2, 8(BX)
	VZEROUPPER
	RET

// JOIN makes T of the unit sums [limbs][16] at p: t, with temporary x; Z4 holds 256, BX the number of limbs.
#define JOIN(p, t, x, done) \
	VCVTDQ2PS (p), t      \
	VMULPS Z4, t, t       \
	VCVTDQ2PS 64(p), x    \
	VADDPS x, t, t        \
	CMPQ BX, $3           \
	JNE  done             \
	VMULPS Z4, t, t       \
	VCVTDQ2PS 128(p), x   \
	VADDPS x, t, t        \
done:

// func combineAVX512(dst *float32, n, stride int, u, u2 *int32, rows *quantised, count int, scale, bias *float32)
// Without a bias +0 is added, which changes nothing that flush leaves.
TEXT ·combineAVX512(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ stride+16(FP), R11
	MOVQ u+24(FP), SI
	MOVQ u2+32(FP), DX
	MOVQ rows+40(FP), R13
	MOVQ count+48(FP), R12
	MOVQ scale+56(FP), R8
	MOVQ bias+64(FP), R9
	CONSTANTS
	VBROADCASTSS C_256, Z4
	TAILMASK // n = 16 shifts the bit out of the word: all ones
	VMOVUPS.Z (R8), K1, Z6
	VPXORD Z7, Z7, Z7
	TESTQ R9, R9
	JZ   combine
	VMOVUPS.Z (R9), K1, Z7

combine:
	MOVQ quantised_limbs(R13), BX
	JOIN(SI, Z0, Z1, joined)
	TESTQ DX, DX
	JZ   one
	JOIN(DX, Z2, Z3, joined2)
	VMULPS Z4, Z0, Z0
	VADDPS Z2, Z0, Z0
	SHLQ $6, BX
	ADDQ BX, DX
	ADDQ BX, SI
	JMP  scaled

one:
	SHLQ $6, BX
	ADDQ BX, SI

scaled:
	VPBROADCASTD quantised_exp(R13), Z5
	VPADDD.BCST C_BIAS, Z5, Z5
	VPSLLD $23, Z5, Z5
	VMULPS Z5, Z0, Z0
	VMULPS Z6, Z0, Z0
	VADDPS Z7, Z0, Z0
	FLUSH(Z0, Z8, K2)
	VMOVUPS Z0, K1, (DI)
	LEAQ (DI)(R11*4), DI
	ADDQ $quantised__size, R13
	DECQ R12
	JNZ  combine
	VZEROUPPER
	RET
