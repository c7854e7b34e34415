// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of reservations, each in a process of its own: TAP on standard output. Root.
 *
 *   basic [NAME...]	all, or those whose names contain one of the words
 */
#include "common.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <linux/io_uring.h>

#define RESERVE "/sys/kernel/mm/transparent_hugepage/reserve/"

static void promotes_at(unsigned int t)
{
	char *p = blocks(1);
	long alloc = vmstat("thp_reserve_alloc");
	long fault = vmstat("thp_reserve_fault");
	long promote = vmstat("thp_reserve_promote");
	unsigned int i, order[PAGES], k;

	use(t);
	/* Populated in no order: 125 is prime to 512. */
	for (i = 0; i < PAGES; i++)
		order[i] = (i * 125 + 77) % PAGES;
	for (i = 0; i < t; i++) {
		if (i == t / 2 || i == t - 1)
			CHECK(!huge_kb(p, BLOCK), "huge at %u of %u", i, t);
		stamp(p + order[i] * PAGE, i + 1);
	}
	CHECK(huge_kb(p, BLOCK) == BLOCK / 1024, "t %u: %ld kB", t,
	      huge_kb(p, BLOCK));
	for (k = 0; k < PAGES; k++)
		CHECK(stamped(p + order[k] * PAGE, k < t ? k + 1 : 0), "page %u",
		      order[k]);
	CHECK(vmstat("thp_reserve_alloc") - alloc == 1, "alloc");
	CHECK(vmstat("thp_reserve_fault") - fault == t, "faults %ld",
	      vmstat("thp_reserve_fault") - fault);
	CHECK(vmstat("thp_reserve_promote") - promote == 1, "promote");
	CHECK(smaps("Rss", p, BLOCK) == BLOCK / 1024, "rss");
}

static void threshold_1(void) { promotes_at(1); }
static void threshold_2(void) { promotes_at(2); }
static void threshold_64(void) { promotes_at(64); }
static void threshold_256(void) { promotes_at(256); }
static void threshold_512(void) { promotes_at(512); }

/* One page of each block, then what is not populated from every direction. */
static void unpopulated_pages_read_as_zero(void)
{
	const int n = 16;
	static char buf[PAGE];
	char *p = blocks(n);
	int fd, i, j, pipes[2];

	use(64);
	fd = open("/proc/self/mem", O_RDONLY);
	CHECK(fd >= 0, "/proc/self/mem");
	CHECK(!pipe(pipes), "pipe");
	for (i = 0; i < n; i++)
		stamp(p + i * BLOCK + (i * 31 % 512) * PAGE, i + 1);
	for (i = 0; i < n; i++)
		for (j = 0; j < 512; j += 7) {
			char *q = p + i * BLOCK + j * PAGE;
			struct iovec local = { buf, PAGE }, remote = { q, PAGE };
			uint64_t n = j == i * 31 % 512 ? i + 1 : 0;

			switch ((j + i) % 4) {
			case 0:
				CHECK(pread(fd, buf, PAGE, (off_t)q) == PAGE, "pread");
				break;
			case 1:
				CHECK(process_vm_readv(getpid(), &local, 1,
						       &remote, 1, 0) == PAGE, "readv");
				break;
			case 2:
				CHECK(vmsplice(pipes[1], &remote, 1, 0) == PAGE, "vmsplice");
				CHECK(read(pipes[0], buf, PAGE) == PAGE, "read");
				break;
			default:
				memcpy(buf, q, PAGE);
			}
			CHECK(stamped(buf, n), "block %d page %d", i, j);
		}
}

static void read_first_write_later_is_promoted(void)
{
	volatile char *p = blocks(1);
	unsigned int i;

	use(64);
	for (i = 0; i < PAGES; i++)
		CHECK(p[i * PAGE] == 0, "zero");
	for (i = 0; i < 64; i++)
		stamp((char *)p + i * 8 * PAGE, i + 1);
	CHECK(huge_kb((char *)p, BLOCK) == BLOCK / 1024, "huge");
	for (i = 0; i < PAGES; i++)
		CHECK(stamped((char *)p + i * PAGE, i % 8 ? 0 : i / 8 + 1), "page %u", i);
}

/* What is in a pipe stays as it was, whatever becomes of the page. */
static void a_spliced_page_is_not_populated_again(void)
{
	static char buf[PAGE];
	char *p = blocks(1), *q = p + 7 * PAGE;
	struct iovec iov = { q, PAGE };
	int pipes[2];

	use(64);
	stamp(p, 1);
	stamp(q, 2);
	CHECK(!pipe(pipes), "pipe");
	CHECK(vmsplice(pipes[1], &iov, 1, 0) == PAGE, "vmsplice");
	CHECK(!madvise(q, PAGE, MADV_DONTNEED), "madvise");
	CHECK(stamped(q, 0), "after MADV_DONTNEED");
	stamp(q, 3);
	CHECK(read(pipes[0], buf, PAGE) == PAGE, "read");
	CHECK(stamped(buf, 2), "the pipe's page");
	CHECK(stamped(q, 3) && stamped(p, 1), "the mapping's");
}

static void a_zapped_page_is_populated_again(void)
{
	char *p = blocks(1);
	long fault;
	int i;

	use(64);
	for (i = 0; i < 32; i++)
		stamp(p + i * PAGE, i + 1);
	/* Batches of the LRU hold references: they are another reason not to. */
	sleep(1);
	/* Which would release what is idle. */
	write_file(RESERVE "idle_ms", "600000");
	write_file("/proc/sys/vm/compact_memory", "1");
	write_file(RESERVE "idle_ms", "5000");
	CHECK(!madvise(p, 16 * PAGE, MADV_DONTNEED), "madvise");
	fault = vmstat("thp_reserve_fault");
	for (i = 0; i < 16; i++) {
		CHECK(stamped(p + i * PAGE, 0), "page %d", i);
		stamp(p + i * PAGE, 100 + i);
	}
	CHECK(vmstat("thp_reserve_fault") - fault == 16, "%ld",
	      vmstat("thp_reserve_fault") - fault);
	for (i = 32; i < 64; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(huge_kb(p, BLOCK) == BLOCK / 1024, "huge");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 16 ? 100 + i : i < 64 ? i + 1 : 0), "page %d", i);
}

