// Constants and macros of the vector kernels. R10 points to the constants (CONSTANTS). The macros are AVX-512.

#define C_ABS     0x00(R10)
#define C_FLUSH   0x04(R10) // bits of 2^-63
#define C_ONE     0x08(R10)
#define C_HALF    0x0c(R10)
#define C_TWO     0x10(R10)
#define C_LOG2E   0x14(R10)
#define C_LN2STEP 0x18(R10)
#define C_MIN60   0x1c(R10) // -60
#define C_TWO24   0x20(R10)
#define C_LOW24   0x24(R10) // integer
#define C_LOW16   0x28(R10)
#define C_LOW8    0x2c(R10)
#define C_MANT    0x30(R10) // mantissa mask
#define C_EXP254  0x34(R10)
#define C_CUBE    0x38(R10)
#define C_GELU    0x3c(R10)
#define C_SIXTEEN 0x40(R10)
#define C_MIN16   0x44(R10)
#define C_256     0x48(R10)
#define C_BIAS    0x4c(R10) // 127
#define C_TWO36   0x50(R10)
#define C_MINP    0x54(R10) // bits of 2^-40

#define CONSTANTS LEAQ ·vectorConst(SB), R10

// FLUSH zeroes what is below 2^-63 in z; t and k are temporaries. NaN passes.
#define FLUSH(z, t, k)            \
	VPANDD.BCST C_ABS, z, t          \
	VPCMPUD.BCST $5, C_FLUSH, t, k   \
	VMOVAPS.Z z, k, z

// EXP replaces x <= 0 in z by e^x. Temporaries: t, u, v and the masks k, k2; R11 points to the exp2 table.
#define EXP(z, t, u, v, k, k2)    \
	VMULPS.BCST C_LOG2E, z, z        \
	VCMPPS.BCST $5, C_MIN60, z, k    \
	VMULPS.BCST C_TWO24, z, z        \
	VCVTPS2DQ z, z                   \
	VPANDD.BCST C_LOW16, z, t        \
	VCVTDQ2PS t, t                   \
	VMULPS.BCST C_LN2STEP, t, t      \
	VMULPS.BCST C_HALF, t, u         \
	VADDPS.BCST C_ONE, u, u          \
	VMULPS t, u, u                   \
	VADDPS.BCST C_ONE, u, u          \
	VPSRLD $16, z, t                 \
	VPANDD.BCST C_LOW8, t, t         \
	KXNORW k2, k2, k2                \
	VPXORD v, v, v                   \
	VGATHERDPS (R11)(t*4), k2, v     \
	VMULPS u, v, v                   \
	VPSRAD $24, z, z                 \
	VPADDD.BCST C_BIAS, z, z         \
	VPSLLD $23, z, z                 \
	VMULPS.Z z, v, k, z

// RECIP replaces d > 0 in z by 1/d. R12 points to the recip table.
#define RECIP(z, t, u, v, k2)     \
	VPANDD.BCST C_MANT, z, t         \
	VPORD.BCST C_ONE, t, t           \
	VPSRLD $15, z, u                 \
	VPANDD.BCST C_LOW8, u, u         \
	KXNORW k2, k2, k2                \
	VPXORD v, v, v                   \
	VGATHERDPS (R12)(u*4), k2, v     \
	VPSRLD $23, z, z                 \
	VPBROADCASTD C_EXP254, u         \
	VPSUBD z, u, z                   \
	VPSLLD $23, z, z                 \
	VMULPS v, t, u                   \
	VBROADCASTSS C_TWO, Z31          \
	VSUBPS u, Z31, u                 \
	VMULPS u, v, v                   \
	VMULPS v, t, u                   \
	VSUBPS u, Z31, u                 \
	VMULPS u, v, v                   \
	VMULPS z, v, z

// SIGMOID replaces x in z by 1/(1+e^-x).
#define SIGMOID(z, e, t, u, v, k, k2)\
	VPXORD t, t, t                   \
	VCMPPS $13, t, z, K5             \
	VPANDD.BCST C_ABS, z, e          \
	VSUBPS e, t, e                   \
	EXP(e, t, u, v, k, k2)           \
	VADDPS.BCST C_ONE, e, z          \
	RECIP(z, t, u, v, k2)            \
	VMULPS z, e, e                   \
	VMOVAPS z, K5, e                 \
	VMOVAPS e, z

#define CLEAR4(c0, c1, c2, c3) \
	VPXORD c0, c0, c0           \
	VPXORD c1, c1, c1           \
	VPXORD c2, c2, c2           \
	VPXORD c3, c3, c3

// TAILMASK sets K1 to the low n bits, n < 16 in CX.
#define TAILMASK \
	MOVL  $1, AX  \
	SHLL  CX, AX  \
	DECL  AX      \
	KMOVW AX, K1

// FOLD combines the lanes of z by an instruction into the lowest, which is that of x; y, x and ty, tx are the shorter registers of
// z and of a temporary.
#define FOLD(OP, z, y, x, ty, tx) \
	VEXTRACTI64X4 $1, z, ty       \
	OP ty, y, y                   \
	VEXTRACTI128 $1, y, tx        \
	OP tx, x, x                   \
	VPSHUFD $0x4e, x, tx          \
	OP tx, x, x                   \
	VPSHUFD $0xb1, x, tx          \
	OP tx, x, x

// REDUCE adds lanes of 32 bits, HIGHEST finds the largest float.
#define REDUCE(z, y, x, ty, tx) FOLD(VPADDD, z, y, x, ty, tx)
#define HIGHEST(z, y, x, ty, tx) FOLD(VMAXPS, z, y, x, ty, tx)
