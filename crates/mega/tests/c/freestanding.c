// A program without a C library, as Go makes them: it fills 256 MB, waits until most of it is huge or ten seconds are over, checks it, forks a child
// that checks it, too, and writes what smaps_rollup says.
typedef unsigned long word;

static long call(long number, word a, word b, word c, word d, word e, word f) {
	register word r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return number;
}
enum { READ, WRITE, OPEN, CLOSE, MMAP = 9, NANOSLEEP = 35, FORK = 57, EXIT = 60, WAIT4 = 61, MADVISE = 28 };

#define BYTES (256UL << 20)
static char text[8192];

static long huge_kib(void) {
	long file = call(OPEN, (word) "/proc/self/smaps_rollup", 0, 0, 0, 0, 0);
	long length = call(READ, file, (word)text, sizeof text - 1, 0, 0, 0);
	call(CLOSE, file, 0, 0, 0, 0, 0);
	static const char name[] = "AnonHugePages:";
	for (long i = 0; i + 14 < length; i++) {
		int same = 0;
		while (same < 14 && text[i + same] == name[same])
			same++;
		if (same < 14)
			continue;
		long value = 0;
		for (i += 14; text[i] == ' '; i++)
			;
		for (; text[i] >= '0' && text[i] <= '9'; i++)
			value = value * 10 + text[i] - '0';
		return value;
	}
	return -1;
}

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
	char line[32] = "huge ", digits[16];
	int at = 5, count = 0;
	for (long mib = huge / 1024; mib || !count; mib /= 10)
		digits[count++] = '0' + mib % 10;
	while (count)
		line[at++] = digits[--count];
	line[at++] = '\n';
	call(WRITE, 1, (word)line, at, 0, 0, 0);
	call(EXIT, status ? 5 : 0, 0, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call run\n");
