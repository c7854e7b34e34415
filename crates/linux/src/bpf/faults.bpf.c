// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Fault latency of chosen threads.
 *
 * 1. A thread is followed if it has an entry in the task storage `mega_threads`:
 *    the kernel frees it with the thread, so there is no table to overflow.
 *    `mega_mark` gives one to each thread of a process, `mega_fork` to what
 *    followed threads start.
 * 2. A fault begins at page_fault_user. It ends where handle_mm_fault returns
 *    for good (fexit, any fault), or, where functions may not be traced, at
 *    rss_stat for the thread's own anonymous memory. Userspace loads one of the
 *    two ends.
 * 3. rss_stat is also reported by system calls, by reclaim in the midst of a
 *    fault and by faults in the kernel. It ends our fault only if what came
 *    from user mode last is an exception at the instruction of the fault, and
 *    the thread is not reclaiming. A fault that never gets there is replaced by
 *    the thread's next one.
 * 4. The size is the order of the last movable page that the thread allocated
 *    during the fault: what was tried before and failed does not count. Slabs,
 *    page tables and what interrupts allocate are not movable.
 * 5. Everything is counted per CPU. The sums are atomic, because fexit programs
 *    can be preempted.
 */
#include "types.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Stable since Linux 5.9, and in no enum that has a name or is in BTF. */
#define MM_ANONPAGES 1
#define GFP_MOVABLE 0x8
#define PF_MEMALLOC 0x800
#define FAULT_FLAG_USER 0x40
#define VM_FAULT_RETRY 0x400
/* OOM, SIGBUS, HWPOISON, HWPOISON_LARGE, SIGSEGV and FALLBACK */
#define VM_FAULT_ERROR 0x873

/* The layout is known to src/faults/latency.rs. */
#define ORDERS 10
#define FIRST_POWER 5 /* 32 ns */
#define SUB_BITS 4    /* 16 buckets per power of two */
#define POWERS 29     /* up to 2^34 ns, of which 10 s are used */
#define BUCKETS (1 + (POWERS << SUB_BITS))
#define LONGEST_NS 10000000000ULL

enum { BASE, LARGE, HUGE, OTHER, CLASSES };

struct class {
	__u64 sum_ns;
	__u64 bucket[BUCKETS];
};

struct mega_latency {
	__u64 too_long;		/* faults that took more than LONGEST_NS */
	__u64 threads_lost;	/* threads that could not be followed */
	__u64 order[ORDERS];	/* faults on anonymous memory by page order */
	struct class class[CLASSES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mega_latency);
} mega_latency SEC(".maps");

/* The fault that a thread is in. */
struct fault {
	__u64 start_ns; /* 0: none */
	__u64 ip;	/* the instruction that it happened at */
	__u32 order;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault);
} mega_threads SEC(".maps");

static __always_inline struct fault *fault_of(struct task_struct *task)
{
	return bpf_task_storage_get(&mega_threads, task, 0, 0);
}

static __always_inline struct mega_latency *latency(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&mega_latency, &zero);
}