static void half_a_block_moved_is_no_page_twice(void)
{
	char *p = blocks(1), *q = blocks(1);
	int i;

	use(512);
	for (i = 0; i < 512; i += 2)
		stamp(p + i * PAGE, i + 1);
	CHECK(mremap(p + BLOCK / 2, BLOCK / 2, BLOCK / 2, MREMAP_MAYMOVE | MREMAP_FIXED,
		     q + BLOCK / 2) == q + BLOCK / 2, "mremap");
	CHECK(mmap(p + BLOCK / 2, BLOCK / 2, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED, "mmap");
	madvise(p, BLOCK, MADV_HUGEPAGE);
	/* Fill both sides, so that each index is wanted twice. */
	for (i = 0; i < 512; i++) {
		stamp(p + i * PAGE, 1000 + i);
		if (i < 256 || i % 2)
			stamp(q + i * PAGE, 2000 + i);
	}
	for (i = 0; i < 512; i++) {
		CHECK(stamped(p + i * PAGE, 1000 + i), "old %d", i);
		CHECK(stamped(q + i * PAGE, i < 256 || i % 2 ? 2000 + i : i + 1), "new %d", i);
	}
}

static void a_moved_block_keeps_its_contents(void)
{
	char *p = blocks(1), *q = blocks(1);
	int i;

	use(64);
	for (i = 0; i < 32; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(mremap(p, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q, "mremap");
	for (i = 16; i < 512; i++)
		stamp(q + i * PAGE, 1000 + i);
	for (i = 0; i < 512; i++)
		CHECK(stamped(q + i * PAGE, i < 16 ? i + 1 : 1000 + i), "page %d", i);
}

static void holes_of_munmap_are_new_memory(void)
{
	char *p = blocks(1);
	int i;

	use(64);
	for (i = 0; i < 60; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(!munmap(p + 10 * PAGE, 20 * PAGE), "munmap");
	CHECK(mmap(p + 10 * PAGE, 20 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED, "mmap");
	for (i = 0; i < 60; i++)
		CHECK(stamped(p + i * PAGE, i >= 10 && i < 30 ? 0 : i + 1), "page %d", i);
	for (i = 0; i < 512; i++)
		stamp(p + i * PAGE, 5000 + i);
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, 5000 + i), "page %d", i);
}

static void mprotect_of_a_part_is_kept(void)
{
	char *p = blocks(1);
	int i, pid, status;

	use(64);
	for (i = 0; i < 40; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(!mprotect(p + BLOCK / 2, BLOCK / 2, PROT_READ), "mprotect");
	for (i = 40; i < 256; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(!huge_kb(p, BLOCK), "huge across two mappings");
	pid = fork();
	if (!pid) {
		p[BLOCK - 1] = 1;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	      WTERMSIG(status) == SIGSEGV, "write to what is read-only");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 256 ? i + 1 : 0), "page %d", i);
}

static void dontneed_demotes_and_faults_promote_again(void)
{
	char *p = blocks(1);
	long promote = vmstat("thp_reserve_promote");
	int i;

	use(64);
	for (i = 0; i < 64; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(huge_kb(p, BLOCK), "huge");
	sleep(1);
	CHECK(!madvise(p + 100 * PAGE, 300 * PAGE, MADV_DONTNEED), "madvise");
	CHECK(!huge_kb(p, BLOCK), "demoted");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 64 ? i + 1 : 0), "page %d", i);
	for (i = 100; i < 400; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(huge_kb(p, BLOCK) == BLOCK / 1024, "promoted again");
	CHECK(vmstat("thp_reserve_promote") - promote == 2, "promotions");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 64 || (i >= 100 && i < 400) ? i + 1 : 0), "page %d", i);
}

static void fork_keeps_both_sides_apart(void)
{
	char *p = blocks(2);
	int i, round;

	use(64);
	for (i = 0; i < 40; i++)
		stamp(p + i * PAGE, i + 1);
	for (i = 0; i < 64; i++)
		stamp(p + BLOCK + i * PAGE, i + 1);
	CHECK(huge_kb(p, 2 * BLOCK) == BLOCK / 1024, "huge");
	for (round = 0; round < 3; round++) {
		int pipes[2];
		pid_t pid;
		char c;

		CHECK(!pipe(pipes), "pipe");
		pid = fork();
		if (!pid) {
			close(pipes[1]);
			/* Splits the huge page in the child. */
			CHECK(!mprotect(p + BLOCK, PAGE, PROT_READ), "mprotect");
			for (i = 20; i < 300; i++) {
				stamp(p + i * PAGE, 7000 + i);
				stamp(p + BLOCK + i * PAGE, 8000 + i);
			}
			CHECK(read(pipes[0], &c, 1) == 0, "read");
			for (i = 0; i < 512; i++) {
				CHECK(stamped(p + i * PAGE, i >= 20 && i < 300 ? 7000 + i :
					      i < 40 ? i + 1 : 0), "child %d", i);
				CHECK(stamped(p + BLOCK + i * PAGE,
					      i >= 20 && i < 300 ? 8000 + i : i < 64 ? i + 1 : 0), "child %d", i);
			}
			_exit(0);
		}
		close(pipes[0]);
		usleep(20000);
		for (i = 300; i < 512; i++) {
			stamp(p + i * PAGE, 9000 + i);
			stamp(p + BLOCK + i * PAGE, 9000 + i);
		}
		for (i = 0; i < 512; i++) {
			CHECK(stamped(p + i * PAGE, i >= 300 ? 9000 + i : i < 40 ? i + 1 : 0), "parent %d", i);
			CHECK(stamped(p + BLOCK + i * PAGE, i >= 300 ? 9000 + i : i < 64 ? i + 1 : 0), "parent %d", i);
		}
		CHECK(!madvise(p + 300 * PAGE, 212 * PAGE, MADV_DONTNEED), "madvise");
		CHECK(!madvise(p + BLOCK + 300 * PAGE, 212 * PAGE, MADV_DONTNEED), "madvise");
		close(pipes[1]);
		wait_for(pid);
	}
}

/* AnonExclusive of tail pages: after promotion, fork and a split in the child. */
static void a_promoted_page_is_shared_by_fork(void)
{
	char *p = blocks(1);
	int i, to[2];
	pid_t pid;
	char c;

	use(64);
	for (i = 0; i < 64; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(huge_kb(p, BLOCK), "huge");
	CHECK(!pipe(to), "pipe");
	pid = fork();
	if (!pid) {
		close(to[1]);
		CHECK(read(to[0], &c, 1) == 0, "read");
		for (i = 0; i < 512; i++)
			CHECK(stamped(p + i * PAGE, i < 64 ? i + 1 : 0), "the child sees page %d", i);
		_exit(0);
	}
	/* The parent splits, and writes to every page. */
	CHECK(!mprotect(p + 511 * PAGE, PAGE, PROT_READ), "mprotect");
	for (i = 0; i < 511; i++)
		stamp(p + i * PAGE, 3000 + i);
	close(to[1]);
	wait_for(pid);
}

static void fork_ends_a_reservation(void)
{
	char *p = blocks(1);
	long fault;
	int i;
	pid_t pid;

	use(64);
	for (i = 0; i < 32; i++)
		stamp(p + i * PAGE, i + 1);
	pid = fork();
	if (!pid)
		_exit(0);
	wait_for(pid);
	fault = vmstat("thp_reserve_fault");
	for (i = 32; i < 512; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(vmstat("thp_reserve_fault") == fault, "populated after fork");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i + 1), "page %d", i);
}

static void idle_reservations_are_released(void)
{
	const int n = 20;
	char *p = blocks(n);
	long reserved, release;
	int i;

	use(64);
	/* None is idle before all of them are counted, however slow the machine is. */
	write_file(RESERVE "idle_ms", "600000");
	reserved = vmstat("nr_anon_reserved");
	release = vmstat("thp_reserve_release");
	for (i = 0; i < n; i++)
		stamp(p + i * BLOCK + i * PAGE, i + 1);
	CHECK(vmstat("nr_anon_reserved") - reserved >= n * 511 - 100, "%ld reserved",
	      vmstat("nr_anon_reserved") - reserved);
	CHECK(smaps("AnonReserved", p, n * BLOCK) == n * 511 * 4, "smaps: %ld kB reserved",
	      smaps("AnonReserved", p, n * BLOCK));
	write_file(RESERVE "idle_ms", "1000");
	for (i = 0; i < 100 && vmstat("thp_reserve_release") - release < n; i++)
		usleep(100000);
	write_file(RESERVE "idle_ms", "5000");
	CHECK(vmstat("thp_reserve_release") - release == n, "%ld released",
	      vmstat("thp_reserve_release") - release);
	CHECK(vmstat("nr_anon_reserved") - reserved < 100, "%ld still reserved",
	      vmstat("nr_anon_reserved") - reserved);
	CHECK(!smaps("AnonReserved", p, n * BLOCK), "smaps: %ld kB still reserved",
	      smaps("AnonReserved", p, n * BLOCK));
	for (i = 0; i < n; i++) {
		CHECK(stamped(p + i * BLOCK + i * PAGE, i + 1), "block %d", i);
		stamp(p + i * BLOCK + 300 * PAGE, i + 7);
		CHECK(stamped(p + i * BLOCK + 301 * PAGE, 0), "block %d", i);
	}
}

static void compaction_releases_idle_reservations_first(void)
{
	const int n = 20;
	char *p = blocks(n);
	long release;
	int i;

	use(64);
	write_file(RESERVE "idle_ms", "600000");
	for (i = 0; i < n; i++)
		stamp(p + i * BLOCK + i * PAGE, i + 1);
	release = vmstat("thp_reserve_release");
	write_file("/proc/sys/vm/compact_memory", "1");
	CHECK(vmstat("thp_reserve_release") == release, "%ld released that were not idle",
	      vmstat("thp_reserve_release") - release);
	/* Idle for compaction after 3 s, by themselves only after 30. */
	write_file(RESERVE "idle_ms", "30000");
	sleep(4);
	CHECK(vmstat("thp_reserve_release") == release, "%ld released by themselves",
	      vmstat("thp_reserve_release") - release);
	write_file("/proc/sys/vm/compact_memory", "1");
	write_file(RESERVE "idle_ms", "5000");
	CHECK(vmstat("thp_reserve_release") - release == n, "%ld released",
	      vmstat("thp_reserve_release") - release);
	for (i = 0; i < n; i++)
		CHECK(stamped(p + i * BLOCK + i * PAGE, i + 1), "block %d", i);
}

/* A block device reads from unpopulated pages, and writes to some. */
static void direct_io_reads_and_populates_reservations(void)
{
	char *p = blocks(2), *q = p + BLOCK, path[32] = "/dev/zram", size[64];
	int fd, i;

	use(64);
	fd = open("/sys/class/zram-control/hot_add", O_RDONLY);
	CHECK(fd >= 0, "hot_add: %s", strerror(errno));
	CHECK(read(fd, path + 9, 8) > 0, "hot_add");
	close(fd);
	path[strcspn(path, "\n")] = 0;
	snprintf(size, sizeof(size), "/sys/block/%s/disksize", path + 5);
	write_file(size, "4M");
	for (i = 0; i < 10; i++)
		stamp(p + i * PAGE, i + 1);
	fd = open(path, O_RDWR | O_DIRECT);
	CHECK(fd >= 0, "%s: %s", path, strerror(errno));
	CHECK(pwrite(fd, p, 16 * PAGE, 0) == 16 * PAGE, "write: %s", strerror(errno));
	stamp(q, 100);
	CHECK(pread(fd, q + 3 * PAGE, 16 * PAGE, 0) == 16 * PAGE, "read: %s", strerror(errno));
	close(fd);
	for (i = 0; i < 16; i++) {
		CHECK(stamped(p + i * PAGE, i < 10 ? i + 1 : 0), "page %d", i);
		CHECK(stamped(q + (3 + i) * PAGE, i < 10 ? i + 1 : 0), "page %d", i);
	}
	CHECK(stamped(q, 100) && stamped(q + PAGE, 0) && stamped(q + 19 * PAGE, 0), "beside");
	for (i = 0; i < 100; i++)
		stamp(q + (30 + i) * PAGE, i + 1);
	CHECK(huge_kb(q, BLOCK) == BLOCK / 1024, "huge %ld", huge_kb(q, BLOCK));
	for (i = 0; i < 16; i++)
		CHECK(stamped(q + (3 + i) * PAGE, i < 10 ? i + 1 : 0), "page %d, huge", i);
}

/* Another process reads and writes what this one has not populated. */
static void a_debugger_reads_and_populates_reservations(void)
{
	char *p = blocks(1);
	int status, i;
	pid_t pid = fork();

	if (!pid) {
		use(64);
		stamp(p + 5 * PAGE, 5);
		raise(SIGSTOP);
		CHECK(*(long *)(p + 7 * PAGE) == 77 && *(long *)(p + 7 * PAGE + 8) == 0, "poked");
		for (i = 0; i < 512; i++)
			if (i != 7)
				CHECK(stamped(p + i * PAGE, i == 5 ? 5 : 0), "page %d", i);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "stop");
	CHECK(!ptrace(PTRACE_SEIZE, pid, 0, 0), "seize: %s", strerror(errno));
	for (i = 0; i < 512; i++) {
		errno = 0;
		if (i != 5)
			CHECK(!ptrace(PTRACE_PEEKDATA, pid, p + i * PAGE + 8 * i, 0) && !errno, "page %d", i);
	}
	CHECK(!ptrace(PTRACE_POKEDATA, pid, p + 7 * PAGE, 77L), "poke: %s", strerror(errno));
	CHECK(!ptrace(PTRACE_DETACH, pid, 0, 0), "detach");
	kill(pid, SIGCONT);
	wait_for(pid);
}

/* What a core dump has of a reservation: what was populated, and nothing of a former owner. */
static void a_core_dump_has_nothing_of_others(void)
{
	static uint64_t page[PAGE / 8];
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	int status, found = 0, foreign = 0;
	char *p = blocks(4);
	pid_t pid;
	FILE *f;
	size_t i;

	write_file("/proc/sys/kernel/core_pattern", "/tmp/core");
	pid = fork();
	if (!pid) {
		use(64);
		setrlimit(RLIMIT_CORE, &unlimited);
		for (i = 0; i < 4; i++)
			stamp(p + i * BLOCK + 9 * i * PAGE, i + 1);
		abort();
	}
	CHECK(waitpid(pid, &status, 0) == pid && WCOREDUMP(status), "no core: %#x", status);
	f = fopen("/tmp/core", "r");
	CHECK(f, "/tmp/core");
	while (fread(page, 1, PAGE, f) == PAGE) {
		for (i = 0; i < 4; i++)
			found += page[100] == (i + 1) * 0x9e3779b97f4a7c15ull && page[0] == page[100];
		foreign += page[100] == 0xaaaaaaaaaaaaaaaaull && page[0] == page[100];
	}
	fclose(f);
	unlink("/tmp/core");
	CHECK(found == 4, "%d of 4 pages are in the core", found);
	CHECK(!foreign, "%d pages of free memory's pattern are in the core", foreign);
}

static void counters_return_to_where_they_were(void)
{
	long reserved = vmstat("nr_anon_reserved"), now = 0;
	int i;
	pid_t pid = fork();

	if (!pid) {
		char *p = blocks(8);

		use(64);
		for (i = 0; i < 8 * 60; i++)
			stamp(p + (i % 8) * BLOCK + (i / 8) * PAGE, i + 1);
		now = vmstat("nr_anon_reserved") - reserved;
		CHECK(now > 8 * (512 - 60) - 200 && now < 8 * (512 - 60) + 200, "%ld reserved", now);
		CHECK(!madvise(p, 3 * BLOCK, MADV_DONTNEED), "madvise");
		CHECK(!madvise(p + 4 * BLOCK, 30 * PAGE, MADV_DONTNEED), "madvise");
		_exit(0);
	}
	wait_for(pid);
	for (i = 0; i < 50; i++) {
		now = vmstat("nr_anon_reserved") - reserved;
		if (now > -50 && now < 50)
			return;
		usleep(100000);
	}
	CHECK(0, "%ld pages more than before", now);
}

static void swap_keeps_contents(void)
{
	const int n = 4;
	char *p = blocks(n);
	long out = vmstat("pswpout");
	int i, j;

	if (value_of("/proc/meminfo", "SwapTotal") <= 0) {
		printf("# SKIPPED: no swap\n");
		return;
	}
	use(64);
	for (i = 0; i < n; i++)
		for (j = 0; j < 40 + i; j++)
			stamp(p + i * BLOCK + j * 3 * PAGE, 100 * i + j + 1);
	for (j = 40; j < 64; j++)
		stamp(p + j * 3 * PAGE, j + 1);
	CHECK(huge_kb(p, BLOCK), "huge");
	CHECK(!madvise(p, n * BLOCK, MADV_PAGEOUT), "pageout");
	for (i = 0; i < n; i++)
		for (j = 0; j < 512; j++) {
			int populated = j % 3 == 0 && j / 3 < (i ? 40 + i : 64);

			CHECK(stamped(p + i * BLOCK + j * PAGE, populated ? 100 * i + j / 3 + 1 : 0),
			      "block %d page %d", i, j);
		}
	CHECK(vmstat("pswpout") > out, "nothing went to swap");
	for (i = 0; i < n; i++)
		for (j = 0; j < 512; j++)
			stamp(p + i * BLOCK + j * PAGE, 5000 + i * 512 + j);
	for (i = 0; i < n; i++)
		for (j = 0; j < 512; j++)
			CHECK(stamped(p + i * BLOCK + j * PAGE, 5000 + i * 512 + j), "block %d page %d", i, j);
}

struct zapper {
	char *p;
	volatile int stop;
};

static void *zap(void *arg)
{
	struct zapper *z = arg;
	unsigned int i = 0;

	while (!z->stop) {
		/* The upper half, a few pages each time. */
		CHECK(!madvise(z->p + (256 + i % 240) * PAGE, 16 * PAGE, MADV_DONTNEED), "madvise");
		i = i * 5 + 3;
	}
	return NULL;
}

/* What was zapped is zero or new; what was not is there. */
static void promotion_while_threads_zap(void)
{
	char *p = blocks(1);
	struct zapper z = { p, 0 };
	pthread_t thread;
	int round, i;

	use(64);
	CHECK(!pthread_create(&thread, NULL, zap, &z), "thread");
	for (round = 1; round <= 60; round++) {
		for (i = 0; i < 256; i++)
			stamp(p + i * PAGE, round * 1000 + i);
		for (i = 256; i < 512; i += 3)
			*(volatile uint64_t *)(p + i * PAGE) = round;
		for (i = 0; i < 256; i++)
			CHECK(stamped(p + i * PAGE, round * 1000 + i), "round %d page %d", round, i);
		for (i = 256; i < 512; i++) {
			uint64_t v = *(volatile uint64_t *)(p + i * PAGE);

			CHECK(v == 0 || v <= (uint64_t)round, "round %d page %d: %lx", round, i, v);
		}
		CHECK(!madvise(p, 256 * PAGE, MADV_DONTNEED), "madvise");
		for (i = 0; i < 256; i++)
			CHECK(*(volatile uint64_t *)(p + i * PAGE) == 0, "round %d: page %d survived", round, i);
		CHECK(!madvise(p, BLOCK, MADV_DONTNEED), "madvise");
	}
	z.stop = 1;
	pthread_join(thread, NULL);
}

/* MADV_DONTNEED of a page returns: that page is zero, promotion or not. */
static void *populate_all(void *arg)
{
	struct zapper *z = arg;
	int i;

	for (i = 1; i < 512; i++)
		*(volatile uint64_t *)(z->p + i * PAGE) = i;
	return NULL;
}

static void dontneed_is_not_lost_in_a_promotion(void)
{
	int round, lost = 0;

	use(256);
	for (round = 0; round < 150; round++) {
		char *p = blocks(1);
		struct zapper z = { p, 0 };
		pthread_t thread;
		int i;

		*(volatile uint64_t *)p = 1;
		CHECK(!pthread_create(&thread, NULL, populate_all, &z), "thread");
		for (i = 0; i < 200; i++) {
			*(volatile uint64_t *)p = i + 1;
			CHECK(!madvise(p, PAGE, MADV_DONTNEED), "madvise");
			lost += *(volatile uint64_t *)p != 0;
		}
		pthread_join(thread, NULL);
		for (i = 1; i < 512; i++)
			CHECK(*(uint64_t *)(p + i * PAGE) == (uint64_t)i, "page %d", i);
		munmap(p, BLOCK);
	}
	CHECK(!lost, "%d times", lost);
}

static void *populate_odd(void *arg)
{
	struct zapper *z = arg;
	int i;

	for (i = 1; i < 512 * 8; i += 2)
		stamp(z->p + i * PAGE, i);
	return NULL;
}

static void threads_populate_one_block(void)
{
	int round, i;

	use(64);
	for (round = 0; round < 20; round++) {
		char *p = blocks(8);
		struct zapper z = { p, 0 };
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, populate_odd, &z), "thread");
		for (i = 0; i < 512 * 8; i += 2)
			stamp(p + i * PAGE, i + 1);
		pthread_join(thread, NULL);
		for (i = 0; i < 512 * 8; i++)
			CHECK(stamped(p + i * PAGE, i % 2 ? i : i + 1), "page %d", i);
		CHECK(huge_kb(p, 8 * BLOCK) == 8 * BLOCK / 1024, "huge %ld", huge_kb(p, 8 * BLOCK));
		munmap(p, 8 * BLOCK);
	}
}

