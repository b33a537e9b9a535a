//go:build amd64 && !purego

#include "go_asm.h"
#include "textflag.h"
#include "kernels_amd64.h"
#include "kernels_amx_amd64.h"

// Attention with the matrix unit: while it makes the unit sums of queries with a panel, the vector units use those with the
// panel before, and those sums are stored only then: what is loaded after stores to the same place of another page waits for
// them. Tile registers: 0 to 2 the sums, high limbs with high, mixed, low with low; 4 and 5 the high and the low limb rows, RCX
// bytes apart as they lie in turn; 6 and 7 the limbs of the panel.

// STORE stores the sums.
#define STORE \
	TILESTOREAT(0, BASE_DI, 0)      \
	TILESTOREAT(1, BASE_DI, 1024)   \
	TILESTOREAT(2, BASE_DI, 2048)

// LIMBS loads the limbs of a panel, at DX and BX, and fetches the same of the next block, R15 bytes further. PRODUCTS adds their
// products: the two that are added to the same sums are far apart, since the second waits for the first.
#define LIMBS \
	TILELOAD(6, BASE_DX)     \
	TILELOAD(7, BASE_BX)     \
	FETCHSTEP(DX)            \
	FETCHSTEP(BX)            \
	ADDQ $1024, DX           \
	ADDQ $1024, BX

#define PRODUCTS \
	TDPBSUD(1, 5, 6)         \
	TDPBSUD(0, 4, 6)         \
	TDPBSUD(2, 5, 7)         \
	TDPBSUD(1, 4, 7)

#define ZERO \
	TILEZERO(0)              \
	TILEZERO(1)              \
	TILEZERO(2)

// UNITS is the size of headUnits.
#define UNITS 3072

// OTHERUNITS makes of the one the other of two unit sums in a register, given the first in base.
#define OTHERUNITS(reg, base) \
	SUBQ base, reg           \
	NEGQ reg                 \
	LEAQ UNITS(base)(reg*1), reg

// FETCH asks for 256 bytes of what lies R15 bytes beyond o(base): they come from memory, and the processor's own prefetchers stop
// at every page. They may go past the end of the cache on purpose.
#define FETCH(o, base) \
	PREFETCHT0 (o+0)(base)(R15*1)    \
	PREFETCHT0 (o+64)(base)(R15*1)   \
	PREFETCHT0 (o+128)(base)(R15*1)  \
	PREFETCHT0 (o+192)(base)(R15*1)

#define FETCHSTEP(base) \
	FETCH(0, base)   \
	FETCH(256, base) \
	FETCH(512, base) \
	FETCH(768, base)

// func headScoresTiles(h *headScores, units *[2]headUnits, config *tileConfig)
// In each round panel R8 is begun, R8-1 stored and R8-2 used.
TEXT ·headScoresTiles(SB), NOSPLIT, $0-24
	MOVQ h+0(FP), R14
	MOVQ units+8(FP), DI
	MOVQ config+16(FP), R9
	MOVL $64, AX
	MOVL $128, CX
	LDTILECFG_R9
	MOVQ headScores_keys(R14), DX
	MOVQ headScores_dst(R14), R9
	MOVQ headScores_exps(R14), R10
	XORL R8, R8
	MOVL $0x43800000, BX // 256
	VPBROADCASTD BX, Z16
	MOVL $127, BX
	VPBROADCASTD BX, Z20
	VBROADCASTSS headScores_scale(R14), Z17
	MOVL $0x60000000, BX // the bits of the exponent one of which is set from 2^-63 on
	VPBROADCASTD BX, Z18

scorepanel:
	CMPQ R8, headScores_panels(R14)
	JGE  scorevectors
	MOVQ headScores_steps(R14), R12
	SHLQ $10, R12
	LEAQ (DX)(R12*1), BX
	MOVQ headScores_gap(R14), R15
	SHLQ $1, R15
	LIMBS

scorevectors:
	CMPQ R8, $2
	JLT  scorestore
	MOVQ units+8(FP), R13
	MOVQ DI, R12
	OTHERUNITS(R12, R13)
	MOVQ R9, R15
	MOVQ headScores_exp2(R14), R11
	LEAQ headScores_init(R14), SI
	MOVQ headScores_n(R14), R13
	VPMOVSXWD (R10), Z19
	VPADDD Z20, Z19, Z19
	VPSLLD $23, Z19, Z19

