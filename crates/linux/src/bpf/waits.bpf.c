// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How long the threads of a process wait for its mmap_lock while something is
 * done to its memory: what they feel of a collapse.
 *
 * There are two ways to see it. Taking a free lock passes through neither, so
 * this costs nothing where nobody waits:
 * 1. `mega_slow_*`: the functions that wait for a semaphore, from their first
 *    instruction to their last: a writer spins there before it sleeps.
 * 2. `mega_wait_*`: the tracepoints of contended locks (Linux 5.19), where those
 *    functions cannot be probed. Spinning is not seen.
 * One process at a time is looked at, the one in `mega_act`.
 *
 * The layout is known to src/host/waits.rs.
 */
#include "types.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An action under way, and what was waited for it. */
struct mega_act {
	__u64 pid;	/* 0: none */
	__u64 turn;	/* tells actions apart */
	__u64 ns;	/* of the waits that have ended */
	__u64 begun;	/* waits */
	__u64 ended;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mega_act);
} mega_act SEC(".maps");

struct wait {
	__u64 lock;
	__u64 start_ns;
	__u64 turn;
};

/* By thread. Where there is no room, a wait begins and is never seen to end. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct wait);
} mega_waiting SEC(".maps");

/* How many are in `mega_waiting`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} mega_open SEC(".maps");

static __always_inline int begins(__u64 lock)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 zero = 0, tid = (__u32)id;
	struct mega_act *act = bpf_map_lookup_elem(&mega_act, &zero);
	struct task_struct *task;
	struct wait wait = {};
	__u64 *open;
	__u64 mm;

	if (!act || act->pid != id >> 32)
		return 0;
	task = (struct task_struct *)bpf_get_current_task();
	mm = (__u64)BPF_CORE_READ(task, mm);
	if (!mm || lock != mm + bpf_core_field_offset(struct mm_struct, mmap_lock))
		return 0;
	wait.lock = lock;
	wait.start_ns = bpf_ktime_get_ns();
	wait.turn = act->turn;
	__sync_fetch_and_add(&act->begun, 1);
	open = bpf_map_lookup_elem(&mega_open, &zero);
	if (open && !bpf_map_update_elem(&mega_waiting, &tid, &wait, BPF_NOEXIST))
		__sync_fetch_and_add(open, 1);
	return 0;
}

static __always_inline int ends(__u64 lock)
{
	__u32 zero = 0, tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *open = bpf_map_lookup_elem(&mega_open, &zero);
	struct mega_act *act;
	struct wait *wait;
	__u64 ns;

	if (!open || !*open)
		return 0;
	wait = bpf_map_lookup_elem(&mega_waiting, &tid);
	/* A thread that waits may wait for another lock meanwhile. */
	if (!wait || wait->lock != lock)
		return 0;
	ns = bpf_ktime_get_ns() - wait->start_ns;
	act = bpf_map_lookup_elem(&mega_act, &zero);
	if (act && act->turn == wait->turn) {
		__sync_fetch_and_add(&act->ns, ns);
		__sync_fetch_and_add(&act->ended, 1);
	}
	if (!bpf_map_delete_elem(&mega_waiting, &tid))
		__sync_fetch_and_add(open, -1);
	return 0;
}

/* (struct rw_semaphore *sem, …) */
SEC("fentry/rwsem_down_read_slowpath")
int mega_slow_read_begins(__u64 *ctx)
{
	return begins(ctx[0]);
}

SEC("fexit/rwsem_down_read_slowpath")
int mega_slow_read_ends(__u64 *ctx)
{
	return ends(ctx[0]);
}

SEC("fentry/rwsem_down_write_slowpath")
int mega_slow_write_begins(__u64 *ctx)
{
	return begins(ctx[0]);
}

SEC("fexit/rwsem_down_write_slowpath")
int mega_slow_write_ends(__u64 *ctx)
{
	return ends(ctx[0]);
}

/* (void *lock, unsigned int flags) */
SEC("tp_btf/contention_begin")
int mega_wait_begins(__u64 *ctx)
{
	return begins(ctx[0]);
}

/* (void *lock, int ret) */
SEC("tp_btf/contention_end")
int mega_wait_ends(__u64 *ctx)
{
	return ends(ctx[0]);
}