/* Holes read through /proc/PID/mem while their folios are split and moved. */
static void holes_read_while_memory_moves(void)
{
	const int n = 16;
	static char buf[PAGE];
	char *p = blocks(n);
	int fd, i, j, round;
	pid_t pid;

	use(64);
	for (i = 0; i < n; i++)
		for (j = 0; j < 30; j++)
			stamp(p + i * BLOCK + (j * 17 % 512) * PAGE, i * 100 + j + 1);
	pid = fork();
	if (!pid) {
		while (1) {
			write_file("/proc/sys/vm/compact_memory", "1");
			write_file("/sys/kernel/debug/split_huge_pages", "1");
		}
	}
	fd = open("/proc/self/mem", O_RDONLY);
	for (round = 0; round < 5; round++) {
		/* Fork has ended the ones before: new ones, of another mapping. */
		char *q = blocks(n);

		for (i = 0; i < n; i++)
			for (j = 0; j < 30; j++)
				stamp(q + i * BLOCK + (j * 17 % 512) * PAGE, i * 100 + j + 1);
		for (i = 0; i < n; i++)
			for (j = 0; j < 512; j++) {
				int k, v = 0;

				for (k = 0; k < 30; k++)
					if (k * 17 % 512 == j)
						v = i * 100 + k + 1;
				CHECK(pread(fd, buf, PAGE, (off_t)(q + i * BLOCK + j * PAGE)) == PAGE, "pread");
				CHECK(stamped(buf, v), "round %d block %d page %d", round, i, j);
			}
		munmap(q, n * BLOCK);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (i = 0; i < n; i++)
		for (j = 0; j < 30; j++)
			CHECK(stamped(p + i * BLOCK + (j * 17 % 512) * PAGE, i * 100 + j + 1), "block %d", i);
}

static int uffd_open(char *p, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (unsigned long)p, size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	CHECK(fd >= 0, "userfaultfd");
	CHECK(!ioctl(fd, UFFDIO_API, &api), "UFFDIO_API");
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &reg), "UFFDIO_REGISTER");
	return fd;
}

