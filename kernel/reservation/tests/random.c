// SPDX-License-Identifier: GPL-2.0
/*
 * Random operations on memory with reservations, the contents checked against a model.
 *
 *   random SECONDS SEED		until the time is over
 *   random print OPERATIONS SEED	the same operations as a C program, which includes this file
 *
 * The operations follow from the seed alone. On a difference it says which operation it was.
 */
#include "common.h"

#include <time.h>

#define BLOCKS	10
#define N	(BLOCKS * (int)PAGES)
#define PIPES	12

static char *area;
static uint32_t content[N];		/* the number of each page's stamp, 0: zeroes */
static bool maybe_zero[N];		/* after MADV_FREE */
static bool read_only[N];
static struct { int fd[2]; uint32_t value; bool full; } pipes[PIPES];
static bool printing;
static long operation;

#define OP(...)								\
	do {								\
		operation++;						\
		if (printing) {						\
			printf("\t" __VA_ARGS__);			\
			return;						\
		}							\
	} while (0)

static void check_page(int i)
{
	const char *p = area + i * PAGE;

	if (maybe_zero[i] && !*(volatile uint64_t *)p) {
		CHECK(stamped(p, 0), "operation %ld: page %d, freed", operation, i);
		return;
	}
	CHECK(stamped(p, content[i]), "operation %ld: page %d (block %d page %d)", operation, i, i / 512, i % 512);
}

static void check_all(void)
{
	int i;

	OP("check_all();\n");
	for (i = 0; i < N; i++)
		check_page(i);
}

static void check_range(int from, int n)
{
	int i;

	OP("check_range(%d, %d);\n", from, n);
	for (i = from; i < from + n; i++)
		check_page(i);
}

static void write_range(int from, int n, int step, uint32_t value)
{
	int i;

	OP("write_range(%d, %d, %d, %u);\n", from, n, step, value);
	for (i = from; i < from + n; i += step) {
		if (read_only[i])
			continue;
		content[i] = value + i;
		maybe_zero[i] = false;
		stamp(area + i * PAGE, content[i]);
	}
}

static void protect(int from, int n, bool writable)
{
	int i;

	OP("protect(%d, %d, %d);\n", from, n, writable);
	CHECK(!mprotect(area + from * PAGE, n * PAGE, PROT_READ | (writable ? PROT_WRITE : 0)), "mprotect");
	for (i = from; i < from + n; i++)
		read_only[i] = !writable;
}

static void forget(int from, int n)
{
	int i;

	for (i = from; i < from + n; i++) {
		content[i] = 0;
		maybe_zero[i] = false;
	}
}

static void dontneed(int from, int n)
{
	OP("dontneed(%d, %d);\n", from, n);
	CHECK(!madvise(area + from * PAGE, n * PAGE, MADV_DONTNEED), "madvise");
	forget(from, n);
}

/* Advice that changes no contents. It may be refused. */
static void advise(int from, int n, int advice)
{
	int i;

	OP("advise(%d, %d, %d);\n", from, n, advice);
	if (!madvise(area + from * PAGE, n * PAGE, advice) || advice != MADV_FREE) {
		if (advice == MADV_FREE)
			for (i = from; i < from + n; i++)
				maybe_zero[i] = true;
	}
}

