// SPDX-License-Identifier: GPL-2.0
/*
 * What faults cost, in instructions: for a machine where one of them is a nanosecond (tests/vm/reservation exact), and the same run takes the
 * same number of them each time. Each line is one way of touching 64 blocks of 2 MB: how many faults, instructions in all, and of the fault at
 * each percentile, with what the touch itself takes.
 */
#include "common.h"

#define N_BLOCKS 64
#define THP "/sys/kernel/mm/transparent_hugepage/"

static uint64_t cost[N_BLOCKS * PAGES];

static uint64_t now(void)
{
	uint32_t lo, hi;

	asm volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) :: "memory");
	return (uint64_t)hi << 32 | lo;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Touches the first pages of each block, one block after the other, and counts what took longer than a touch. */
static void measure(const char *name, char *p, unsigned int pages)
{
	uint64_t sum = 0;
	size_t n = 0, i, j;
	long promoted = value_of("/proc/vmstat", "thp_reserve_promote");

	for (i = 0; i < N_BLOCKS; i++)
		for (j = 0; j < pages; j++) {
			uint64_t start = now(), took;

			*(volatile char *)(p + i * BLOCK + j * PAGE) = 1;
			took = now() - start;
			if (took > 200) {
				cost[n++] = took;
				sum += took;
			}
		}
	qsort(cost, n, sizeof(*cost), by_size);
	printf("%-44s %6zu faults %10lu in all  p50 %7lu  p90 %7lu  p99 %7lu  max %7lu  promoted %ld  huge %ld kB\n", name, n, sum,
	       cost[n / 2], cost[n * 9 / 10], cost[n * 99 / 100], cost[n - 1],
	       promoted < 0 ? 0 : value_of("/proc/vmstat", "thp_reserve_promote") - promoted,
	       huge_kb(p, N_BLOCKS * BLOCK));
	fflush(stdout);
	munmap(p, N_BLOCKS * BLOCK);
}

static char *base_pages(void)
{
	char *p = blocks(N_BLOCKS);

	CHECK(!madvise(p, N_BLOCKS * BLOCK, MADV_NOHUGEPAGE), "madvise");
	return p;
}

int main(void)
{
	static const unsigned int thresholds[] = { 1, 64, 256, 512 };
	char name[80], *p;
	size_t i;
	bool has = !access(THP "reserve/enabled", F_OK);

	/* The first of them pays for what is set up once. */
	p = base_pages();
	memset(p, 1, N_BLOCKS * BLOCK);
	munmap(p, N_BLOCKS * BLOCK);

	measure("base pages, all", base_pages(), PAGES);
	measure("stock huge pages, all", blocks(N_BLOCKS), PAGES);
	if (!access(THP "hugepages-64kB/enabled", F_OK)) {
		write_file(THP "hugepages-2048kB/enabled", "never");
		write_file(THP "hugepages-64kB/enabled", "always");
		measure("64 KB folios, all", blocks(N_BLOCKS), PAGES);
		write_file(THP "hugepages-64kB/enabled", "never");
		write_file(THP "hugepages-2048kB/enabled", "inherit");
	}
	if (!has)
		return 0;
	for (i = 0; i < sizeof(thresholds) / sizeof(*thresholds); i++) {
		use(thresholds[i]);
		snprintf(name, sizeof(name), "reservations, t %u, all", thresholds[i]);
		measure(name, blocks(N_BLOCKS), PAGES);
		snprintf(name, sizeof(name), "reservations, t %u, 32 pages a block", thresholds[i]);
		measure(name, blocks(N_BLOCKS), 32);
	}
	use(64);
	measure("reservations asked for, base pages, all", base_pages(), PAGES);
	return 0;
}