struct uffdio_move_arg {
	uint64_t dst, src, len, mode;
	int64_t move;
};
#define UFFDIO_MOVE_CMD _IOWR(UFFDIO, 0x05, struct uffdio_move_arg)

static void userfaultfd_sees_faults_in_a_reservation(void)
{
	static char page[PAGE];
	char *p = blocks(2), *q = p + BLOCK;
	long promote = vmstat("thp_reserve_promote");
	int fd, i;

	use(64);
	for (i = 0; i < 32; i++) {
		stamp(p + i * PAGE, i + 1);
		stamp(q + i * PAGE, 500 + i);
	}
	fd = uffd_open(p, BLOCK);
	for (i = 32; i < 512; i++) {
		struct uffdio_copy copy = {
			.dst = (unsigned long)(p + i * PAGE), .src = (unsigned long)page, .len = PAGE,
		};

		stamp(page, 100 + i);
		CHECK(!ioctl(fd, UFFDIO_COPY, &copy), "UFFDIO_COPY: %s", strerror(errno));
	}
	CHECK(vmstat("thp_reserve_promote") == promote, "promoted while armed");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 32 ? i + 1 : 100 + i), "page %d", i);
	/* A page out of a reservation: refused, or moved whole. */
	CHECK(!madvise(p + 40 * PAGE, PAGE, MADV_DONTNEED), "madvise");
	{
		struct uffdio_move_arg move = {
			.dst = (unsigned long)(p + 40 * PAGE), .src = (unsigned long)(q + 5 * PAGE), .len = PAGE,
		};
		int ret = ioctl(fd, UFFDIO_MOVE_CMD, &move);

		printf("# UFFDIO_MOVE out of a reservation: %s\n", ret ? strerror(errno) : "moved");
		close(fd);
		CHECK(stamped(p + 40 * PAGE, ret ? 0 : 505), "moved");
		CHECK(stamped(q + 5 * PAGE, ret ? 505 : 0), "left");
		for (i = 0; i < 64; i++)
			if (i != 5)
				stamp(q + i * PAGE, 700 + i);
		for (i = 0; i < 64; i++)
			CHECK(i == 5 || stamped(q + i * PAGE, 700 + i), "page %d", i);
	}
}

