/* One hazard of an interposed allocator for each word on the command line. Silent and 0 if all is well. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(what) do { if (!(what)) { \
    fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); _exit(1); } } while (0)
#define RW (PROT_READ | PROT_WRITE)
#define MEMORY (MAP_PRIVATE | MAP_ANONYMOUS)
#define MB (1ul << 20)

/* Hides a block from a compiler that knows what malloc does. */
static void *hide(void *block) { __asm__ volatile("" : "+r"(block)); return block; }
static size_t hide_size(size_t size) { __asm__ volatile("" : "+r"(size)); return size; }

/* first operation: before any constructor */
static void *early[6];
static void handler(void);
static void before_all(void) {
    early[0] = realloc(NULL, 100);
    early[1] = calloc(3, 50);
    early[2] = memalign(4096, 10);
    early[3] = mmap(NULL, 5000, RW, MEMORY, -1, 0);
    early[4] = sbrk(4096);
    free(NULL);
    early[5] = malloc(10);
    pthread_atfork(handler, handler, handler);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = before_all;

static void first_operation(void) {
    for (int i = 0; i < 6; i++) { MUST(early[i] && early[i] != MAP_FAILED); memset(early[i], 1, 10); }
    MUST((uintptr_t)early[2] % 4096 == 0);
    free(early[0]); free(early[1]); free(early[2]); free(early[5]);
    MUST(munmap(early[3], 5000) == 0);
}

static void zero_size(void) {
    void *a = hide(malloc(0)), *b = hide(malloc(0));
    MUST(a && b && a != b);
    MUST(realloc(a, 0) == NULL);
    free(b);
    MUST((a = hide(calloc(0, 8)))); free(a);
    MUST((a = hide(memalign(64, 0)))); free(a);
    MUST(posix_memalign(&a, 64, 0) == 0); free(a);
    MUST((a = hide(realloc(NULL, 0)))); free(a);
    MUST(malloc_usable_size(NULL) == 0);
}

static void overflow_sizes(void) {
    size_t huge[] = { SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX };
    for (int i = 0; i < 4; i++) {
        size_t n = hide_size(huge[i]);
        void *p = (void *)1;
        errno = 0; MUST(hide(malloc(n)) == NULL && errno == ENOMEM);
        errno = 0; MUST(hide(calloc(1, n)) == NULL && errno == ENOMEM);
        errno = 0; MUST(hide(memalign(64, n)) == NULL && errno == ENOMEM);
        errno = 0; MUST(hide(valloc(n)) == NULL && errno == ENOMEM);
        errno = 0; MUST(hide(pvalloc(n)) == NULL && errno == ENOMEM);
        MUST(posix_memalign(&p, 64, n) == ENOMEM && p == (void *)1);
        char *old = malloc(10); strcpy(old, "kept");
        errno = 0; MUST(hide(realloc(old, n)) == NULL && errno == ENOMEM && !strcmp(old, "kept"));
        free(old);
    }
    errno = 0; MUST(hide(calloc(hide_size(SIZE_MAX / 2), 3)) == NULL && errno == ENOMEM);
    errno = 0; MUST(hide(reallocarray(NULL, hide_size(SIZE_MAX / 2), 3)) == NULL && errno == ENOMEM);
    errno = 0; MUST(mmap(NULL, hide_size(SIZE_MAX - 8192), RW, MEMORY, -1, 0) == MAP_FAILED && errno == ENOMEM);
    errno = 0; MUST(sbrk(PTRDIFF_MAX) == (void *)-1 && errno == ENOMEM);
}

static void alignment(void) {
    for (size_t n = 1; n < 3000; n = n * 3 / 2 + 1) {
        void *p = malloc(n);
        MUST((uintptr_t)p % 16 == 0 && malloc_usable_size(p) >= n);
        free(p);
    }
    for (size_t a = 1; a <= 64 * MB; a *= 2) {
        void *p = hide(memalign(a, 100));
        MUST(p && (uintptr_t)p % a == 0);
        memset(p, 7, 100);
        p = realloc(p, 1000);
        MUST(p && ((char *)p)[99] == 7);
        free(p);
        if (a >= sizeof(void *)) { MUST(posix_memalign(&p, a, a) == 0 && (uintptr_t)p % a == 0); free(p); }
        MUST((p = hide(aligned_alloc(a, a))) && (uintptr_t)p % a == 0); free(p);
    }
    void *p = NULL;
    MUST(posix_memalign(&p, 4, 10) == EINVAL && posix_memalign(&p, 24, 10) == EINVAL && posix_memalign(&p, 0, 10) == EINVAL);
    MUST((p = hide(memalign(24, 10))) && (uintptr_t)p % 32 == 0); free(p);
    errno = 0; MUST(hide(memalign(hide_size(SIZE_MAX / 2 + 2), 10)) == NULL && errno == EINVAL);
    errno = 0; MUST(hide(memalign(hide_size(SIZE_MAX / 2 + 1), 10)) == NULL && errno == ENOMEM);
    MUST((uintptr_t)(p = valloc(5)) % 4096 == 0); free(p);
    MUST((uintptr_t)(p = pvalloc(5)) % 4096 == 0 && malloc_usable_size(p) >= 4096); free(p);
}

static void errno_preserved(void) {
    for (size_t n = 1; n < 64 * MB; n *= 3) {
        char *p = malloc(n); memset(p, 1, n);
        errno = 42; free(p); MUST(errno == 42);
        errno = 42; p = malloc(n); MUST(errno == 42);
        p = realloc(p, 2 * n); MUST(errno == 42); free(p);
    }
    errno = 42; void *m = mmap(NULL, 4096, RW, MEMORY, -1, 0); MUST(errno == 42);
    MUST(munmap(m, 4096) == 0 && errno == 42);
}

static void family(void) {
    char *s = strdup("abc"), *n = strndup("abcdef", 3), *f = NULL;
    MUST(!strcmp(s, n) && malloc_usable_size(s) >= 4);
    MUST(asprintf(&f, "%d", 12345) == 5 && !strcmp(f, "12345"));
    free(s); free(n); free(f);
    int *a = reallocarray(NULL, 10, 4); a[9] = 5; a = reallocarray(a, 10000, 4); MUST(a[9] == 5); free(a);
    char *c = malloc(100000); memset(c, 9, 100000); free(c);
    c = calloc(1, 100000);
    for (int i = 0; i < 100000; i++) MUST(c[i] == 0);
    free(c);
    char *line = NULL; size_t size = 0;
    FILE *file = fmemopen("one line\n", 9, "r");
    MUST(getline(&line, &size, file) == 9); free(line); fclose(file);
}

/* threads */
static void *blocks[20000];
static void *allocate(void *seed) {
    unsigned x = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 20000; i++) {
        x = x * 1103515245 + 12345;
        size_t n = 1 + (x >> 8) % (i % 100 ? 500 : 100000);
        blocks[i] = malloc(n); memset(blocks[i], (int)i, n);
    }
    return NULL;
}
static void *release(void *unused) { (void)unused; for (int i = 0; i < 20000; i++) free(blocks[i]); return NULL; }
static void free_by_another_thread(void) {
    for (int round = 0; round < 4; round++) {
        pthread_t a, b;
        MUST(pthread_create(&a, NULL, allocate, (void *)(uintptr_t)(round + 1)) == 0); pthread_join(a, NULL);
        MUST(pthread_create(&b, NULL, release, NULL) == 0); pthread_join(b, NULL);
    }
}

