// Instructions that the assembler lacks, by their encoding, and what the vector kernels of arm64 share. Registers of a
// macro in capitals with a width (FMUL4S) are given by number, sources first and the destination last, as the assembler
// has them: FMUL4S(m, n, d) is FMUL Vd.4S, Vn.4S, Vm.4S. The part after the name is the arrangement of the destination.

#define BINARY(op, m, n, d) WORD $((op) | (m)<<16 | (n)<<5 | (d))
#define UNARY(op, n, d)  WORD $((op) | (n)<<5 | (d))

#define SDOT4S(m, n, d)     BINARY(0x4e809400, m, n, d)                            // SDOT Vd.4S, Vn.16B, Vm.16B
#define SDOT4SI(i, m, n, d) BINARY(0x4f80e000 | ((i)&1)<<21 | ((i)>>1)<<11, m, n, d) // SDOT Vd.4S, Vn.16B, Vm.4B[i]

#define SMULL8H(m, n, d)   BINARY(0x0e20c000, m, n, d) // SMULL Vd.8H, Vn.8B, Vm.8B
#define SMULL28H(m, n, d)  BINARY(0x4e20c000, m, n, d) // SMULL2 Vd.8H, Vn.16B, Vm.16B
#define SMLSL8H(m, n, d)   BINARY(0x0e20a000, m, n, d) // SMLSL Vd.8H, Vn.8B, Vm.8B
#define SMLSL28H(m, n, d)  BINARY(0x4e20a000, m, n, d) // SMLSL2 Vd.8H, Vn.16B, Vm.16B
#define SMLAL2D(m, n, d)   BINARY(0x0ea08000, m, n, d) // SMLAL Vd.2D, Vn.2S, Vm.2S
#define SMLAL22D(m, n, d)  BINARY(0x4ea08000, m, n, d) // SMLAL2 Vd.2D, Vn.4S, Vm.4S
#define SADDW2D(m, n, d)   BINARY(0x0ea01000, m, n, d) // SADDW Vd.2D, Vn.2D, Vm.2S
#define SADDW22D(m, n, d)  BINARY(0x4ea01000, m, n, d) // SADDW2 Vd.2D, Vn.2D, Vm.4S
#define SADDLP8H(n, d)     UNARY(0x4e202800, n, d)  // SADDLP Vd.8H, Vn.16B
#define SADALP4S(n, d)     UNARY(0x4e606800, n, d)  // SADALP Vd.4S, Vn.8H
#define SADALP2D(n, d)     UNARY(0x4ea06800, n, d)  // SADALP Vd.2D, Vn.4S

#define ABS4S(n, d)        UNARY(0x4ea0b800, n, d)  // ABS Vd.4S, Vn.4S
#define SMIN4S(m, n, d)    BINARY(0x4ea06c00, m, n, d) // SMIN Vd.4S, Vn.4S, Vm.4S
#define SMAX4S(m, n, d)    BINARY(0x4ea06400, m, n, d) // SMAX Vd.4S, Vn.4S, Vm.4S
#define UMAXVS(n, d)       UNARY(0x6eb0a800, n, d)  // UMAXV Sd, Vn.4S
#define BIC16B(m, n, d)    BINARY(0x4e601c00, m, n, d) // BIC Vd.16B, Vn.16B, Vm.16B
#define SRSHL2D(m, n, d)   BINARY(0x4ee05400, m, n, d) // SRSHL Vd.2D, Vn.2D, Vm.2D

#define SSHR4S(s, n, d)    UNARY(0x4f000400 | (64-(s))<<16, n, d) // SSHR Vd.4S, Vn.4S, #s
#define SRSHR4S(s, n, d)   UNARY(0x4f002400 | (64-(s))<<16, n, d) // SRSHR Vd.4S, Vn.4S, #s
#define SSHLL4S(s, n, d)   UNARY(0x0f00a400 | (16+(s))<<16, n, d) // SSHLL Vd.4S, Vn.4H, #s
#define SSHLL2D(s, n, d)   UNARY(0x0f00a400 | (32+(s))<<16, n, d) // SSHLL Vd.2D, Vn.2S, #s
#define SSHLL22D(s, n, d)  UNARY(0x4f00a400 | (32+(s))<<16, n, d) // SSHLL2 Vd.2D, Vn.4S, #s

#define FMUL4S(m, n, d)    BINARY(0x6e20dc00, m, n, d) // FMUL Vd.4S, Vn.4S, Vm.4S
#define FADD4S(m, n, d)    BINARY(0x4e20d400, m, n, d) // FADD Vd.4S, Vn.4S, Vm.4S
#define FSUB4S(m, n, d)    BINARY(0x4ea0d400, m, n, d) // FSUB Vd.4S, Vn.4S, Vm.4S
#define FMAX4S(m, n, d)    BINARY(0x4e20f400, m, n, d) // FMAX Vd.4S, Vn.4S, Vm.4S
#define FMAXVS(n, d)       UNARY(0x6e30f800, n, d)  // FMAXV Sd, Vn.4S
#define FCMGT4S(m, n, d)   BINARY(0x6ea0e400, m, n, d) // FCMGT Vd.4S, Vn.4S, Vm.4S: n > m
#define FACGT4S(m, n, d)   BINARY(0x6ea0ec00, m, n, d) // FACGT Vd.4S, Vn.4S, Vm.4S: |n| > |m|
#define FCMGEZ4S(n, d)     UNARY(0x6ea0c800, n, d)  // FCMGE Vd.4S, Vn.4S, #0.0
#define FCVTNS4S(n, d)     UNARY(0x4e21a800, n, d)  // FCVTNS Vd.4S, Vn.4S: to nearest, ties to even
#define FCVTNS2D(n, d)     UNARY(0x4e61a800, n, d)  // FCVTNS Vd.2D, Vn.2D
#define FCVTL2D(n, d)      UNARY(0x0e617800, n, d)  // FCVTL Vd.2D, Vn.2S
#define FCVTL22D(n, d)     UNARY(0x4e617800, n, d)  // FCVTL2 Vd.2D, Vn.4S
#define SCVTF4S(n, d)      UNARY(0x4e21d800, n, d)  // SCVTF Vd.4S, Vn.4S

// SET fills the four lanes of v with these bits.
#define SET(bits, v) \
	MOVD $bits, R15 \
	VDUP R15, v.S4

#define CLEAR4(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16 \
	VEOR b.B16, b.B16, b.B16 \
	VEOR c.B16, c.B16, c.B16 \
	VEOR d.B16, d.B16, d.B16

// FLUSHCONST loads 2^-63. FLUSH zeroes what is below it in register z; t is a temporary. NaN passes.
#define FLUSHCONST SET(0x20000000, V30)

#define FLUSH(z, t) \
	FACGT4S(z, 30, t) \
	BIC16B(t, z, z)