static void locked_mappings_have_none(void)
{
	long alloc = vmstat("thp_reserve_alloc"), mlocked;
	char *p;
	int i;

	use(64);
	CHECK(!mlockall(MCL_FUTURE | MCL_ONFAULT), "mlockall");
	p = blocks(2);
	for (i = 0; i < 100; i++)
		stamp(p + i * 2 * PAGE, i + 1);
	mlocked = value_of("/proc/self/status", "VmLck");
	CHECK(mlocked > 0, "VmLck");
	CHECK(vmstat("thp_reserve_alloc") == alloc, "reserved in a locked mapping");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 200 && i % 2 == 0 ? i / 2 + 1 : 0), "page %d", i);
	munlockall();
}

static void mlock_of_a_reservation(void)
{
	char *p = blocks(1);
	long before = value_of("/proc/meminfo", "Mlocked"), now;
	int i;

	use(64);
	for (i = 0; i < 32; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(!mlock(p, BLOCK), "mlock");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i < 32 ? i + 1 : 0), "page %d", i);
	now = value_of("/proc/meminfo", "Mlocked");
	CHECK(now - before <= (long)(BLOCK + 32 * PAGE) / 1024 + 256, "Mlocked %ld kB more", now - before);
	CHECK(!munlock(p, BLOCK), "munlock");
	for (i = 0; i < 512; i++)
		stamp(p + i * PAGE, 1000 + i);
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, 1000 + i), "page %d", i);
}

