// A program without a C library that maps a reserve 4 MB at a time, as Go does, and fills each piece at once. Its system call looks as compilers
// make it; they trust that a call changes rax, rcx and r11 alone, and keep what they like below the stack: so do we, and check all of it.
// Writes what smaps_rollup says.
#include "rollup.h"

// What a mapping at this address returned; *kept is 1 if every register and what lay below the stack is as before.
long map(word address, word bytes, word protection, word flags, long *kept);
__asm__("map:\n"
	"push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
	"mov %r8, %rbx\n"
	"mov %rcx, %r10\n"
	"mov $-1, %r8\n"
	"xor %r9d, %r9d\n"
	"mov %rdi, %r12\n mov %rsi, %r13\n mov %rdx, %r14\n mov %r10, %r15\n"
	"lea 0x1234(%rsi), %rbp\n"
	"movq %rbp, %xmm0\n movq %rdi, %xmm7\n movq %rsi, %xmm15\n"
	"mov %rbp, -8(%rsp)\n mov %r12, -64(%rsp)\n mov %r13, -128(%rsp)\n"
	"stc\n"
	"mov $9, %eax\n"
	"syscall\n"
	"jnc 1f\n"
	"cmp %r12, %rdi\n jne 1f\n cmp %r13, %rsi\n jne 1f\n cmp %r14, %rdx\n jne 1f\n cmp %r15, %r10\n jne 1f\n"
	"cmp $-1, %r8\n jne 1f\n test %r9, %r9\n jne 1f\n"
	"lea 0x1234(%rsi), %rcx\n cmp %rcx, %rbp\n jne 1f\n"
	"movq %xmm0, %rcx\n cmp %rbp, %rcx\n jne 1f\n movq %xmm7, %rcx\n cmp %rdi, %rcx\n jne 1f\n"
	"movq %xmm15, %rcx\n cmp %rsi, %rcx\n jne 1f\n"
	"cmp %rbp, -8(%rsp)\n jne 1f\n cmp %r12, -64(%rsp)\n jne 1f\n cmp %r13, -128(%rsp)\n jne 1f\n"
	"movq $1, (%rbx)\n jmp 2f\n"
	"1: movq $0, (%rbx)\n"
	"2: pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

#define BYTES (768UL << 20)
#define PIECE (4UL << 20)
static int is_right(word *memory) {
	for (word i = 0; i < BYTES / 8; i += 512)
		if (memory[i] != (i ^ 0x5a5a))
			return 0;
	return 1;
}

__attribute__((used)) static void run(void) {
	enum { RESERVED = 0, READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22, FIXED = 0x10, NO_RESERVE = 0x4000 };
	long kept, at = map(0, BYTES + (2UL << 20), RESERVED, PRIVATE_ANONYMOUS | NO_RESERVE, &kept);
	word *memory = (word *)((at + (2UL << 20) - 1) & -(2UL << 20));
	if (at < 0 || !kept)
		call(EXIT, 3, 0, 0, 0, 0, 0);
	// What is refused is refused as ever.
	if (map((word)memory + 1, PIECE, READ_WRITE, PRIVATE_ANONYMOUS | FIXED, &kept) != -22 || !kept)
		call(EXIT, 4, 0, 0, 0, 0, 0);
	for (word piece = 0; piece < BYTES / PIECE; piece++) {
		word *start = memory + piece * (PIECE / 8);
		at = map((word)start, PIECE, READ_WRITE, PRIVATE_ANONYMOUS | FIXED, &kept);
		if (at != (long)start || !kept)
			call(EXIT, 5, 0, 0, 0, 0, 0);
		for (word i = 0; i < PIECE / 8; i += 512)
			start[i] = (start - memory + i) ^ 0x5a5a;
	}
	long huge = huge_kib();
	long child = call(FORK, 0, 0, 0, 0, 0, 0);
	if (!child) {
		at = map(0, 64UL << 20, READ_WRITE, PRIVATE_ANONYMOUS, &kept);
		call(EXIT, at > 0 && kept && is_right(memory) ? 0 : 6, 0, 0, 0, 0, 0);
	}
	int status = -1;
	call(WAIT4, child, (word)&status, 0, 0, 0, 0);
	if (status || !is_right(memory))
		call(EXIT, 7, 0, 0, 0, 0, 0);
	say_huge(huge);
	call(EXIT, 0, 0, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n and $-16, %rsp\n call run\n");
