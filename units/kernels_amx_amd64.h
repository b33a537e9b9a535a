// Instructions of Intel AMX, which the assembler does not know. Memory operands are [base + RAX], rows RAX bytes apart, or
// [base + RCX].

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

// tilezero tmm(t)
#define TILEZERO(t) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $(0xc0|t<<3)

// tdpbsud tmm(c), tmm(a), tmm(b)
#define TDPBSUD(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $((0xf^b)<<3|2); BYTE $0x5e; BYTE $(0xc0|c<<3|a)

