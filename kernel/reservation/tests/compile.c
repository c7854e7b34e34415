// SPDX-License-Identifier: GPL-2.0
/*
 * A compiler at work on a file of the kernel (/bin/cc1, /bin/source.i), with each way of getting pages: instructions, faults, the most that was
 * resident. For a machine where an instruction is a nanosecond (tests/vm/reservation compile).
 */
#include "common.h"

#include <sys/resource.h>

#define THP "/sys/kernel/mm/transparent_hugepage/"

static uint64_t now(void)
{
	uint32_t lo, hi;

	asm volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) :: "memory");
	return (uint64_t)hi << 32 | lo;
}

static void compile(const char *name, const char *huge, const char *medium, unsigned long threshold)
{
	long alloc = value_of("/proc/vmstat", "thp_reserve_alloc"), promote = value_of("/proc/vmstat", "thp_reserve_promote");
	uint64_t start;
	struct rusage used;
	int status;
	pid_t pid;

	write_file(THP "enabled", huge);
	write_file(THP "hugepages-64kB/enabled", medium);
	start = now();
	pid = fork();
	if (!pid) {
		if (threshold)
			use(threshold);
		execl("/bin/cc1", "cc1", "-quiet", "-O1", "-w", "-fpreprocessed", "/bin/source.i", "-o", "/dev/null", NULL);
		_exit(127);
	}
	CHECK(wait4(pid, &status, 0, &used) == pid && !status, "cc1: %#x", status);
	printf("%-24s %14lu instructions %8ld faults %7ld kB at most  reserved %ld  promoted %ld\n", name, now() - start, used.ru_minflt,
	       used.ru_maxrss, alloc < 0 ? 0 : value_of("/proc/vmstat", "thp_reserve_alloc") - alloc,
	       promote < 0 ? 0 : value_of("/proc/vmstat", "thp_reserve_promote") - promote);
	fflush(stdout);
}

int main(void)
{
	bool has = !access(THP "reserve/enabled", F_OK);

	/* The first run reads the files. */
	compile("(first)", "never", "never", 0);
	compile("base pages", "never", "never", 0);
	compile("stock huge pages", "always", "never", 0);
	compile("64 KB folios", "never", "always", 0);
	if (has) {
		compile("reservations, t 64", "always", "never", 64);
		compile("reservations, t 256", "always", "never", 256);
		compile("reservations, t 512", "always", "never", 512);
	}
	return 0;
}
