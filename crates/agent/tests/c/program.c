// Programs that the agent has to live with. The first argument says which; each checks its own memory, prints what the
// test wants to know, and ends with 0 if all was right.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define MB (1UL << 20)
#define CHECK(is) do { if (!(is)) { fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #is, strerror(errno)); exit(1); } } while (0)

static uint64_t state = 88172645463325252ULL;
static uint64_t number(void) { state ^= state << 13; state ^= state >> 7; return state ^= state << 17; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void pause_ms(long ms) { struct timespec t = {ms / 1000, ms % 1000 * 1000000}; while (nanosleep(&t, &t)) ; }

static char *map(size_t bytes) {
	char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

// Fills pages with what belongs to their address; checks it.
static void fill(char *memory, size_t bytes) { for (size_t i = 0; i < bytes; i += PAGE) *(uint64_t *)(memory + i) = (i / PAGE) ^ 0x5a5a; }
static void check(char *memory, size_t bytes) { for (size_t i = 0; i < bytes; i += PAGE) CHECK(*(uint64_t *)(memory + i) == ((i / PAGE) ^ 0x5a5a)); }

// A figure of /proc/self/smaps_rollup in kB.
static long rollup(const char *name) {
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	long value = -1;
	CHECK(file);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name) + 1);
	fclose(file);
	return value;
}
static void say_memory(void) { printf("rss %ld huge %ld\n", rollup("Rss:"), rollup("AnonHugePages:")); fflush(stdout); }

// The same once it has settled, for a minute at most: where no processor is spare, collapses wait for a second, and are few at a time.
static void say_settled(void) {
	long huge = -1;
	for (int still = 0, i = 0; still < 25 && i < 600; i++) {
		pause_ms(100);
		long now_huge = rollup("AnonHugePages:");
		still = now_huge == huge ? still + 1 : 0;
		huge = now_huge;
	}
	say_memory();
}

// The helper's process: a child that no wait of ours sees.
static int helper(void) {
	char path[64], name[64] = "";
	int pid = 0, found = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
	FILE *children = fopen(path, "r");
	if (!children)
		return 0;
	while (fscanf(children, "%d", &pid) == 1) {
		snprintf(path, sizeof path, "/proc/%d/comm", pid);
		FILE *comm = fopen(path, "r");
		if (comm && fgets(name, sizeof name, comm) && !strcmp(name, "mega-agent\n"))
			found = pid;
		if (comm)
			fclose(comm);
	}
	fclose(children);
	return found;
}
static int wait_for_helper(void) {
	for (int i = 0; i < 500; i++) {
		int pid = helper();
		if (pid)
			return pid;
		pause_ms(2);
	}
	return 0;
}

static void dense(size_t bytes) {
	char *memory = map(bytes);
	double begun = now();
	fill(memory, bytes);
	printf("filled %.6f\n", now() - begun);
	say_settled();
	check(memory, bytes);
}

/* Of a mapping that is larger. */
static void part(size_t bytes) {
	char *memory = map(1024 * MB);
	fill(memory, bytes);
	pause_ms(50);
	check(memory, bytes);
}

/* Filled densely, and then a page of each 2 MB of another gigabyte: of what is mapped huge there, nearly all is waste. */
static void dense_then_sparse(size_t bytes) {
	for (int i = 0; i < 8; i++) {
		fill(map(bytes / 8), bytes / 8);
		pause_ms(3);
	}
	char *memory = map(1024 * MB);
	for (size_t region = 0; region < 512; region++)
		memory[region * 2 * MB + region * PAGE] = 1;
	say_memory();
}

static void scattered(size_t bytes) {
	char *memory = map(bytes);
	size_t pages = bytes / PAGE;
	for (size_t i = 0; i < pages / 6; i++)
		*(uint64_t *)(memory + number() % pages * PAGE) = 1;
	say_settled();
}

static void dense_then_scattered(size_t bytes) {
	char *first = map(bytes);
	fill(first, bytes);
	scattered(bytes);
	check(first, bytes);
}