static pthread_key_t key;
static int destroyed;
static void destructor(void *value) {
    /* frees and allocates when the thread is nearly gone; again in a second round */
    free(value);
    void *p = malloc(1000); memset(p, 3, 1000); free(p);
    if (destroyed++ % 2 == 0) pthread_setspecific(key, malloc(50));
}
static void *with_specific(void *unused) { (void)unused; pthread_setspecific(key, malloc(77)); return malloc(33); }
static void thread_exit(void) {
    pthread_key_create(&key, destructor);
    for (int i = 0; i < 200; i++) {
        pthread_t t; void *p;
        MUST(pthread_create(&t, NULL, with_specific, NULL) == 0); pthread_join(t, &p); free(p);
    }
    MUST(destroyed == 400);
}

static volatile int stop;
static void *churn(void *unused) {
    (void)unused;
    while (!stop) {
        void *p[50];
        for (int i = 0; i < 50; i++) p[i] = malloc((size_t)i * 997);
        for (int i = 0; i < 50; i++) free(p[i]);
        void *m = mmap(NULL, 3 * MB, RW, MEMORY, -1, 0);
        *(char *)m = 1; munmap(m, 3 * MB);
    }
    return NULL;
}
static void *forks(void *unused) {
    (void)unused;
    char *mine = malloc(5 * MB); memset(mine, 5, 5 * MB);
    char *mapped = mmap(NULL, 5 * MB, RW, MEMORY, -1, 0); memset(mapped, 6, 5 * MB);
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            alarm(300);
            for (size_t at = 0; at < 5 * MB; at += 4096) { MUST(mine[at] == 5 && mapped[at] == 6); mine[at] = mapped[at] = 1; }
            void *p = malloc(10000); memset(p, 1, 10000); free(p);
            MUST((p = mmap(NULL, MB, RW, MEMORY, -1, 0)) != MAP_FAILED); *(char *)p = 1;
            _exit(9);
        }
        mine[i] = 5; mapped[4096 + i] = 6;
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (status != 9 << 8) fprintf(stderr, "fork %d: status %x\n", i, (unsigned)status);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    }
    for (size_t at = 0; at < 5 * MB; at += 4096) MUST(mine[at] == 5 && mapped[at] == 6);
    return NULL;
}
static void fork_from_a_thread(void) {
    pthread_t others[2], forker;
    for (int i = 0; i < 2; i++) MUST(pthread_create(&others[i], NULL, churn, NULL) == 0);
    MUST(pthread_create(&forker, NULL, forks, NULL) == 0);
    pthread_join(forker, NULL);
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
}