static void told(int signal)
{
	(void)signal;
}

static void a_poisoned_page_is_not_populated(void)
{
	char *p = blocks(1);
	struct iovec iov = { p, PAGE };
	int pipes[2], i, bad = 0;

	use(512);
	for (i = 0; i < 16; i++)
		stamp(p + i * PAGE, i + 1);
	/* The pin makes the split fail, so that the folio stays whole. */
	CHECK(!pipe(pipes), "pipe");
	CHECK(vmsplice(pipes[1], &iov, 1, 0) == PAGE, "vmsplice");
	/* Of the page that stays mapped, since the folio cannot be split. */
	signal(SIGBUS, told);
	prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_LATE, 0, 0);
	if (madvise(p + 8 * PAGE, PAGE, MADV_HWPOISON)) {
		printf("# MADV_HWPOISON: %s\n", strerror(errno));
		bad = errno == EINVAL || errno == EPERM;
		if (bad) {
			printf("# SKIPPED: no MADV_HWPOISON\n");
			return;
		}
	}
	for (i = 16; i < 512; i++)
		stamp(p + i * PAGE, i + 1);
	for (i = 0; i < 512; i++)
		CHECK(i == 8 || stamped(p + i * PAGE, i + 1), "page %d", i);
	CHECK(!huge_kb(p, BLOCK), "mapped huge with a bad page in it");
}

/* A memory cgroup without swap: only the shrinker helps at its limit. */
static void limited_group(const char *bytes)
{
	mkdir("/sys/fs/cgroup/resv", 0755);
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	write_file("/sys/fs/cgroup/resv/memory.max", bytes);
	if (!access("/sys/fs/cgroup/resv/memory.swap.max", F_OK))
		write_file("/sys/fs/cgroup/resv/memory.swap.max", "0");
}

static void enter_group(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", getpid());
	write_file("/sys/fs/cgroup/resv/cgroup.procs", text);
}

/* Waits for the process in it, too. */
static void end_group(pid_t pid)
{
	long kills;

	wait_for(pid);
	kills = value_of("/sys/fs/cgroup/resv/memory.events", "oom_kill");
	rmdir("/sys/fs/cgroup/resv");
	CHECK(kills == 0, "%ld kills", kills);
}

static void a_group_at_its_limit_releases_reservations(void)
{
	const int n = 60;
	pid_t pid;

	limited_group("33554432");
	pid = fork();
	if (!pid) {
		char *p;
		int i;

		enter_group();
		use(64);
		p = blocks(n);
		for (i = 0; i < n; i++)
			stamp(p + i * BLOCK + i * PAGE, i + 1);
		for (i = 0; i < n; i++)
			stamp(p + i * BLOCK + 400 * PAGE, i + 1);
		for (i = 0; i < n; i++) {
			CHECK(stamped(p + i * BLOCK + i * PAGE, i + 1), "block %d", i);
			CHECK(stamped(p + i * BLOCK + 400 * PAGE, i + 1), "block %d", i);
			CHECK(stamped(p + i * BLOCK + 401 * PAGE, 0), "block %d", i);
		}
		_exit(0);
	}
	end_group(pid);
}