static __always_inline bool follow(struct task_struct *task)
{
	struct fault none = {};

	return bpf_task_storage_get(&mega_threads, task, &none,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Below 2^FIRST_POWER: 0; then SUB_BITS bits after the leading one. */
static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 power = 0;
	__u64 v = ns;

	if (ns < 1 << FIRST_POWER)
		return 0;
	if (v >> 32) { v >>= 32; power += 32; }
	if (v >> 16) { v >>= 16; power += 16; }
	if (v >> 8) { v >>= 8; power += 8; }
	if (v >> 4) { v >>= 4; power += 4; }
	if (v >> 2) { v >>= 2; power += 2; }
	if (v >> 1) power += 1;
	return 1 + ((power - FIRST_POWER) << SUB_BITS) +
	       ((ns >> (power - SUB_BITS)) & ((1 << SUB_BITS) - 1));
}

static __always_inline void add(__u64 *to, __u64 n)
{
	__sync_fetch_and_add(to, n);
}

/* The fault is over. */
static __always_inline void count(struct fault *f, bool anonymous)
{
	__u64 ns = bpf_ktime_get_ns() - f->start_ns;
	struct mega_latency *l = latency();
	__u64 order = f->order, bucket;
	__u32 class = OTHER;

	f->start_ns = 0;
	if (!l)
		return;
	if (ns > LONGEST_NS) {
		add(&l->too_long, 1);
		return;
	}
	if (anonymous) {
		/* Without these clang checks one register and uses another. */
		asm volatile("" : "+r"(order));
		if (order >= ORDERS)
			order = ORDERS - 1;
		asm volatile("" : "+r"(order));
		class = order == 0 ? BASE : order == ORDERS - 1 ? HUGE : LARGE;
		add(&l->order[order], 1);
	}
	bucket = bucket_of(ns);
	asm volatile("" : "+r"(bucket));
	if (bucket >= BUCKETS)
		return;
	add(&l->class[class].sum_ns, ns);
	add(&l->class[class].bucket[bucket], 1);
}

/* (unsigned long address, struct pt_regs *regs, unsigned long error_code) */
SEC("tp_btf/page_fault_user")
int mega_begin(__u64 *ctx)
{
	struct fault *f = fault_of(bpf_get_current_task_btf());
	struct pt_regs *regs = (void *)ctx[1];

	if (!f)
		return 0;
	f->ip = regs->ip;
	f->order = 0;
	f->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* (struct page *page, unsigned int order, gfp_t gfp_flags, int migratetype) */
SEC("tp_btf/mm_page_alloc")
int mega_alloc(__u64 *ctx)
{
	struct fault *f;

	if (!(ctx[2] & GFP_MOVABLE) || !ctx[0])
		return 0;
	f = fault_of(bpf_get_current_task_btf());
	if (f)
		f->order = ctx[1];
	return 0;
}

/* (struct mm_struct *mm, int member), and the count up to 6.1 */
SEC("tp_btf/rss_stat")
int mega_end_rss(__u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = (void *)ctx[0];
	struct pt_regs *regs;
	struct fault *f;

	if ((__u32)ctx[1] != MM_ANONPAGES)
		return 0;
	f = fault_of(task);
	if (!f || !f->start_ns)
		return 0;
	if (task->mm != mm || task->flags & PF_MEMALLOC)
		return 0;
	regs = (void *)bpf_task_pt_regs(task);
	/* Exceptions have -1 there, system calls their number. */
	if (regs->orig_ax != -1UL || regs->ip != f->ip)
		return 0;
	count(f, true);
	return 0;
}

/* (vma, address, unsigned int flags, regs), returns vm_fault_t */
SEC("fexit/handle_mm_fault")
int mega_end(__u64 *ctx)
{
	struct vm_area_struct *vma = (void *)ctx[0];
	__u32 result = ctx[4];
	struct fault *f;

	if (!(ctx[2] & FAULT_FLAG_USER) || result & VM_FAULT_RETRY)
		return 0;
	f = fault_of(bpf_get_current_task_btf());
	if (!f || !f->start_ns)
		return 0;
	if (result & VM_FAULT_ERROR) {
		f->start_ns = 0;
		return 0;
	}
	count(f, !vma->vm_ops);
	return 0;
}

/* (struct task_struct *parent, struct task_struct *child) */
SEC("tp_btf/sched_process_fork")
int mega_fork(__u64 *ctx)
{
	struct task_struct *child = (void *)ctx[1];
	struct mega_latency *l;

	if (!fault_of(bpf_get_current_task_btf()) || follow(child))
		return 0;
	l = latency();
	if (l)
		add(&l->threads_lost, 1);
	return 0;
}

/* Writes a byte per thread: 0 followed already, 1 from now on, 2 cannot be. */
SEC("iter/task")
int mega_mark(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u8 answer = 0;

	if (!task)
		return 0;
	if (!fault_of(task))
		answer = follow(task) ? 1 : 2;
	bpf_seq_write(ctx->meta->seq, &answer, sizeof(answer));
	return 0;
}