/* The C library writes to its own blocks between the handlers and the fork, and in the child before them: the name service's lock and those of
   streams. They are on the heap's pages, which must be there and let it. */
static void kill_if_it_hangs(void) {
    pid_t hung = getpid();
    if (fork()) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == hung) { sleep(100); kill(hung, SIGKILL); }
    _exit(0);
}
static void fork_with_streams(void) {
    kill_if_it_hangs();
    enum { BLOCKS = 300 };
    static char *blocks[BLOCKS];
    FILE *streams[8]; char line[512]; pthread_t others[2];
    MUST(getpwnam("root"));
    for (int i = 0; i < 8; i++) MUST((streams[i] = fopen("/etc/passwd", "r")) && fgets(line, 5, streams[i]));
    for (int i = 0; i < BLOCKS; i++) { MUST((blocks[i] = malloc(MB))); memset(blocks[i], i, MB); }
    for (int i = 0; i < 2; i++) MUST(pthread_create(&others[i], NULL, churn, NULL) == 0);
    for (int round = 0; round < 4; round++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            alarm(90);
            MUST(getpwnam("root") && fgets(line, sizeof line, streams[round]));
            for (int i = 0; i < BLOCKS; i++) for (size_t at = 0; at < MB; at += 4096) {
                MUST(blocks[i][at] == (char)(round ? i + round : i)); blocks[i][at] = 99;
            }
            for (int i = 0; i < 8; i++) fclose(streams[i]);
            _exit(9);
        }
        for (int i = 0; i < BLOCKS; i++) memset(blocks[i], i + round + 1, MB);
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (status != 9 << 8) fprintf(stderr, "fork %d: status %x\n", round, (unsigned)status);
        MUST(status == 9 << 8);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
    for (int i = 0; i < BLOCKS; i++) for (size_t at = 0; at < MB; at++) MUST(blocks[i][at] == (char)(i + 4));
    MUST(fgets(line, sizeof line, streams[7]));
}

/* What others have the kernel map, where we find no huge pages and so have nothing for a moment, is not overwritten. */
static char *volatile wanted;
static void *map_by_the_kernel(void *unused) {
    (void)unused;
    while (!stop) {
        /* Where there is room at this address they get it; else anywhere. */
        volatile char *m = (void *)syscall(SYS_mmap, wanted, 64 * 1024, RW, MEMORY, -1, 0);
        MUST(m != MAP_FAILED);
        if (m == wanted) {
            for (size_t at = 0; at < 64 * 1024; at += 4096) m[at] = 7;
            usleep(1000);
            for (size_t at = 0; at < 64 * 1024; at += 4096) MUST(m[at] == 7);
        }
        MUST(syscall(SYS_munmap, m, 64 * 1024) == 0);
    }
    return NULL;
}
static void mappings_of_others(void) {
    pthread_t others[2];
    wanted = mmap(NULL, 16 * MB, RW, MEMORY, -1, 0);
    MUST(wanted != MAP_FAILED && munmap(wanted, 16 * MB) == 0);
    /* The first huge page may have others in it, and is tried no more. */
    wanted += 4 * MB - (uintptr_t)wanted % (2 * MB);
    for (int i = 0; i < 2; i++) MUST(pthread_create(&others[i], NULL, map_by_the_kernel, NULL) == 0);
    for (int round = 0; round < 3000; round++) {
        char *m = mmap(NULL, 16 * MB, RW, MEMORY, -1, 0);
        MUST(m != MAP_FAILED);
        for (size_t at = 0; at < 16 * MB; at += MB) m[at] = 1;
        MUST(munmap(m, 16 * MB) == 0);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
}

/* Pages that are never replaced: what would need it is refused, and what is in them stays where it is. */
static void never_replaced(void) {
    char *a = mmap(NULL, 8 * MB, RW, MEMORY, -1, 0);
    MUST(a != MAP_FAILED);
    a += 2 * MB - (uintptr_t)a % (2 * MB);
    memset(a, 1, 4 * MB);
    MUST(mprotect(a, 4096, PROT_READ) == -1 && errno == ENOMEM);
    void *to = mmap(NULL, 4 * MB, RW, MEMORY, -1, 0);
    MUST(mremap(a, 4 * MB, 4 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED && errno == ENOMEM && a[5] == 1);
    MUST(madvise(a, 4096, MADV_DONTNEED) == 0 && a[0] == 0 && a[4096] == 1);
    MUST(munmap(a, 4096) == 0 && a[4096] == 1);
}

/* Handlers that were registered as early as can be run while the library has made ready for the fork. */
static int handled;
static void handler(void) {
    handled++;
    void *p = malloc(3 * MB); memset(p, 1, 3 * MB);
    void *m = mmap(NULL, 3 * MB, RW, MEMORY, -1, 0); MUST(m != MAP_FAILED); *(char *)m = 1;
    MUST(munmap(m, 3 * MB) == 0); free(p);
}
static void fork_handlers(void) {
    void *p = malloc(3 * MB); memset(p, 2, 3 * MB);
    for (int i = 1; i <= 3; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) { alarm(300); MUST(handled == 2 * i && ((char *)p)[MB] == 2); _exit(9); }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 9 << 8 && handled == 2 * i);
    }
    free(p);
}

