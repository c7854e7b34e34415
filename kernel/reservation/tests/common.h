/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of kernel/reservation share. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PR_SET_THP_RESERVE	0x54485052
#define PR_GET_THP_RESERVE	0x54485053
#define PR_THP_RESERVE_OFF	0xffff

#define PAGE	4096UL
#define BLOCK	(2UL << 20)
#define PAGES	(BLOCK / PAGE)

/* In a test, and in its children: the first failure ends it. */
#define CHECK(cond, ...)						\
	do {								\
		if (!(cond)) {						\
			printf("# %s:%d: %s: ", __FILE__, __LINE__,	\
			       #cond);					\
			printf("" __VA_ARGS__);				\
			printf("\n");					\
			fflush(stdout);					\
			_exit(1);					\
		}							\
	} while (0)

static inline void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	CHECK(fd >= 0, "%s: %s", path, strerror(errno));
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s: %s",
	      path, strerror(errno));
	close(fd);
}

/* The number behind a key of a file like /proc/vmstat or /proc/meminfo. */
static inline long value_of(const char *path, const char *key)
{
	char line[256];
	long value = -1;
	FILE *f = fopen(path, "r");
	size_t len = strlen(key);

	CHECK(f, "%s", path);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) &&
		    (line[len] == ' ' || line[len] == ':'))
			value = strtol(line + len + 1, NULL, 10);
	fclose(f);
	return value;
}

static inline long vmstat(const char *key)
{
	long value = value_of("/proc/vmstat", key);

	CHECK(value >= 0, "no %s in /proc/vmstat", key);
	return value;
}

/* kB of a field of /proc/self/smaps, summed over mappings that meet the range. */
static inline long smaps(const char *key, const void *start, size_t size)
{
	unsigned long from = (unsigned long)start, to = from + size, lo, hi;
	size_t len = strlen(key);
	bool in = false;
	char line[512];
	long sum = 0;
	FILE *f = fopen("/proc/self/smaps", "r");

	CHECK(f, "smaps");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2 &&
		    line[0] != 'S' && strchr(line, '-') < strchr(line, ' '))
			in = lo < to && hi > from;
		else if (in && !strncmp(line, key, len) && line[len] == ':')
			sum += strtol(line + len + 1, NULL, 10);
	}
	fclose(f);
	return sum;
}

static inline long huge_kb(const void *start, size_t size)
{
	return smaps("AnonHugePages", start, size);
}

static inline void use(unsigned long threshold)
{
	CHECK(!prctl(PR_SET_THP_RESERVE, threshold, 0, 0, 0), "%lu: %s",
	      threshold, strerror(errno));
}

/* n aligned blocks, with nothing mapped one block before and after. */
static inline char *blocks(size_t n)
{
	char *p = mmap(NULL, (n + 3) * BLOCK, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *q;

	CHECK(p != MAP_FAILED, "mmap");
	q = (char *)(((unsigned long)p + 2 * BLOCK - 1) & ~(BLOCK - 1));
	munmap(p, (n + 3) * BLOCK);
	p = mmap(q, n * BLOCK, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	CHECK(p == q, "mmap");
	CHECK(!madvise(p, n * BLOCK, MADV_HUGEPAGE), "madvise");
	return p;
}

/* A whole page of one word, derived from a number that is not 0. */
static inline void stamp(char *page, uint64_t n)
{
	uint64_t *w = (uint64_t *)page, v = n ? n * 0x9e3779b97f4a7c15ull : 0;
	size_t i;

	for (i = 0; i < PAGE / 8; i++)
		w[i] = v;
}

static inline bool stamped(const char *page, uint64_t n)
{
	const uint64_t *w = (const uint64_t *)page;
	uint64_t v = n ? n * 0x9e3779b97f4a7c15ull : 0;
	size_t i;

	for (i = 0; i < PAGE / 8; i++)
		if (w[i] != v) {
			printf("# %p+%zu: %016lx instead of %016lx\n",
			       (void *)page, i * 8, w[i], v);
			return false;
		}
	return true;
}

static inline void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
}

/* Leave a pattern in memory that is free afterwards. */
static inline void dirty_free_memory(void)
{
	long kb = value_of("/proc/meminfo", "MemAvailable") * 6 / 10;
	pid_t pid = fork();

	if (!pid) {
		size_t size = kb * 1024, i;
		uint64_t *p;

		prctl(PR_SET_THP_RESERVE, PR_THP_RESERVE_OFF, 0, 0, 0);
		p = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(p != MAP_FAILED, "mmap");
		madvise(p, size, MADV_HUGEPAGE);
		for (i = 0; i < size / 8; i++)
			p[i] = 0x5ec2e75ec2e75ec2ull;
		_exit(0);
	}
	wait_for(pid);
}

#endif