static void grow(size_t bytes) {
	size_t size = MB;
	char *memory = malloc(size);
	CHECK(memory);
	fill(memory, size);
	while (size < bytes) {
		size_t more = size + size / 4;
		more -= more % PAGE;
		memory = realloc(memory, more);
		CHECK(memory);
		for (size_t i = size; i < more; i += PAGE)
			*(uint64_t *)(memory + i) = (i / PAGE) ^ 0x5a5a;
		size = more;
		pause_ms(3);
	}
	check(memory, size);
	say_memory();
}

// Many arrays one after the other, each grown by realloc while the helper collapses what was filled: how many of them got
// hardly any huge pages.
static void regrow(size_t bytes) {
	int on_base_pages = 0;
	for (int i = 0; i < 60; i++) {
		struct rusage before, after;
		CHECK(!getrusage(RUSAGE_SELF, &before));
		size_t size = 0;
		char *memory = 0;
		while (size < bytes) {
			size_t more = size ? size + size / 8 : MB;
			more -= more % PAGE;
			memory = realloc(memory, more);
			CHECK(memory);
			for (size_t at = size; at < more; at += PAGE)
				*(uint64_t *)(memory + at) = (at / PAGE) ^ 0x5a5a;
			size = more;
		}
		check(memory, size);
		CHECK(!getrusage(RUSAGE_SELF, &after));
		on_base_pages += after.ru_minflt - before.ru_minflt > (long)(size / PAGE * 3 / 4);
		free(memory);
	}
	printf("on-base-pages %d\n", on_base_pages);
}

// mremap of what the agent has advised, grown again and again in place or elsewhere.
static void remap(size_t bytes) {
	size_t size = 16 * MB;
	char *memory = map(size);
	fill(memory, size);
	while (size < bytes) {
		pause_ms(5);
		memory = mremap(memory, size, size + 16 * MB, MREMAP_MAYMOVE);
		CHECK(memory != MAP_FAILED);
		for (size_t i = size; i < size + 16 * MB; i += PAGE)
			*(uint64_t *)(memory + i) = (i / PAGE) ^ 0x5a5a;
		size += 16 * MB;
	}
	check(memory, size);
	say_memory();
}

// A mapping of its own: one of another kind lies between it and its neighbours.
static char *map_apart(size_t bytes) {
	char *memory = map(bytes + 2 * MB);
	CHECK(!mprotect(memory, PAGE, PROT_NONE) && !mprotect(memory + bytes + MB, MB, PROT_NONE));
	return memory + PAGE;
}