/* A stack on pages of the pool: what is done to the rest of them must not wait for it, nor lose what is written to it. */
static ucontext_t back, there;
static char *stacks;
static void on_the_stack(void) {
    volatile int words[100];
    for (int i = 0; i < 100; i++) words[i] = i;
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) { alarm(300); for (int i = 0; i < 100; i++) MUST(words[i] == i + round); _exit(9); }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 9 << 8);
        for (int i = 0; i < 100; i++) words[i]++;
    }
    MUST(mprotect(stacks, 4096, PROT_NONE) == 0);
    MUST(mprotect(stacks + 2 * MB - 4096, 4096, PROT_READ) == 0);
    for (int i = 0; i < 100; i++) MUST(words[i] == i + 3);
    swapcontext(&there, &back);
}
static void own_stack(void) {
    for (int alone = 0; alone < 2; alone++) {
        pthread_t other;
        stop = 0;
        if (!alone) MUST(pthread_create(&other, NULL, churn, NULL) == 0);
        stacks = mmap(NULL, 2 * MB, RW, MEMORY, -1, 0);
        MUST(stacks != MAP_FAILED && getcontext(&there) == 0);
        there.uc_stack.ss_sp = stacks + MB; there.uc_stack.ss_size = MB / 2; there.uc_link = &back;
        makecontext(&there, on_the_stack, 0);
        MUST(swapcontext(&back, &there) == 0);
        MUST(munmap(stacks, 2 * MB) == 0);
        stop = 1;
        if (!alone) pthread_join(other, NULL);
    }
}

static char *kept;
static void last(void) { MUST(!strcmp(kept, "kept")); char *p = malloc(5000); memset(p, 1, 5000); free(p); free(kept); }
static void middle(void) { free(malloc(12345)); }
__attribute__((destructor)) static void at_the_very_end(void) { free(malloc(777)); }
static void exit_handlers(void) { kept = strdup("kept"); atexit(last); atexit(middle); }

static volatile sig_atomic_t ticks;
static void tick(int unused) {
    (void)unused; ticks++;
    /* Not allowed for malloc; mapping memory in a handler is common. */
    void *m = mmap(NULL, 8192, RW, MEMORY, -1, 0);
    if (m == MAP_FAILED || munmap(m, 8192)) _exit(3);
}
static void signals(void) {
    signal(SIGALRM, tick);
    ualarm(500, 500);
    for (int i = 0; ticks < 400; i++) {
        void *p = malloc((size_t)(i % 5000)); void *m = mmap(NULL, 5 * MB, RW, MEMORY, -1, 0);
        MUST(m != MAP_FAILED); *(char *)m = 1; free(p); munmap(m, 5 * MB);
    }
    ualarm(0, 0);
}