static void map_again(int from, int n)
{
	int i;

	CHECK(mmap(area + from * PAGE, n * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED, "mmap");
	CHECK(!madvise(area + from * PAGE, n * PAGE, MADV_HUGEPAGE), "madvise");
	forget(from, n);
	for (i = from; i < from + n; i++)
		read_only[i] = false;
}

static void remap(int from, int n)
{
	OP("remap(%d, %d);\n", from, n);
	CHECK(!munmap(area + from * PAGE, n * PAGE), "munmap");
	map_again(from, n);
}

/* By mremap(), which leaves a hole that is mapped again. */
static void move(int from, int to, int n)
{
	int i, k;

	OP("move(%d, %d, %d);\n", from, to, n);
	/* Of one mapping: by steps where others were split off. */
	for (i = 0; i < n; i += k) {
		for (k = n - i; k > 0; k = k > 1 ? k / 2 : 0)
			if (mremap(area + (from + i) * PAGE, k * PAGE, k * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				   area + (to + i) * PAGE) != MAP_FAILED)
				break;
		CHECK(k, "mremap: %s", strerror(errno));
	}
	for (i = 0; i < n; i++) {
		content[to + i] = content[from + i];
		maybe_zero[to + i] = maybe_zero[from + i];
		read_only[to + i] = read_only[from + i];
	}
	map_again(from, n);
}

/* Into a pipe, and away from the mapping: what is read later is what was. */
static void splice_away(int i, int pipe)
{
	struct iovec iov = { area + i * PAGE, PAGE };

	OP("splice_away(%d, %d);\n", i, pipe);
	if (pipes[pipe].full || maybe_zero[i])
		return;
	CHECK(vmsplice(pipes[pipe].fd[1], &iov, 1, 0) == PAGE, "vmsplice");
	pipes[pipe].value = content[i];
	pipes[pipe].full = true;
	CHECK(!madvise(area + i * PAGE, PAGE, MADV_DONTNEED), "madvise");
	forget(i, 1);
}

static void drain(int pipe)
{
	static char buf[PAGE];

	OP("drain(%d);\n", pipe);
	if (!pipes[pipe].full)
		return;
	CHECK(read(pipes[pipe].fd[0], buf, PAGE) == PAGE, "read");
	CHECK(stamped(buf, pipes[pipe].value), "operation %ld: pipe %d", operation, pipe);
	pipes[pipe].full = false;
}

/* A child that looks at everything after the parent has written, and writes itself. */
static void fork_and_write(int from, int n, uint32_t value)
{
	int to[2], i;
	pid_t pid;
	char c;

	OP("fork_and_write(%d, %d, %u);\n", from, n, value);
	CHECK(!pipe(to), "pipe");
	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		close(to[1]);
		for (i = from; i < from + n; i += 3)
			if (!read_only[i]) {
				content[i] = value + i + 50000;
				maybe_zero[i] = false;
				stamp(area + i * PAGE, content[i]);
			}
		CHECK(!read(to[0], &c, 1), "read");
		for (i = 0; i < N; i++)
			check_page(i);
		_exit(0);
	}
	close(to[0]);
	for (i = from + n - 1; i >= from; i -= 2)
		if (!read_only[i]) {
			content[i] = value + i;
			maybe_zero[i] = false;
			stamp(area + i * PAGE, content[i]);
		}
	close(to[1]);
	wait_for(pid);
}

/* Another process writes to the pages, by ptrace's way into them. */
static void poke(int from, int n, uint32_t value)
{
	static char buf[PAGE];
	int fd, i;

	OP("poke(%d, %d, %u);\n", from, n, value);
	fd = open("/proc/self/mem", O_RDWR);
	CHECK(fd >= 0, "mem");
	for (i = from; i < from + n; i++) {
		/* Also what is read-only. */
		content[i] = value + i;
		maybe_zero[i] = false;
		stamp(buf, content[i]);
		CHECK(pwrite(fd, buf, PAGE, (off_t)(area + i * PAGE)) == PAGE, "pwrite");
	}
	close(fd);
}

static void threshold(unsigned int t)
{
	OP("threshold(%u);\n", t);
	use(t);
}

static void split_and_compact(void)
{
	OP("split_and_compact();\n");
	write_file("/sys/kernel/debug/split_huge_pages", "1");
	write_file("/proc/sys/vm/compact_memory", "1");
}

static void idle(void)
{
	OP("idle();\n");
	write_file("/sys/kernel/mm/transparent_hugepage/reserve/idle_ms", "100");
	usleep(1300000);
	write_file("/sys/kernel/mm/transparent_hugepage/reserve/idle_ms", "5000");
}