scorequery:
	VPBROADCASTD (SI), Z0
	VPBROADCASTD 4(SI), Z1
	VPBROADCASTD 8(SI), Z2
	VPADDD (R12), Z0, Z0
	VPADDD 1024(R12), Z1, Z1
	VPADDD 2048(R12), Z2, Z2
	VCVTDQ2PS Z0, Z0
	VCVTDQ2PS Z1, Z1
	VCVTDQ2PS Z2, Z2
	VFMADD213PS Z1, Z16, Z0
	VFMADD213PS Z2, Z16, Z0
	VMULPS.BCST (R11), Z0, Z0
	VMULPS Z19, Z0, Z0
	VMULPS Z17, Z0, Z0
	VPTESTMD Z18, Z0, K1
	VMOVAPS.Z Z0, K1, Z0
	VMOVUPS Z0, (R15)
	ADDQ $64, R12
	ADDQ $256, R15
	ADDQ $4, R11
	ADDQ $12, SI
	DECQ R13
	JNZ  scorequery

	ADDQ $64, R9
	ADDQ $32, R10
	LEAQ -1(R8), R12
	TESTQ $3, R12
	JNZ  scorestore
	LEAQ -192(R15), R9 // the next block begins after the last query
	ADDQ $(2*const_otherExps), R10

scorestore:
	TESTQ R8, R8
	JZ   scoreproducts
	CMPQ R8, headScores_panels(R14)
	JGT  scorenext
	STORE

scoreproducts:
	CMPQ R8, headScores_panels(R14)
	JGE  scorenext
	ZERO
	MOVQ headScores_tile(R14), SI
	MOVQ headScores_steps(R14), R12
	CMPQ R12, $1
	JNE  scoresteps
	TESTQ R8, R8
	JNZ  scoreone
	TILELOADWIDE(4, BASE_SI, 0)
	TILELOADWIDE(5, BASE_SI, 64)

scoreone:
	PRODUCTS

scoreready:
	MOVQ BX, DX
	LEAQ 1(R8), R12
	TESTQ $3, R12
	JNZ  scorenext
	ADDQ headScores_gap(R14), DX // the values of the block

scorenext:
	MOVQ units+8(FP), R12
	OTHERUNITS(DI, R12)
	INCQ R8
	LEAQ -1(R8), R12
	CMPQ R12, headScores_panels(R14)
	JLE  scorepanel
	TILERELEASE
	VZEROUPPER
	RET

scoresteps:
	MOVQ headScores_gap(R14), R15
	SHLQ $1, R15
	JMP  scorestep

scorelimbs:
	LIMBS

scorestep:
	TILELOADWIDE(4, BASE_SI, 0)
	TILELOADWIDE(5, BASE_SI, 64)
	PRODUCTS
	ADDQ headScores_step(R14), SI
	DECQ R12
	JNZ  scorelimbs
	JMP  scoreready

// NEAR shifts the unit sums at o, of the query at R15, and adds them to those collected.
#define NEAR(o) \
	VMOVDQU32 (o)(R9)(R15*1), Z0     \
	VPSLLVD Z31, Z0, Z0              \
	VPADDD (o)(R10)(R15*1), Z0, Z0   \
	VMOVDQU32 Z0, (o)(R10)(R15*1)

// func headValuesTiles(h *headSums, units *[2]headUnits, blocks *headValues, count int, config *tileConfig)
// Rounds are those of headScoresTiles, over all blocks: the products have blocks and ahead, the panels left of it, of their own.
TEXT ·headValuesTiles(SB), NOSPLIT, $16-40
	MOVQ h+0(FP), R12
	MOVQ units+8(FP), DI
	MOVQ blocks+16(FP), R14
	MOVQ config+32(FP), R9
	MOVL $64, AX
	MOVL $128, CX
	LDTILECFG_R9
	MOVQ R14, BX
	SUBQ $headValues__size, BX
	MOVQ BX, blocks+16(FP)
	MOVQ $0, ahead-8(SP)
	MOVQ headSums_near+8(R12), R8
	MOVQ R8, left-16(SP)
	IMULQ count+24(FP), R8 // panels to begin
	MOVQ R8, count+24(FP)
	XORL R8, R8
	MOVQ headSums_near(R12), R10
	MOVQ headSums_total(R12), R11

valuepanel:
	CMPQ R8, count+24(FP)
	JGE  valuevectors
	CMPQ ahead-8(SP), $0
	JNE  valuelimbs
	MOVQ blocks+16(FP), BX
	ADDQ $headValues__size, BX
	MOVQ BX, blocks+16(FP)
	MOVQ headValues_limbs(BX), SI
	MOVQ headValues_values(BX), DX
	TILELOADWIDE(4, BASE_SI, 0)
	TILELOADWIDE(5, BASE_SI, 64)
	MOVQ headSums_near+8(R12), R15
	MOVQ R15, ahead-8(SP)

valuelimbs:
	DECQ ahead-8(SP)
	LEAQ 1024(DX), BX
	MOVQ headSums_near+8(R12), R15
	SHLQ $12, R15 // bytes of a block of the cache
	LIMBS
	MOVQ BX, DX