/* A part of a huge page gets another protection while other threads write to the rest: nothing is lost, and the protection holds. */
static char *area;
static size_t counts[4];
static void *write_all_the_time(void *number) {
    size_t n = (size_t)number, count = 0;
    volatile size_t *words = (volatile size_t *)(area + (1 + n) * 64 * 4096);
    while (!stop) { count++; words[count % 512] = count; words[512 * 63 + count % 512] = count; }
    counts[n] = count;
    return NULL;
}
static void protect_a_part(void) {
    for (int round = 0; round < 10; round++) {
        area = mmap(NULL, 2 * MB, RW, MEMORY, -1, 0);
        MUST(area != MAP_FAILED);
        memset(area, 0, 2 * MB);
        stop = 0;
        pthread_t t[2];
        for (size_t i = 0; i < 2; i++) MUST(pthread_create(&t[i], NULL, write_all_the_time, (void *)i) == 0);
        usleep(5000);
        MUST(mprotect(area, 4096, PROT_NONE) == 0);
        usleep(5000);
        stop = 1;
        for (size_t i = 0; i < 2; i++) {
            pthread_join(t[i], NULL);
            size_t *words = (size_t *)(area + (1 + i) * 64 * 4096), n = counts[i];
            for (size_t back = 0; back < 512 && back < n; back++)
                MUST(words[(n - back) % 512] == n - back && words[512 * 63 + (n - back) % 512] == n - back);
        }
        int ends[2]; MUST(pipe(ends) == 0);
        MUST(write(ends[1], area, 1) == -1 && errno == EFAULT);
        MUST(write(ends[1], area + 4096, 1) == 1);
        close(ends[0]); close(ends[1]);
        MUST(munmap(area, 2 * MB) == 0);
    }
}

/* Zeroed again after the hole that munmap leaves, and after MADV_DONTNEED. */
static void zeroed_again(void) {
    char *a = mmap(NULL, 8 * MB, RW, MEMORY, -1, 0);
    memset(a, 1, 8 * MB);
    MUST(munmap(a + MB, MB) == 0);
    char *b = mmap(a + MB, MB, RW, MEMORY, -1, 0);
    MUST(b == a + MB);
    for (size_t i = 0; i < MB; i++) MUST(b[i] == 0);
    MUST(a[MB - 1] == 1 && a[2 * MB] == 1);
    MUST(madvise(a + 4096, 3 * MB, MADV_DONTNEED) == 0);
    MUST(a[4095] == 1 && a[4096] == 0 && a[3 * MB + 4095] == 0 && a[3 * MB + 4096] == 1);
    char *c = mremap(a, 8 * MB, 32 * MB, MREMAP_MAYMOVE);
    MUST(c != MAP_FAILED && c[4095] == 1 && c[4096] == 0 && c[8 * MB - 1] == 1 && c[8 * MB] == 0 && c[32 * MB - 1] == 0);
    MUST(munmap(c, 32 * MB) == 0);
}

/* Until there is no more: NULL or MAP_FAILED with ENOMEM, and all that there was can be used. */
static void out_of_memory(void) {
    char *blocks[4096]; int n = 0;
    while (n < 4096) {
        errno = 0;
        char *p = malloc(64 * 1024);
        if (!p) { MUST(errno == ENOMEM); break; }
        memset(p, n, 64 * 1024); blocks[n++] = p;
    }
    MUST(n > 10 && n < 4096);
    for (int i = 0; i < n; i++) { MUST(blocks[i][100] == (char)i); free(blocks[i]); }
    char *m = NULL; n = 0;
    while (n < 4096 && (m = mmap(NULL, MB, RW, MEMORY, -1, 0)) != MAP_FAILED) { memset(m, 1, MB); n++; }
    MUST(m == MAP_FAILED && errno == ENOMEM);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        static const struct { const char *name; void (*run)(void); } hazards[] = {
#define HAZARD(name) { #name, name }
            HAZARD(first_operation), HAZARD(zero_size), HAZARD(overflow_sizes), HAZARD(alignment), HAZARD(errno_preserved),
            HAZARD(family), HAZARD(free_by_another_thread), HAZARD(thread_exit), HAZARD(fork_from_a_thread), HAZARD(fork_handlers),
            HAZARD(own_stack), HAZARD(exit_handlers), HAZARD(signals), HAZARD(protect_a_part), HAZARD(zeroed_again), HAZARD(out_of_memory),
            HAZARD(fork_with_streams), HAZARD(mappings_of_others), HAZARD(never_replaced),
        };
        int found = 0;
        for (size_t k = 0; k < sizeof hazards / sizeof *hazards; k++)
            if (!strcmp(hazards[k].name, argv[i])) { hazards[k].run(); found = 1; }
        if (!found) { fprintf(stderr, "no hazard %s\n", argv[i]); return 2; }
    }
    return 0;
}
