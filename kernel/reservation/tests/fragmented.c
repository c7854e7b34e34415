// SPDX-License-Identifier: GPL-2.0
/*
 * Filling memory on a fragmented machine, in instructions: LRBHPS' fragmenter (section 4.2) takes all free memory as huge pages and unmaps three
 * quarters of each; then 96 blocks are filled. Each line is one way of getting pages, with what Linux says of its compaction meanwhile.
 */
#include "common.h"

#define N_BLOCKS 160
/* Blocks that the fragmenter leaves: the kernel needs some. */
#define LEFT 12
#define THP "/sys/kernel/mm/transparent_hugepage/"

static const char *const COUNTERS[] = {
	"thp_fault_alloc", "thp_fault_fallback", "compact_stall", "compact_fail", "compact_success",
	"compact_migrate_scanned", "compact_free_scanned", "pgmigrate_success", "thp_reserve_alloc", "thp_reserve_promote",
};
#define N_COUNTERS (sizeof(COUNTERS) / sizeof(*COUNTERS))

static uint64_t now(void)
{
	uint32_t lo, hi;

	asm volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) :: "memory");
	return (uint64_t)hi << 32 | lo;
}

/* Free blocks of 2 MB and more: the last two columns. */
static long free_blocks(void)
{
	FILE *f = fopen("/proc/buddyinfo", "r");
	char line[512];
	long sum = 0;

	CHECK(f, "buddyinfo");
	while (fgets(line, sizeof(line), f)) {
		long last = 0, previous = 0;
		char *at;

		for (at = strtok(strstr(line, "zone"), " \n"); at; at = strtok(NULL, " \n")) {
			previous = last;
			last = strtol(at, NULL, 10);
		}
		sum += previous + 2 * last;
	}
	fclose(f);
	return sum;
}

/*
 * Takes huge pages and gives three quarters of each back until hardly any block is free; holds the rest until it is killed. What is left of a
 * huge page is base pages: MADV_PAGEOUT without swap splits it.
 */
static pid_t fragment(void)
{
	int ready[2], i;
	char byte;
	pid_t pid;

	CHECK(!pipe(ready), "pipe");
	pid = fork();
	if (pid) {
		CHECK(read(ready[0], &byte, 1) == 1, "the fragmenter ended");
		close(ready[0]);
		close(ready[1]);
		return pid;
	}
	prctl(PR_SET_THP_RESERVE, PR_THP_RESERVE_OFF, 0, 0, 0);
	for (i = 0; i < 4096 && free_blocks() > LEFT; i++) {
		char *p = blocks(1);

		memset(p, 1, BLOCK);
		CHECK(!madvise(p + BLOCK / 4, BLOCK * 3 / 4, MADV_DONTNEED), "madvise");
		madvise(p, BLOCK, MADV_PAGEOUT);
	}
	CHECK(write(ready[1], "x", 1) == 1, "pipe");
	for (;;)
		pause();
}

static void fill(const char *name, unsigned long threshold, int advice)
{
	long before[N_COUNTERS];
	pid_t pid, fragmenter = fragment();
	long blocks_free = free_blocks();
	size_t i;

	for (i = 0; i < N_COUNTERS; i++)
		before[i] = value_of("/proc/vmstat", COUNTERS[i]);
	pid = fork();
	if (!pid) {
		uint64_t start, all, most = 0;
		char *p;

		if (threshold)
			use(threshold);
		p = blocks(N_BLOCKS);
		CHECK(!madvise(p, N_BLOCKS * BLOCK, advice), "madvise");
		start = now();
		for (i = 0; i < N_BLOCKS * PAGES; i++) {
			uint64_t began = now(), took;

			*(volatile char *)(p + i * PAGE) = 1;
			took = now() - began;
			if (took > most)
				most = took;
		}
		all = now() - start;
		printf("%-28s free blocks %4ld  instructions %11lu  longest fault %10lu  huge %3ld of %d\n", name, blocks_free, all, most,
		       huge_kb(p, N_BLOCKS * BLOCK) / 2048, N_BLOCKS);
		fflush(stdout);
		_exit(0);
	}
	wait_for(pid);
	printf("   ");
	for (i = 0; i < N_COUNTERS; i++)
		if (before[i] >= 0)
			printf(" %s %ld", COUNTERS[i], value_of("/proc/vmstat", COUNTERS[i]) - before[i]);
	printf("\n");
	fflush(stdout);
	kill(fragmenter, SIGKILL);
	waitpid(fragmenter, NULL, 0);
	write_file("/proc/sys/vm/compact_memory", "1");
}

int main(void)
{
	bool has = !access(THP "reserve/enabled", F_OK);

	write_file(THP "defrag", "always");
	fill("base pages", 0, MADV_NOHUGEPAGE);
	fill("stock huge pages", 0, MADV_HUGEPAGE);
	if (has) {
		fill("reservations, t 64", 64, MADV_HUGEPAGE);
		fill("reservations, t 256", 256, MADV_HUGEPAGE);
	}
	return 0;
}