/* Both halves are younger than idle_ms; the one reserved first was used last. */
static void pressure_takes_the_longest_idle_first(void)
{
	const int half = 16;
	pid_t pid;

	limited_group("75497472");
	pid = fork();
	if (!pid) {
		char *young, *old, *filled;
		long used, idle;
		int i;

		enter_group();
		use(64);
		young = blocks(2 * half + 1);
		old = young + (half + 1) * BLOCK;
		/* Apart, so that smaps counts them apart. */
		munmap(young + half * BLOCK, BLOCK);
		for (i = 0; i < half; i++)
			stamp(young + i * BLOCK, i + 1);
		for (i = 0; i < half; i++)
			stamp(old + i * BLOCK, i + 1);
		sleep(2);
		for (i = 0; i < half; i++)
			stamp(young + i * BLOCK + PAGE, i + 1);
		filled = blocks(12);
		madvise(filled, 12 * BLOCK, MADV_NOHUGEPAGE);
		for (i = 0; i < 12 * (int)PAGES; i++)
			stamp(filled + i * PAGE, i + 1);
		used = smaps("AnonReserved", young, half * BLOCK);
		idle = smaps("AnonReserved", old, half * BLOCK);
		CHECK(idle < half * 511 * 4, "%ld kB left of what was idle", idle);
		CHECK(used && (!idle || used == half * 510 * 4),
		      "%ld kB left of what was used, %ld kB of what was idle", used, idle);
		for (i = 0; i < half; i++)
			CHECK(stamped(young + i * BLOCK + PAGE, i + 1) &&
			      stamped(old + i * BLOCK, i + 1), "block %d", i);
		_exit(0);
	}
	end_group(pid);
}

/* More reservations than memory: what is populated is a fraction of it. */
static void pressure_takes_the_unpopulated_pages(void)
{
	long kb = value_of("/proc/meminfo", "MemTotal");
	int n = kb / 2048 * 3 / 2, i;
	char *p = blocks(n);

	use(64);
	for (i = 0; i < n; i++)
		stamp(p + i * BLOCK + i % 512 * PAGE, i + 1);
	for (i = 0; i < n; i++) {
		CHECK(stamped(p + i * BLOCK + i % 512 * PAGE, i + 1), "block %d of %d", i, n);
		CHECK(stamped(p + i * BLOCK + (i + 1) % 512 * PAGE, 0), "block %d of %d", i, n);
	}
}

