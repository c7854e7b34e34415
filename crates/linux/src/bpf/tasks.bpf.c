// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who is there, and who comes and goes.
 *
 * 1. `mega_tasks` writes a record for each thread: one read of it tells of all
 *    processes what /proc tells in a file each.
 * 2. Fork, exec and exit of processes go to a ring buffer. It wakes nobody: it
 *    is read at each look. What finds no room in it is counted in `mega_lost`.
 *
 * The layouts are known to src/process/tasks.
 */
#include "types.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define RING_BYTES (256 << 10)
#define RB_NO_WAKEUP 1

struct mega_thread {
	__u32 tid;
	__u32 pid;
	__u32 parent;
	__u32 flags; /* PF_* */
	__u64 started_ns; /* since boot */
	__u64 ran_ns;	/* of the leader: and of the threads that have ended */
	__u64 faults;	/* the same */
	__u64 mm;	/* 0: none (any more) */
	__s64 pages;	/* resident, by counters that lag behind a little */
	__s32 exit_signal;
	__u32 is_over;
	char comm[16];
};

enum mega_change_kind { MEGA_FORK = 1, MEGA_EXEC = 2, MEGA_EXIT = 3 };

struct mega_change {
	__u32 kind;
	__u32 pid;
	__u32 parent; /* MEGA_FORK */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} mega_changes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} mega_lost SEC(".maps");

/* Files, anonymous, shared memory: MM_SWAPENTS, 2, is not resident. */
static __always_inline __s64 resident(struct mm_struct *mm)
{
	struct mm_struct___old *old = (void *)mm;

	if (bpf_core_type_exists(struct mm_rss_stat))
		return BPF_CORE_READ(old, rss_stat.count[0].counter) +
		       BPF_CORE_READ(old, rss_stat.count[1].counter) +
		       BPF_CORE_READ(old, rss_stat.count[3].counter);
	return BPF_CORE_READ(mm, rss_stat[0].count) +
	       BPF_CORE_READ(mm, rss_stat[1].count) +
	       BPF_CORE_READ(mm, rss_stat[3].count);
}

SEC("iter/task")
int mega_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct mega_thread r = {};
	struct mm_struct *mm;

	if (!task)
		return 0;
	r.tid = BPF_CORE_READ(task, pid);
	r.pid = BPF_CORE_READ(task, tgid);
	r.ran_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	r.faults = BPF_CORE_READ(task, min_flt) + BPF_CORE_READ(task, maj_flt);
	r.is_over = BPF_CORE_READ(task, exit_state) != 0;
	if (r.tid == r.pid) {
		r.flags = BPF_CORE_READ(task, flags);
		r.parent = BPF_CORE_READ(task, real_parent, tgid);
		r.started_ns = BPF_CORE_READ(task, start_boottime);
		r.ran_ns += BPF_CORE_READ(task, signal, sum_sched_runtime);
		r.faults += BPF_CORE_READ(task, signal, min_flt) +
			    BPF_CORE_READ(task, signal, maj_flt);
		r.exit_signal = BPF_CORE_READ(task, exit_signal);
		bpf_core_read_str(r.comm, sizeof(r.comm), &task->comm);
		mm = BPF_CORE_READ(task, mm);
		r.mm = (__u64)mm;
		if (mm)
			r.pages = resident(mm);
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

static __always_inline void tell(__u32 kind, __u32 pid, __u32 parent)
{
	struct mega_change change = { .kind = kind, .pid = pid, .parent = parent };
	__u32 zero = 0;
	__u64 *lost;

	if (!bpf_ringbuf_output(&mega_changes, &change, sizeof(change), RB_NO_WAKEUP))
		return;
	lost = bpf_map_lookup_elem(&mega_lost, &zero);
	if (lost)
		__sync_fetch_and_add(lost, 1);
}

SEC("tp_btf/sched_process_fork")
int mega_fork(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	__u32 pid = BPF_CORE_READ(child, tgid);

	/* A thread is no process. */
	if (pid == BPF_CORE_READ(child, pid))
		tell(MEGA_FORK, pid, BPF_CORE_READ(parent, tgid));
	return 0;
}

SEC("tp_btf/sched_process_exec")
int mega_exec(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];

	tell(MEGA_EXEC, BPF_CORE_READ(task, tgid), 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int mega_exit(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 pid = BPF_CORE_READ(task, tgid);

	if (pid == BPF_CORE_READ(task, pid))
		tell(MEGA_EXIT, pid, 0);
	return 0;
}