static void setup(void)
{
	int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	area = blocks(BLOCKS);
	for (i = 0; i < PIPES; i++)
		CHECK(!pipe(pipes[i].fd), "pipe");
	use(64);
}

#ifndef REPLAY
static uint64_t state;

static unsigned int rnd(unsigned int below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (state >> 33) % below;
}

static void one(void)
{
	static const int advices[] = { MADV_COLD, MADV_PAGEOUT, MADV_FREE, 25 /* COLLAPSE */, MADV_NOHUGEPAGE,
		MADV_HUGEPAGE, MADV_HUGEPAGE, 12 /* MERGEABLE */, 13 /* UNMERGEABLE */, MADV_WILLNEED };
	static const unsigned int thresholds[] = { 1, 2, 16, 64, 64, 64, 256, 512, PR_THP_RESERVE_OFF };
	int from, n, kind = rnd(100);
	uint32_t value = rnd(1 << 30) + 1;

	/* Now and then whole blocks, mostly parts of them. */
	if (rnd(4)) {
		from = rnd(N);
		n = 1 + rnd(rnd(3) ? 40 : 700);
		if (n > N - from)
			n = N - from;
	} else {
		from = rnd(BLOCKS) * PAGES;
		n = PAGES;
	}
	if (kind < 40)
		write_range(from, n, 1 + rnd(6), value);
	else if (kind < 50)
		check_range(from, n);
	else if (kind < 62)
		dontneed(from, n);
	else if (kind < 66)
		protect(from, n, rnd(3));
	else if (kind < 69)
		protect(0, N, true);
	else if (kind < 74)
		remap(from, n);
	else if (kind < 78) {
		/* Congruent, so that the same indexes meet again, or not. */
		int to = rnd(2) ? (from + (1 + rnd(BLOCKS - 1)) * PAGES) % N : rnd(N);

		if (n > N - to)
			n = N - to;
		if (from + n <= to || to + n <= from)
			move(from, to, n);
	} else if (kind < 83)
		splice_away(from, rnd(PIPES));
	else if (kind < 87)
		drain(rnd(PIPES));
	else if (kind < 93)
		advise(from, n, advices[rnd(sizeof(advices) / sizeof(*advices))]);
	else if (kind < 95)
		fork_and_write(from, n, value);
	else if (kind < 97)
		poke(from, n, value);
	else if (kind < 98)
		threshold(thresholds[rnd(sizeof(thresholds) / sizeof(*thresholds))]);
	else if (kind < 99)
		split_and_compact();
	else if (!rnd(10))
		idle();
	else
		check_all();
}

int main(int argc, char **argv)
{
	struct timespec now;
	time_t end;
	long n;

	if (argc == 4 && !strcmp(argv[1], "print")) {
		printing = true;
		state = strtoull(argv[3], NULL, 10);
		printf("#define REPLAY\n#include \"random.c\"\n\nint main(void)\n{\n\tsetup();\n");
		for (n = atol(argv[2]); operation < n;)
			one();
		printf("\tcheck_all();\n\treturn 0;\n}\n");
		return 0;
	}
	if (argc != 3) {
		fprintf(stderr, "random SECONDS SEED | random print OPERATIONS SEED\n");
		return 2;
	}
	dirty_free_memory();
	state = strtoull(argv[2], NULL, 10);
	setup();
	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec + atol(argv[1]);
	do {
		for (n = 0; n < 50; n++)
			one();
		check_all();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end);
	printf("random: seed %s: %ld operations; reserved %ld, populated %ld, promoted %ld (%ld refused), released %ld; pages swapped %ld\n",
	       argv[2], operation, vmstat("thp_reserve_alloc"), vmstat("thp_reserve_fault"),
	       vmstat("thp_reserve_promote"), vmstat("thp_reserve_promote_failed"), vmstat("thp_reserve_release"),
	       vmstat("pswpout"));
	return 0;
}
#endif