static void khugepaged_leaves_reservations(void)
{
	char *p = blocks(4);
	int i, j;

	use(64);
	write_file("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10");
	write_file("/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs", "10");
	for (i = 0; i < 4; i++)
		for (j = 0; j < 30; j++)
			stamp(p + i * BLOCK + j * PAGE, j + 1);
	sleep(3);
	write_file("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10000");
	CHECK(!huge_kb(p, 4 * BLOCK), "collapsed below the threshold");
	for (j = 0; j < 512; j++)
		CHECK(stamped(p + j * PAGE, j < 30 ? j + 1 : 0), "page %d", j);
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void madv_collapse_promotes_in_place(void)
{
	char *p = blocks(1);
	long promote = vmstat("thp_reserve_promote");
	int j;

	use(64);
	for (j = 0; j < 20; j++)
		stamp(p + j * 5 * PAGE, j + 1);
	CHECK(!madvise(p, BLOCK, MADV_COLLAPSE), "MADV_COLLAPSE: %s", strerror(errno));
	CHECK(huge_kb(p, BLOCK), "huge");
	CHECK(vmstat("thp_reserve_promote") - promote == 1, "not in place");
	for (j = 0; j < 512; j++)
		CHECK(stamped(p + j * PAGE, j % 5 == 0 && j < 100 ? j / 5 + 1 : 0), "page %d", j);
}

/* A page pinned before, written to by the kernel after the promotion. */
static void a_pinned_page_is_the_same_after_promotion(void)
{
	struct io_uring_params params = {};
	static char data[PAGE];
	char *p = blocks(1), *q = p + 9 * PAGE;
	struct iovec iov = { q, PAGE };
	struct io_uring_sqe *sqe;
	unsigned int *tail, *array;
	int ring, fd, i;
	char *sq;

	use(64);
	for (i = 0; i < 32; i++)
		stamp(p + i * PAGE, i + 1);
	ring = syscall(SYS_io_uring_setup, 4, &params);
	if (ring < 0) {
		printf("# SKIPPED: no io_uring\n");
		return;
	}
	CHECK(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1), "register: %s", strerror(errno));
	for (i = 32; i < 64; i++)
		stamp(p + i * PAGE, i + 1);
	CHECK(huge_kb(p, BLOCK), "huge with a pinned page");
	fd = open("/tmp/data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	stamp(data, 4711);
	CHECK(write(fd, data, PAGE) == PAGE, "write");
	sq = mmap(NULL, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	sqe = mmap(NULL, params.sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	CHECK(sq != MAP_FAILED && sqe != MAP_FAILED, "mmap");
	tail = (unsigned int *)(sq + params.sq_off.tail);
	array = (unsigned int *)(sq + params.sq_off.array);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_READ_FIXED;
	sqe->fd = fd;
	sqe->addr = (unsigned long)q;
	sqe->len = PAGE;
	array[*tail & (params.sq_entries - 1)] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1, "enter");
	for (i = 0; i < 512; i++)
		CHECK(stamped(p + i * PAGE, i == 9 ? 4711 : i < 64 ? i + 1 : 0), "page %d", i);
	close(ring);
}

static void bad_arguments_are_refused(void)
{
	static const unsigned long bad[] = { 513, 1024, 0xfffe, 0x10000, -1ul };
	size_t i;
	pid_t pid;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK(prctl(PR_SET_THP_RESERVE, bad[i], 0, 0, 0) == -1 && errno == EINVAL, "%lu", bad[i]);
	CHECK(prctl(PR_SET_THP_RESERVE, 64, 1, 0, 0) == -1 && errno == EINVAL, "argument 3");
	CHECK(prctl(PR_GET_THP_RESERVE, 1, 0, 0, 0) == -1 && errno == EINVAL, "argument 2");
	use(256);
	CHECK(prctl(PR_GET_THP_RESERVE, 0, 0, 0, 0) == 256, "get");
	pid = fork();
	if (!pid) {
		CHECK(prctl(PR_GET_THP_RESERVE, 0, 0, 0, 0) == 256, "fork");
		execl("/proc/self/exe", "basic", "--threshold", "256", NULL);
		_exit(1);
	}
	wait_for(pid);
	for (i = 0; i < 3; i++) {
		static const char * const text[] = { "0", "513", "x" };
		int fd = open(RESERVE "threshold", O_WRONLY);

		CHECK(write(fd, text[i], strlen(text[i])) == -1 && errno == EINVAL, "threshold %s", text[i]);
		close(fd);
	}
	{
		int fd = open(RESERVE "enabled", O_WRONLY);

		CHECK(write(fd, "sometimes", 9) == -1 && errno == EINVAL, "enabled");
		close(fd);
	}
}

static void the_machine_and_the_process_decide(void)
{
	long alloc;
	char *p;

	alloc = vmstat("thp_reserve_alloc");
	p = blocks(1);
	stamp(p, 1);
	CHECK(vmstat("thp_reserve_alloc") == alloc && huge_kb(p, BLOCK), "off: stock huge page");

	write_file(RESERVE "enabled", "always");
	p = blocks(1);
	stamp(p, 1);
	CHECK(vmstat("thp_reserve_alloc") > alloc && !huge_kb(p, BLOCK), "always");
	use(PR_THP_RESERVE_OFF);
	p = blocks(1);
	stamp(p, 1);
	CHECK(huge_kb(p, BLOCK), "refused by the process");

	use(64);
	write_file(RESERVE "enabled", "never");
	p = blocks(1);
	stamp(p, 1);
	CHECK(huge_kb(p, BLOCK), "never, for nobody");
	write_file(RESERVE "enabled", "process");
}

static void fork_storm(void)
{
	const int n = 6;
	char *p = blocks(n);
	int i, round;

	use(64);
	for (round = 0; round < 12; round++) {
		pid_t pids[4];
		int k;

		for (i = 0; i < n * 512; i += 5 + round)
			stamp(p + i * PAGE, round * 10000 + i + 1);
		for (k = 0; k < 4; k++) {
			pids[k] = fork();
			if (!pids[k]) {
				for (i = 0; i < n * 512; i += 5 + round)
					CHECK(stamped(p + i * PAGE, round * 10000 + i + 1), "child %d page %d", k, i);
				for (i = k; i < n * 512; i += 11)
					stamp(p + i * PAGE, 77777 + i);
				for (i = k; i < n * 512; i += 11)
					CHECK(stamped(p + i * PAGE, 77777 + i), "child %d page %d", k, i);
				_exit(0);
			}
		}
		for (i = 0; i < n * 512; i += 5 + round)
			stamp(p + i * PAGE, round * 10000 + i + 1);
		for (k = 0; k < 4; k++)
			wait_for(pids[k]);
		for (i = 0; i < n * 512; i += 5 + round)
			CHECK(stamped(p + i * PAGE, round * 10000 + i + 1), "page %d", i);
		CHECK(!madvise(p + (round % n) * BLOCK, BLOCK, MADV_DONTNEED), "madvise");
	}
}

#define TEST(name) { #name, name }
static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	TEST(bad_arguments_are_refused),
	TEST(the_machine_and_the_process_decide),
	TEST(threshold_1),
	TEST(threshold_2),
	TEST(threshold_64),
	TEST(threshold_256),
	TEST(threshold_512),
	TEST(unpopulated_pages_read_as_zero),
	TEST(read_first_write_later_is_promoted),
	TEST(a_spliced_page_is_not_populated_again),
	TEST(a_zapped_page_is_populated_again),
	TEST(half_a_block_moved_is_no_page_twice),
	TEST(a_moved_block_keeps_its_contents),
	TEST(holes_of_munmap_are_new_memory),
	TEST(mprotect_of_a_part_is_kept),
	TEST(dontneed_demotes_and_faults_promote_again),
	TEST(fork_keeps_both_sides_apart),
	TEST(a_promoted_page_is_shared_by_fork),
	TEST(fork_ends_a_reservation),
	TEST(fork_storm),
	TEST(threads_populate_one_block),
	TEST(promotion_while_threads_zap),
	TEST(dontneed_is_not_lost_in_a_promotion),
	TEST(holes_read_while_memory_moves),
	TEST(userfaultfd_sees_faults_in_a_reservation),
	TEST(locked_mappings_have_none),
	TEST(mlock_of_a_reservation),
	TEST(a_pinned_page_is_the_same_after_promotion),
	TEST(khugepaged_leaves_reservations),
	TEST(madv_collapse_promotes_in_place),
	TEST(swap_keeps_contents),
	TEST(idle_reservations_are_released),
	TEST(compaction_releases_idle_reservations_first),
	TEST(direct_io_reads_and_populates_reservations),
	TEST(a_debugger_reads_and_populates_reservations),
	TEST(a_core_dump_has_nothing_of_others),
	TEST(counters_return_to_where_they_were),
	TEST(a_group_at_its_limit_releases_reservations),
	TEST(pressure_takes_the_longest_idle_first),
	TEST(pressure_takes_the_unpopulated_pages),
	TEST(a_poisoned_page_is_not_populated),
};

int main(int argc, char **argv)
{
	size_t i, n = sizeof(tests) / sizeof(*tests);
	int failed = 0, k;

	if (argc == 3 && !strcmp(argv[1], "--threshold"))
		return prctl(PR_GET_THP_RESERVE, 0, 0, 0, 0) != atoi(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	dirty_free_memory();
	printf("1..%zu\n", n);
	for (i = 0; i < n; i++) {
		bool wanted = argc == 1;
		int status = 0;
		pid_t pid;

		for (k = 1; k < argc; k++)
			wanted |= !!strstr(tests[i].name, argv[k]);
		if (!wanted)
			continue;
		pid = fork();
		if (!pid) {
			alarm(600);
			tests[i].run();
			fflush(stdout);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
		if (status)
			printf("# status %#x\n", status);
		printf("%sok %zu - %s\n", status ? "not " : "", i + 1, tests[i].name);
		failed += !!status;
	}
	return !!failed;
}
