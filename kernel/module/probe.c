// SPDX-License-Identifier: GPL-2.0
/*
 * How long allocating takes: chunks one after another, each timed, until one
 * fails; then all are freed. The study's khugehog, with bounds: the OOM killer
 * is never called, some memory is always left, and the call can be
 * interrupted.
 *
 * Locks: none. The chunks hang on a list through their own pages.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "mega.h"

#define MEGA_FLOOR_BYTES (64ULL << 20)
/* Chunks between two looks at how much memory is left, which takes microseconds
 * itself.
 */
#define MEGA_LOOK_EVERY_BYTES (16ULL << 20)

#define MEGA_PROBE_ALL                                                                 \
	(MEGA_PROBE_RECLAIM | MEGA_PROBE_KSWAPD | MEGA_PROBE_RETRY | MEGA_PROBE_MOVABLE | \
	 MEGA_PROBE_ZERO)

static gfp_t mega_gfp(u32 flags, s32 node)
{
	/* GFP_HIGHUSER without reclaim. Without NORETRY or RETRY_MAYFAIL a small
	 * order would call the OOM killer.
	 */
	gfp_t gfp = (GFP_HIGHUSER & ~__GFP_RECLAIM) | __GFP_NOWARN | __GFP_NOMEMALLOC;

	if (flags & MEGA_PROBE_RECLAIM)
		gfp |= __GFP_DIRECT_RECLAIM;
	if (flags & MEGA_PROBE_KSWAPD)
		gfp |= __GFP_KSWAPD_RECLAIM;
	gfp |= flags & MEGA_PROBE_RETRY ? __GFP_RETRY_MAYFAIL : __GFP_NORETRY;
	if (flags & MEGA_PROBE_MOVABLE)
		gfp |= __GFP_MOVABLE;
	if (flags & MEGA_PROBE_ZERO)
		gfp |= __GFP_ZERO;
	if (node != NUMA_NO_NODE)
		gfp |= __GFP_THISNODE;
	return gfp;
}

static bool mega_at_floor(u64 floor_bytes, unsigned int order)
{
	long next = (long)(MEGA_LOOK_EVERY_BYTES >> PAGE_SHIFT) + (1L << order);
	long left = si_mem_available() - next;

	return left < 0 || (u64)left < floor_bytes >> PAGE_SHIFT;
}

/* Allocates onto @chunks. The request's answers are filled in. */
static int mega_take(struct mega_probe *request, struct list_head *chunks)
{
	u32 every = max_t(u32, MEGA_LOOK_EVERY_BYTES >> (PAGE_SHIFT + request->order), 1);
	u64 floor_bytes = max(request->floor_bytes, MEGA_FLOOR_BYTES);
	int node = request->node == -1 ? NUMA_NO_NODE : request->node;
	gfp_t gfp = mega_gfp(request->flags, node);
	u32 __user *times = u64_to_user_ptr(request->times);
	u64 start = ktime_get_ns();

	request->ended = MEGA_PROBE_COUNT;
	request->failed_ns = 0;
	for (request->done = 0; request->done < request->count; request->done++) {
		struct page *page;
		u64 began, took;

		if (signal_pending(current)) {
			request->ended = MEGA_PROBE_SIGNAL;
			break;
		}
		if (ktime_get_ns() - start >= request->budget_ns) {
			request->ended = MEGA_PROBE_BUDGET;
			break;
		}
		if (request->done % every == 0 && mega_at_floor(floor_bytes, request->order)) {
			request->ended = MEGA_PROBE_FLOOR;
			break;
		}
		began = ktime_get_ns();
		page = alloc_pages_node(node, gfp, request->order);
		took = ktime_get_ns() - began;
		if (!page) {
			request->ended = MEGA_PROBE_FAILED;
			request->failed_ns = mega_ns32(took);
			break;
		}
		list_add(&page->lru, chunks);
		if (put_user(mega_ns32(took), &times[request->done]))
			return -EFAULT;
		cond_resched();
	}
	request->took_ns = ktime_get_ns() - start;
	return 0;
}

static void mega_free(struct list_head *chunks, unsigned int order)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, chunks, lru) {
		list_del(&page->lru);
		__free_pages(page, order);
		cond_resched();
	}
}

long mega_probe(void __user *argument)
{
	struct mega_probe request;
	LIST_HEAD(chunks);
	int error;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (request.version != MEGA_UAPI_VERSION)
		return -EPROTO;
	if (request.flags & ~MEGA_PROBE_ALL || request.order > MEGA_ORDER_MAX ||
	    request.reserved[0] || request.reserved[1] || request.budget_ns > MEGA_BUDGET_MAX_NS)
		return -EINVAL;
	if (request.node != -1 && (request.node < 0 || request.node >= MAX_NUMNODES ||
				   !node_state(request.node, N_MEMORY)))
		return -EINVAL;
	if (request.count > MEGA_PROBE_MAX)
		return -E2BIG;
	if (!access_ok(u64_to_user_ptr(request.times), (size_t)request.count * sizeof(u32)))
		return -EFAULT;
	error = mega_take(&request, &chunks);
	mega_free(&chunks, request.order);
	if (!error && copy_to_user(argument, &request, sizeof(request)))
		error = -EFAULT;
	return error;
}
