// SPDX-License-Identifier: GPL-2.0
/*
 * What faults cost, in instructions: for a machine where one of them is a nanosecond (tests/vm/reservation exact), and the same run takes the
 * same number of them each time. Three tables, each with every way of getting pages:
 *  - touching 64 blocks of 2 MB: how many faults, instructions in all, and of the fault at each percentile, with what the touch itself takes;
 *  - mapping 2 MB, touching one page, unmapping it, 256 times;
 *  - fork with 64 blocks filled, a write to each 16th page by the child, and its exit.
 * khugepaged comes after the touch: its own instructions, by its processor's clock, and what it made huge.
 */
#include "common.h"

#include <dirent.h>
#include <time.h>

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

/* What a short life costs: where a huge page or a reservation is too much. */
static void churn(const char *name, int advice)
{
	const int n = 256;
	uint64_t start = now();
	int i;

	for (i = 0; i < n; i++) {
		char *p = blocks(1);

		CHECK(!madvise(p, BLOCK, advice), "madvise");
		*(volatile char *)(p + 7 * PAGE) = 1;
		munmap(p, BLOCK);
	}
	printf("%-44s %10lu each\n", name, (now() - start) / n);
	fflush(stdout);
}

static void forked(const char *name, char *p)
{
	uint64_t start, began, wrote, ended, *times = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t i;
	pid_t pid;

	CHECK(times != MAP_FAILED, "mmap");
	for (i = 0; i < N_BLOCKS * PAGES; i++)
		*(volatile char *)(p + i * PAGE) = 1;
	start = now();
	pid = fork();
	if (!pid) {
		times[0] = now();
		for (i = 0; i < N_BLOCKS * PAGES; i += 16)
			*(volatile char *)(p + i * PAGE) = 2;
		times[1] = now();
		_exit(0);
	}
	began = now();
	wait_for(pid);
	ended = now();
	wrote = times[1] - times[0];
	printf("%-44s fork %10lu  writes %10lu  all %10lu  huge afterwards %ld kB\n", name, began - start, wrote,
	       ended - start, huge_kb(p, N_BLOCKS * BLOCK));
	fflush(stdout);
	munmap(times, PAGE);
	munmap(p, N_BLOCKS * BLOCK);
}

static clockid_t khugepaged(void)
{
	clockid_t clock = -1;
	char path[64], comm[32];
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	while (clock == -1 && (entry = readdir(proc))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%.16s/comm", entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && !strcmp(comm, "khugepaged\n"))
			CHECK(!clock_getcpuclockid(atoi(entry->d_name), &clock), "khugepaged's clock");
		fclose(f);
	}
	closedir(proc);
	CHECK(clock != -1, "no khugepaged");
	return clock;
}

/* Base pages at the faults, which khugepaged collapses where all of them are there (max_ptes_none 0). */
static char *collapsed(const char *name, unsigned int pages)
{
	struct timespec before, after;
	char *p = blocks(N_BLOCKS);
	clockid_t clock = khugepaged();
	size_t i, j;

	CHECK(!madvise(p, N_BLOCKS * BLOCK, MADV_NOHUGEPAGE), "madvise");
	for (i = 0; i < N_BLOCKS; i++)
		for (j = 0; j < pages; j++)
			*(volatile char *)(p + i * BLOCK + j * PAGE) = 1;
	clock_gettime(clock, &before);
	CHECK(!madvise(p, N_BLOCKS * BLOCK, MADV_HUGEPAGE), "madvise");
	for (i = 0; i < 200 && huge_kb(p, N_BLOCKS * BLOCK) < (long)(N_BLOCKS * BLOCK / 1024); i++)
		usleep(100000);
	clock_gettime(clock, &after);
	printf("%-44s khugepaged %10lu  huge %ld kB\n", name,
	       (after.tv_sec - before.tv_sec) * 1000000000ul + after.tv_nsec - before.tv_nsec, huge_kb(p, N_BLOCKS * BLOCK));
	fflush(stdout);
	return p;
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
	churn("base pages, short", MADV_NOHUGEPAGE);
	forked("base pages, fork", base_pages());
	measure("stock huge pages, all", blocks(N_BLOCKS), PAGES);
	churn("stock huge pages, short", MADV_HUGEPAGE);
	forked("stock huge pages, fork", blocks(N_BLOCKS));
	write_file(THP "khugepaged/max_ptes_none", "0");
	write_file(THP "khugepaged/pages_to_scan", "65536");
	write_file(THP "khugepaged/scan_sleep_millisecs", "100");
	munmap(collapsed("khugepaged, max_ptes_none 0, 32 pages a block", 32), N_BLOCKS * BLOCK);
	forked("khugepaged, max_ptes_none 0, fork", collapsed("khugepaged, max_ptes_none 0, all", PAGES));
	write_file(THP "khugepaged/scan_sleep_millisecs", "10000");
	if (!access(THP "hugepages-64kB/enabled", F_OK)) {
		write_file(THP "hugepages-2048kB/enabled", "never");
		write_file(THP "hugepages-64kB/enabled", "always");
		measure("64 KB folios, all", blocks(N_BLOCKS), PAGES);
		churn("64 KB folios, short", MADV_HUGEPAGE);
		forked("64 KB folios, fork", blocks(N_BLOCKS));
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
		snprintf(name, sizeof(name), "reservations, t %u, short", thresholds[i]);
		churn(name, MADV_HUGEPAGE);
		snprintf(name, sizeof(name), "reservations, t %u, fork", thresholds[i]);
		forked(name, blocks(N_BLOCKS));
	}
	use(64);
	measure("reservations asked for, base pages, all", base_pages(), PAGES);
	churn("reservations asked for, base pages, short", MADV_NOHUGEPAGE);
	forked("reservations asked for, base pages, fork", base_pages());
	return 0;
}
