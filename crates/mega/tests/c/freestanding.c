// A program without a C library, as Go makes them: it fills 256 MB, waits until most of it is huge or ten seconds are over, checks it, forks a child
// that checks it, too, and writes what smaps_rollup says.
#include "rollup.h"

#define BYTES (256UL << 20)
static int is_right(word *memory) {
	for (word i = 0; i < BYTES / 8; i += 512)
		if (memory[i] != (i ^ 0x5a5a))
			return 0;
	return 1;
}

__attribute__((used)) static void run(word *stack) {
	word *memory = (word *)call(MMAP, 0, BYTES, 3, 0x22, -1, 0);
	for (word i = 0; i < BYTES / 8; i += 512)
		memory[i] = i ^ 0x5a5a;
	long huge = 0;
	for (int i = 0; i < 200 && huge < 192 * 1024; i++) {
		word pause[2] = {0, 50000000};
		call(NANOSLEEP, (word)pause, 0, 0, 0, 0, 0);
		huge = huge_kib();
	}
	// Its arguments are as they were.
	if (stack[0] != 2 || ((char *)stack[2])[0] != 'x' || !is_right(memory))
		call(EXIT, 3, 0, 0, 0, 0, 0);
	long child = call(FORK, 0, 0, 0, 0, 0, 0);
	if (!child)
		call(EXIT, is_right(memory) ? 0 : 4, 0, 0, 0, 0, 0);
	int status = -1;
	call(WAIT4, child, (word)&status, 0, 0, 0, 0);
	say_huge(huge);
	call(EXIT, status ? 5 : 0, 0, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call run\n");