valuevectors:
	CMPQ R8, $2
	JLT  valuestore
	MOVQ units+8(FP), BX
	MOVQ DI, R9
	OTHERUNITS(R9, BX)
	MOVQ headValues_nears(R14), R13
	LEAQ headValues_near(R14), BX
	TESTQ R13, R13
	JZ   valuefar

valuenear:
	MOVLQSX nearSum_at(BX), R15
	VPBROADCASTD nearSum_shift(BX), Z31
	NEAR(0)
	NEAR(1024)
	NEAR(2048)
	ADDQ $nearSum__size, BX
	DECQ R13
	JNZ  valuenear

valuefar:
	MOVQ headValues_fars(R14), R13
	LEAQ headValues_far(R14), BX
	TESTQ R13, R13
	JZ   valuedone

valuefarquery:
	MOVQ farSum_at(BX), R15
	VMOVDQU32 1024(R9)(R15*1), Z2
	VPSLLD $8, Z2, Z2
	VPADDD 2048(R9)(R15*1), Z2, Z2
	VPMOVSXDQ (R9)(R15*1), Z0
	VPMOVSXDQ 32(R9)(R15*1), Z1
	VPSLLQ $16, Z0, Z0
	VPSLLQ $16, Z1, Z1
	VPMOVSXDQ Y2, Z3
	VEXTRACTI64X4 $1, Z2, Y2
	VPMOVSXDQ Y2, Z2
	VPADDQ.BCST farSum_offset(BX), Z0, Z0
	VPADDQ.BCST farSum_offset(BX), Z1, Z1
	VPADDQ Z3, Z0, Z0
	VPADDQ Z2, Z1, Z1
	VPSLLVQ.BCST farSum_left(BX), Z0, Z0
	VPSLLVQ.BCST farSum_left(BX), Z1, Z1
	VPSRAVQ.BCST farSum_right(BX), Z0, Z0
	VPSRAVQ.BCST farSum_right(BX), Z1, Z1
	MOVQ farSum_total(BX), R15
	VPADDQ (R11)(R15*1), Z0, Z0
	VPADDQ 64(R11)(R15*1), Z1, Z1
	VMOVDQU64 Z0, (R11)(R15*1)
	VMOVDQU64 Z1, 64(R11)(R15*1)
	ADDQ $farSum__size, BX
	DECQ R13
	JNZ  valuefarquery

valuedone:
	ADDQ $UNITS, R10
	ADDQ $128, R11
	DECQ left-16(SP)
	JNZ  valuestore
	ADDQ $headValues__size, R14
	MOVQ headSums_near+8(R12), R15
	MOVQ R15, left-16(SP)
	MOVQ headSums_near(R12), R10
	MOVQ headSums_total(R12), R11

valuestore:
	TESTQ R8, R8
	JZ   valueproducts
	CMPQ R8, count+24(FP)
	JGT  valuenext
	STORE

valueproducts:
	CMPQ R8, count+24(FP)
	JGE  valuenext
	ZERO
	PRODUCTS

valuenext:
	MOVQ units+8(FP), BX
	OTHERUNITS(DI, BX)
	INCQ R8
	LEAQ -1(R8), BX
	CMPQ BX, count+24(FP)
	JLE  valuepanel
	TILERELEASE
	VZEROUPPER
	RET

// SETTLE makes of the sums of 8 channels at o(BX) 64-bit integers and adds them to the totals at a(AX).
#define SETTLE(o, a, z, t) \
	VPMOVSXDQ (o)(BX), z             \
	VPSLLQ $8, z, z                  \
	VPMOVSXDQ (o+1024)(BX), t        \
	VPADDQ t, z, z                   \
	VPSLLQ $8, z, z                  \
	VPMOVSXDQ (o+2048)(BX), t        \
	VPADDQ t, z, z                   \
	VPSUBQ Z31, z, z                 \
	VPSLLQ $const_collectFrom, z, z  \
	VPADDQ (a)(AX), z, z             \
	VMOVDQU64 z, (a)(AX)

// func settleAVX512(h *headSums)
TEXT ·settleAVX512(SB), NOSPLIT, $0-8
	MOVQ h+0(FP), R14
	MOVQ headSums_near(R14), SI
	MOVQ headSums_total(R14), DI
	MOVQ headSums_channels(R14), R11
	SHLQ $3, R11
	LEAQ headSums_offsets(R14), R8
	MOVQ headSums_n(R14), CX

settlequery:
	VPBROADCASTQ (R8), Z31
	MOVQ DI, AX
	MOVQ SI, BX
	MOVQ headSums_near+8(R14), DX

settlepanel:
	SETTLE(0, 0, Z0, Z1)
	SETTLE(32, 64, Z2, Z3)
	ADDQ $128, AX
	ADDQ $UNITS, BX
	DECQ DX
	JNZ  settlepanel

	ADDQ R11, DI
	ADDQ $64, SI
	ADDQ $8, R8
	DECQ CX
	JNZ  settlequery
	VZEROUPPER
	RET