// mremap of what advice has reached a part of only: once there was any, the agent mends it.
static void torn(size_t bytes) {
	char *other = map(bytes);
	fill(other, bytes);
	char *memory = map_apart(bytes), *moved;
	fill(memory, bytes);
	CHECK(!madvise(memory, PAGE, MADV_NOHUGEPAGE));
	for (int i = 0; (moved = mremap(memory, bytes, 2 * bytes, MREMAP_MAYMOVE)) == MAP_FAILED; i++) {
		CHECK(errno == EFAULT && i < 100);
		pause_ms(100);
	}
	check(moved, bytes);
	check(other, bytes);
}
// Base pages that the first touch of a fresh mapping populates.
static int first_touch(char *memory, size_t bytes) {
	unsigned char there[512];
	char *region = (char *)(((uintptr_t)memory + 2 * MB - 1) / (2 * MB) * (2 * MB));
	int pages = 0;
	CHECK(region + 2 * MB <= memory + bytes);
	*region = 1;
	CHECK(!mincore(region, 2 * MB, there));
	for (int i = 0; i < 512; i++)
		pages += there[i] & 1;
	return pages;
}
// Every so many-th page of many small mappings; then whether fresh memory is mapped huge at its first touch.
static void births(size_t step) {
	for (int i = 0; i < 24; i++) {
		char *memory = map_apart(16 * MB);
		for (size_t at = 0; at < 16 * MB; at += step * PAGE)
			*(uint64_t *)(memory + at) = 1;
		pause_ms(20);
	}
	int huge = 0, tries = 0;
	for (; tries < 200 && huge < 3; tries++) {
		pause_ms(20);
		char *memory = map(16 * MB);
		huge += first_touch(memory, 16 * MB) == 512;
		CHECK(!munmap(memory, 16 * MB));
	}
	printf("born %d\n", huge);
	// Committed piece by piece, moved and grown as if nobody had advised anything.
	char *reserve = mmap(0, 512 * MB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(reserve != MAP_FAILED);
	for (size_t at = 0; at < 256 * MB; at += 16 * MB) {
		char *piece = mmap(reserve + at, 16 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(piece == reserve + at);
		fill(piece, 16 * MB);
		// A part of what is there, mapped anew: the whole can be moved all the same.
		CHECK(mmap(piece + 4 * MB, 8 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == piece + 4 * MB);
		CHECK(!piece[4 * MB]);
		char *moved = mremap(piece, 16 * MB, 32 * MB, MREMAP_MAYMOVE);
		CHECK(moved != MAP_FAILED);
		check(moved, 4 * MB);
		CHECK(!moved[8 * MB] && !moved[24 * MB]);
		CHECK(!munmap(moved, 32 * MB));
	}
	CHECK(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
}

// Chunks of 8 MB from the C library's heap, which grows by one at a time, or from mappings of its own.
static void chunks(size_t count, int is_heap) {
	mallopt(M_MMAP_THRESHOLD, is_heap ? 32 * MB : MB);
	CHECK(wait_for_helper());
	for (size_t i = 0; i < count; i++) {
		char *chunk = malloc(8 * MB);
		CHECK(chunk);
		for (size_t at = 0; at < 8 * MB; at += MB / 2, pause_ms(1)) memset(chunk + at, 1, MB / 2);
	}
	say_memory();
}

// Whether what a program maps first is mapped huge at its first touch; then it is filled densely, or hardly at all.
static void begins(size_t step) {
	CHECK(wait_for_helper());
	pause_ms(50);
	char *memory[12];
	int huge = 0;
	for (int i = 0; i < 12; i++) {
		memory[i] = map_apart(16 * MB);
		huge += first_touch(memory[i], 16 * MB) == 512;
		if (step == 1)
			continue;
		// Slowly, so that the helper looks in between.
		for (size_t at = 0; at < 16 * MB; at += step * PAGE)
			*(uint64_t *)(memory[i] + at) = 1;
		pause_ms(100);
	}
	printf("born %d\n", huge);
	for (int i = 0; i < 12; i++)
		for (size_t at = 0; at < 16 * MB; at += step * PAGE)
			*(uint64_t *)(memory[i] + at) = 1;
	say_settled();
}

static void single(void) {
	CHECK(wait_for_helper());
	CHECK(waitpid(-1, 0, WNOHANG) == -1 && errno == ECHILD);
	struct stat task;
	CHECK(!stat("/proc/self/task", &task) && task.st_nlink == 3);
	CHECK(!unshare(CLONE_NEWUSER));
}

// The slice of a process in ns; 0 where the kernel does not say (before Linux 6.12).
static uint64_t slice_of(int pid) {
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice, deadline, period;
	} attributes = {0};
	CHECK(!syscall(SYS_sched_getattr, pid, &attributes, sizeof attributes, 0));
	return attributes.slice;
}

static void confined(void) {
	int pid = wait_for_helper();
	CHECK(pid);
	pause_ms(50);
	if (slice_of(0))
		CHECK(slice_of(pid) == 100000);
	else
		fprintf(stderr, "the kernel does not say slices: not checked\n");
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *file = fopen(path, "r");
	CHECK(file);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, "Cap", 3) || !strncmp(line, "Seccomp:", 8) || !strncmp(line, "NoNewPrivs:", 11))
			fputs(line, stdout);
	fclose(file);
	snprintf(path, sizeof path, "ls -l /proc/%d/fd /proc/%d/cwd", pid, pid);
	fflush(stdout);
	CHECK(!system(path));
}

// A child lives while the agent collapses what was filled before its advice: it has a page of all of that.
static void shared(void) {
	char *memory = map(128 * MB);
	fill(memory, 128 * MB);
	pause_ms(1500);
	printf("huge_before %ld\n", rollup("AnonHugePages:"));
	// Base pages map what was huge.
	for (size_t at = 0; at < 32 * MB; at += 2 * MB)
		CHECK(!mprotect(memory + at, PAGE, PROT_READ) && !mprotect(memory + at, PAGE, PROT_READ | PROT_WRITE));
	printf("huge_split %ld\n", rollup("AnonHugePages:"));
	pid_t child = fork();
	int status;
	CHECK(child >= 0);
	pause_ms(child ? 4000 : 5000);
	check(memory, 128 * MB);
	if (!child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	check(memory, 128 * MB);
	say_memory();
}

// A server, for so long: each child finds what is collapsed meanwhile, changes some pages of its own copy, and is over.
static void requests(double seconds) {
	char *memory = map(128 * MB);
	fill(memory, 128 * MB);
	for (double begun = now(); now() - begun < seconds;) {
		pid_t child = fork();
		int status;
		CHECK(child >= 0);
		if (!child) {
			check(memory, 24 * MB);
			for (int j = 0; j < 20; j++)
				memory[number() % (128 * MB)] = 1;
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	}
	check(memory, 128 * MB);
	say_memory();
}

static void forks(void) {
	char *memory = map(128 * MB);
	fill(memory, 128 * MB);
	for (int round = 0; round < 20; round++) {
		pid_t pids[4];
		for (int i = 0; i < 4; i++) {
			pids[i] = fork();
			CHECK(pids[i] >= 0);
			if (!pids[i]) {
				check(memory, 128 * MB);
				fill(memory, 16 * MB);
				check(memory, 128 * MB);
				if (round % 2)
					_exit(7);
				exit(7);
			}
		}
		for (int i = 0; i < 4; i++) {
			int status;
			CHECK(waitpid(pids[i], &status, 0) == pids[i]);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		}
		check(memory, 128 * MB);
	}
	CHECK(waitpid(-1, 0, WNOHANG) == -1 && errno == ECHILD);
}

// Forks so many children, which map something, and are over once they have a helper or after so long. Counts those
// with a helper.
static int with_helper(int children, int ms, size_t maps) {
	int count = 0;
	for (int i = 0; i < children; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			if (maps)
				map(maps);
			int has = 0;
			for (int look = 0; look < ms && !has; look++) {
				pause_ms(1);
				has = helper() != 0;
			}
			_exit(has);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
		count += WEXITSTATUS(status);
	}
	return count;
}

// A child is short up to 10 ms.
static void children(void) {
	wait_for_helper();
	printf("first %d\n", with_helper(8, 3, 0));
	printf("short %d\n", with_helper(32, 3, 0));
	printf("small %d\n", with_helper(16, 3, MB));
	printf("much %d\n", with_helper(16, 1000, 8 * MB));
	for (int i = 0; i < 16; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pause_ms(60);
			_exit(0);
		}
		CHECK(waitpid(pid, 0, 0) == pid);
	}
	printf("long %d\n", with_helper(1, 1000, 0));
}

static void spawns(char *self) {
	extern char **environ;
	for (int i = 0; i < 50; i++) {
		pid_t pid = vfork();
		if (!pid) {
			execl("/bin/true", "true", (char *)0);
			_exit(1);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		char *arguments[] = {self, "nothing", 0};
		CHECK(!posix_spawn(&pid, self, 0, 0, arguments, environ));
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		CHECK(!system("true"));
	}
}

static void no_descriptors(size_t bytes) {
	wait_for_helper();
	CHECK(!close_range(0, ~0U, 0));
	char *memory = map(bytes);
	fill(memory, bytes);
	CHECK(open("/dev/null", O_RDWR) == 0 && open("/dev/null", O_RDWR) == 1 && open("/dev/null", O_RDWR) == 2);
	pause_ms(300);
	check(memory, bytes);
	CHECK(open("/dev/null", O_RDWR) == 3);
}

// A pipe's reader sees the end as soon as the program has closed its own.
static void pipe_ends(void) {
	int ends[2];
	char byte;
	CHECK(!pipe(ends));
	wait_for_helper();
	pid_t pid = fork();
	if (!pid) {
		close(ends[0]);
		char *memory = map(64 * MB);
		fill(memory, 64 * MB);
		close(ends[1]);
		pause_ms(1000);
		exit(0);
	}
	close(ends[1]);
	double begun = now();
	CHECK(read(ends[0], &byte, 1) == 0);
	CHECK(now() - begun < 0.9);
	CHECK(waitpid(pid, 0, 0) == pid);
}

static void reaps_all(void) {
	wait_for_helper();
	int status;
	pid_t pid = fork();
	if (!pid)
		_exit(3);
	CHECK(wait(&status) == pid && WEXITSTATUS(status) == 3);
	CHECK(wait(&status) == -1 && errno == ECHILD);
	char *memory = map(256 * MB);
	fill(memory, 256 * MB);
	pause_ms(300);
	say_memory();
	check(memory, 256 * MB);
	// Clones included, as tracers do until they have no child left.
	CHECK(wait_for_helper());
	siginfo_t information;
	CHECK(waitid(P_ALL, 0, &information, WEXITED | __WALL) == -1 && errno == ECHILD);
	CHECK(waitpid(-1, &status, __WALL) == -1 && errno == ECHILD);
	CHECK(wait4(-1, &status, __WCLONE, 0) == -1 && errno == ECHILD);
	pid = fork();
	if (!pid)
		_exit(4);
	CHECK(waitpid(-1, &status, __WALL) == pid && WEXITSTATUS(status) == 4);
}

static void drop_user(size_t bytes) {
	char *memory = map(bytes);
	fill(memory, bytes / 2);
	CHECK(!setgid(65534) && !setuid(65534));
	CHECK(setuid(0) == -1);
	fill(memory, bytes);
	check(memory, bytes);
	say_memory();
}

static void *sleeps(void *seconds) { pause_ms((long)seconds); return 0; }
static void threads(size_t bytes) {
	pthread_t thread;
	CHECK(!pthread_create(&thread, 0, sleeps, (void *)200));
	char *memory = map(bytes);
	fill(memory, bytes);
	CHECK(!pthread_join(thread, 0));
	CHECK(!close_range(3, ~0U, 0));
	say_settled();
	CHECK(!helper());
	CHECK(!setgid(65534) && !setuid(65534));
	check(memory, bytes);
	pid_t pid = fork();
	if (!pid) {
		check(memory, bytes);
		CHECK(!pthread_create(&thread, 0, sleeps, (void *)20) && !pthread_join(thread, 0));
		exit(5);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
}

static void *fills(void *memory) { fill(memory, 64 * MB); return 0; }
static void streams(void) {
	char *memory = map(16 * 64 * MB);
	pthread_t all[16];
	for (int i = 0; i < 16; i++)
		CHECK(!pthread_create(all + i, 0, fills, memory + i * 64 * MB));
	for (int i = 0; i < 16; i++)
		CHECK(!pthread_join(all[i], 0));
	say_settled();
	for (int i = 0; i < 16; i++)
		check(memory + i * 64 * MB, 64 * MB);
}

// What lies in these addresses, with its flags.
static void say_mappings(char *memory, size_t size) {
	int error = errno;
	char line[256];
	unsigned long start, end;
	int within = 0;
	FILE *file = fopen("/proc/self/smaps", "r");
	fprintf(stderr, "%p, %zu kB, filled by a thread:\n", (void *)memory, size >> 10);
	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr("rwx-", *(strchr(line, ' ') + 1)))
			within = start <= (unsigned long)memory + size && end >= (unsigned long)memory;
		if (within && (strchr(line, '-') || !strncmp(line, "VmFlags", 7)))
			fputs(line, stderr);
	}
	errno = error;
}

// Each thread maps, fills, moves, gives back, protects and unmaps, and knows what must be in its memory.
static double until;
static void *storm(void *seed) {
	uint64_t random = (uintptr_t)seed * 2654435761u + 1;
	char *memory = 0;
	size_t size = 0, filled = 0;
	while (now() < until) {
		random ^= random << 13; random ^= random >> 7; random ^= random << 17;
		size_t part = (random >> 20) % 24 * MB + PAGE;
		switch (memory ? random % 8 : 0) {
		case 0:
			if (memory) { check(memory, filled); CHECK(!munmap(memory, size)); }
			size = 48 * MB + (random >> 40) % 64 * MB, filled = 0, memory = map(size);
			break;
		case 1: case 2: case 3:
			for (; part > PAGE && filled < size; part -= PAGE, filled += PAGE)
				*(uint64_t *)(memory + filled) = (filled / PAGE) ^ 0x5a5a;
			break;
		case 4: {
			size_t more = size + 16 * MB;
			char *moved = mremap(memory, size, more, MREMAP_MAYMOVE);
			if (moved == MAP_FAILED)
				say_mappings(memory, size);
			CHECK(moved != MAP_FAILED);
			memory = moved;
			size = more;
			if (size > 256 * MB) { CHECK(!munmap(memory + 64 * MB, size - 64 * MB)); size = 64 * MB; if (filled > size) filled = size; }
			break;
		}
		case 5:
			if (filled > part) { CHECK(!madvise(memory + filled - part, part, MADV_DONTNEED)); filled -= part; for (size_t i = 0; i < part; i += PAGE) CHECK(!memory[filled + i]); }
			break;
		case 6:
			if (filled) { CHECK(!mprotect(memory, filled, PROT_READ)); check(memory, filled); CHECK(!mprotect(memory, filled, PROT_READ | PROT_WRITE)); }
			break;
		case 7:
			check(memory, filled);
			break;
		}
	}
	if (memory) check(memory, filled);
	return 0;
}
static void storms(int count, double seconds) {
	pthread_t all[64];
	until = now() + seconds;
	if (count < 2) { storm((void *)1); return; }
	for (long i = 0; i < count; i++)
		CHECK(!pthread_create(all + i, 0, storm, (void *)(i + 1)));
	while (now() < until - 0.2) {
		pid_t pid = fork();
		if (!pid) _exit(0);
		CHECK(waitpid(pid, 0, 0) == pid);
		pause_ms(100);
	}
	for (int i = 0; i < count; i++)
		CHECK(!pthread_join(all[i], 0));
}

static void own_advice(size_t bytes) {
	char *memory = map(bytes);
	CHECK(!madvise(memory, bytes, MADV_NOHUGEPAGE));
	fill(memory, bytes);
	say_settled();
	check(memory, bytes);
}

static void own_switch(size_t bytes) {
	CHECK(!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	dense(bytes);
}

// Stops in the middle of what it fills.
static void stops(size_t bytes) {
	char *memory = map(bytes);
	fill(memory, bytes / 2);
	say_settled();
	fill(memory, bytes);
	check(memory, bytes);
}

// Huge pages of the machine of which a part is unmapped.
static long partly_unmapped(void) {
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/stats/nr_anon_partially_mapped", "r");
	long count = -1;
	CHECK(file && fscanf(file, "%ld", &count) == 1);
	fclose(file);
	return count;
}

// Unmaps three quarters of each of its huge pages, and waits until somebody frees them, for half a minute at most.
static void parts(size_t bytes) {
	const size_t region = 2 * MB, left = region / 4;
	char *memory = (char *)(((uintptr_t)map(bytes + region) + region - 1) & -region);
	CHECK(!madvise(memory, bytes, MADV_HUGEPAGE));
	fill(memory, bytes);
	for (size_t at = 0; at < bytes; at += region)
		CHECK(!madvise(memory + at + left, region - left, MADV_DONTNEED));
	long made = partly_unmapped();
	for (int i = 0; i < 300 && partly_unmapped() > made / 8; i++)
		pause_ms(100);
	printf("made %ld kept %ld\n", made, partly_unmapped());
	for (size_t at = 0; at < bytes; at += PAGE)
		CHECK(*(uint64_t *)(memory + at) == (at % region < left ? (at / PAGE) ^ 0x5a5a : 0));
}

// Refuses a system call with an error, or has it kill, and then becomes another program.
static void filtered(char **arguments) {
	unsigned call = atoi(arguments[0]), action = strtoul(arguments[1], 0, 0);
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, steps};
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	execv(arguments[2], arguments + 2);
	CHECK(!"exec");
}

static void kill_helper(size_t bytes) {
	char *memory = map(bytes);
	fill(memory, bytes / 4);
	int pid = wait_for_helper();
	CHECK(pid && !kill(pid, SIGKILL));
	fill(memory, bytes);
	check(memory, bytes);
	pause_ms(100);
	CHECK(waitpid(-1, 0, WNOHANG) == -1 && errno == ECHILD);
}

static void loads(char *library) {
	for (int i = 0; i < 3; i++) {
		void *handle = dlopen(library, RTLD_NOW);
		CHECK(handle);
		pause_ms(20);
		CHECK(!dlclose(handle));
	}
	dense(128 * MB);
}

// Says its helper's number, and then does what the test wants.
static void then(char **arguments) {
	char *memory = map(64 * MB);
	fill(memory, 64 * MB);
	printf("%d\n", wait_for_helper());
	fflush(stdout);
	if (!strcmp(arguments[0], "exit")) exit(0);
	if (!strcmp(arguments[0], "_exit")) _exit(0);
	if (!strcmp(arguments[0], "exec")) execl("/bin/sleep", "sleep", "1", (char *)0);
	if (!strcmp(arguments[0], "abort")) { struct rlimit none = {0, 0}; setrlimit(RLIMIT_CORE, &none); abort(); }
	pause_ms(30000);
}

int main(int count, char **arguments) {
	char *mode = count > 1 ? arguments[1] : "nothing";
	size_t bytes = (count > 2 ? atol(arguments[2]) : 256) * MB;
#define MODE(name, ...) if (!strcmp(mode, name)) { __VA_ARGS__; return 0; }
	MODE("nothing", ;)
	MODE("dense", dense(bytes))
	MODE("part", part(bytes))
	MODE("dense-then-sparse", dense_then_sparse(bytes))
	MODE("scattered", scattered(bytes))
	MODE("dense-then-scattered", dense_then_scattered(bytes))
	MODE("grow", grow(bytes))
	MODE("regrow", regrow(bytes))
	MODE("remap", remap(bytes))
	MODE("torn", torn(bytes))
	MODE("births", births(bytes / MB))
	MODE("chunks", chunks(bytes / MB, count > 3))
	MODE("begins", begins(bytes / MB))
	MODE("single", single())
	MODE("confined", confined())
	MODE("forks", forks())
	MODE("requests", requests(0.17))
	MODE("children", children())
	MODE("shared", shared())
	MODE("spawns", spawns(arguments[0]))
	MODE("no-descriptors", no_descriptors(bytes))
	MODE("pipe-ends", pipe_ends())
	MODE("reaps-all", reaps_all())
	MODE("drop-user", drop_user(bytes))
	MODE("threads", threads(bytes))
	MODE("streams", streams())
	MODE("storm", storms(atoi(arguments[2]), atof(arguments[3])))
	MODE("own-advice", own_advice(bytes))
	MODE("own-switch", own_switch(bytes))
	MODE("stops", stops(bytes))
	MODE("parts", parts(bytes))
	MODE("filtered", filtered(arguments + 2))
	MODE("kill-helper", kill_helper(bytes))
	MODE("loads", loads(arguments[2]))
	MODE("then", then(arguments + 2))
	MODE("idle", char *memory = map(bytes); fill(memory, bytes); pause_ms(atol(arguments[3])))
	fprintf(stderr, "%s: no such program\n", mode);
	return 2;
}
