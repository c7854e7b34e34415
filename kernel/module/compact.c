// SPDX-License-Identifier: GPL-2.0
/*
 * Empties chosen blocks.
 *
 * alloc_contig_range() does the work: it isolates the block, so that nobody
 * allocates from it, moves its pages elsewhere, and hands us the block, which
 * we give back at once. What is added here is not to ask it in vain. A block
 * that it fails on costs as much as one that it frees, so we look first, and a
 * block that cannot work is answered without being touched:
 *
 *	no memory, two zones, going offline	ABSENT
 *	DMA or device memory			ZONE
 *	CMA, atomic reserve, isolated		TYPE: freeing would change the type
 *	memory errors				POISONED
 *	nothing in use				ALREADY
 *	kernel pages				UNMOVABLE
 *	huge pages				HUGE: it would cost a block to gain one
 *	pages held by more than map them	PINNED
 *	too little free memory			NO_ROOM: it would push others' memory out
 *
 * Pages on their way to the LRU lists look pinned or unmovable, so before such
 * an answer is given these lists are brought up to date, at most every 50 ms.
 * A block is tried once: the caller, who ranks blocks, decides about again.
 *
 * Locks: the memory mutex around one block. alloc_contig_range() takes zone,
 * LRU, folio and page table locks and two mutexes of its own; none of them is
 * held when it returns. It sleeps; it returns early when the caller is being
 * killed.
 */
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <linux/uaccess.h>

#include "mega.h"

#define MEGA_DRAIN_EVERY_NS (50 * NSEC_PER_MSEC)

struct mega_work {
	u32 flags;
	u64 drained_ns; /* when the LRU batches were last emptied; 0: not yet */
};

/* Puts what waits on the way to the LRU lists there, on every processor. One
 * that goes offline meanwhile empties its own. No lock held.
 */
static void mega_drain(struct mega_work *work)
{
	int cpu;

	for_each_online_cpu(cpu)
		smp_call_on_cpu(cpu, mega_drain_here, NULL, false);
	work->drained_ns = ktime_get_ns();
}

/* Moving a block's pages must leave the zone as much as it wants to have free,
 * else it is reclaim that makes the room.
 */
static bool mega_has_room(unsigned long pfn, unsigned int in_use)
{
	struct zone *zone = page_zone(pfn_to_page(pfn));

	return zone_page_state(zone, NR_FREE_PAGES) >
	       high_wmark_pages(zone) + in_use + 2 * MEGA_BLOCK_PAGES;
}

/* Why a block is not to be tried; MEGA_BLOCK_UNDONE: it is. */
static enum mega_outcome mega_why_not(const struct mega_work *work, unsigned long pfn,
				      const struct mega_block *look)
{
	if (look->absent || look->flags & MEGA_BLOCK_TWO_ZONES)
		return MEGA_BLOCK_ABSENT;
	if (look->zone != MEGA_ZONE_DMA32 && look->zone != MEGA_ZONE_NORMAL &&
	    look->zone != MEGA_ZONE_MOVABLE)
		return MEGA_BLOCK_ZONE;
	if (look->type != MEGA_TYPE_MOVABLE && look->type != MEGA_TYPE_UNMOVABLE &&
	    look->type != MEGA_TYPE_RECLAIMABLE)
		return MEGA_BLOCK_TYPE;
	if (look->poisoned)
		return MEGA_BLOCK_POISONED;
	if (look->flags & MEGA_BLOCK_WHOLE)
		return MEGA_BLOCK_ALREADY;
	if (look->unmovable)
		return MEGA_BLOCK_UNMOVABLE;
	if (look->huge && !(work->flags & MEGA_COMPACT_HUGE))
		return MEGA_BLOCK_HUGE;
	if (look->pinned)
		return MEGA_BLOCK_PINNED;
	if (!mega_has_room(pfn, look->movable + look->huge))
		return MEGA_BLOCK_NO_ROOM;
	return MEGA_BLOCK_UNDONE;
}

static bool mega_may_be_batches(const struct mega_block *look, enum mega_outcome why)
{
	return why == MEGA_BLOCK_UNMOVABLE || why == MEGA_BLOCK_PINNED || look->batched;
}

/* Tries it. Returns the outcome; @look is of afterwards. Under the memory
 * mutex.
 */
static enum mega_outcome mega_try(u64 block, struct mega_block *look)
{
	unsigned long pfn = block * MEGA_BLOCK_PAGES;
	int error = mega_take_range(pfn, pfn + MEGA_BLOCK_PAGES);

	if (!error) {
		mega_give_back(pfn, MEGA_BLOCK_PAGES);
		memset(look, 0, sizeof(*look));
		return MEGA_BLOCK_FREED;
	}
	mega_look(block, look);
	if (error == -EINTR)
		return MEGA_BLOCK_INTERRUPTED;
	if (error == -ENOMEM)
		return MEGA_BLOCK_NO_ROOM;
	if (look->unmovable)
		return MEGA_BLOCK_UNMOVABLE;
	if (look->pinned)
		return MEGA_BLOCK_PINNED;
	return MEGA_BLOCK_BUSY;
}

/* One block, with all that is written to its entry. Returns whether its pages
 * were being moved.
 */
static bool mega_one(struct mega_work *work, struct mega_compact_block *entry)
{
	unsigned long pfn = entry->block * MEGA_BLOCK_PAGES;
	bool again = false, tried = false;
	u64 began = ktime_get_ns();
	enum mega_outcome outcome;
	struct mega_block look;
	unsigned int left;

	memset(&look, 0, sizeof(look));
	if (entry->block >= mega_blocks_end()) {
		outcome = MEGA_BLOCK_ABSENT;
		goto out;
	}
	do {
		if (again)
			mega_drain(work);
		if (mega_memory_lock()) {
			outcome = MEGA_BLOCK_INTERRUPTED;
			goto out;
		}
		mega_look(entry->block, &look);
		outcome = mega_why_not(work, pfn, &look);
		again = !again && mega_may_be_batches(&look, outcome) &&
			(!work->drained_ns ||
			 ktime_get_ns() - work->drained_ns > MEGA_DRAIN_EVERY_NS);
		if (again)
			mega_memory_unlock();
	} while (again);
	entry->in_use = look.movable + look.huge;
	if (outcome == MEGA_BLOCK_UNDONE) {
		tried = true;
		outcome = mega_try(entry->block, &look);
		left = look.movable + look.huge;
		entry->moved = entry->in_use - min_t(unsigned int, left, entry->in_use);
	}
	mega_memory_unlock();
out:
	entry->outcome = outcome;
	entry->pinned = look.pinned;
	entry->unmovable = look.unmovable;
	entry->took_ns = mega_ns32(ktime_get_ns() - began);
	return tried;
}

/* The list's entry @n; @rest: what becomes of it and all after it when its turn does not come. */
static int mega_step(struct mega_work *work, struct mega_compact *request, u32 n,
		     enum mega_outcome rest)
{
	struct mega_compact_block __user *list = u64_to_user_ptr(request->list);
	struct mega_compact_block entry = {};

	if (get_user(entry.block, &list[n].block))
		return -EFAULT;
	if (rest == MEGA_BLOCK_UNDONE) {
		request->tried += mega_one(work, &entry);
		request->freed += entry.outcome == MEGA_BLOCK_FREED;
		request->moved += entry.moved;
	} else {
		entry.outcome = rest;
	}
	if (copy_to_user(&list[n], &entry, sizeof(entry)))
		return -EFAULT;
	return 0;
}

long mega_compact(void __user *argument)
{
	enum mega_outcome rest = MEGA_BLOCK_UNDONE;
	struct mega_compact request;
	struct mega_work work = {};
	u64 began = ktime_get_ns();
	int error = 0;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (request.version != MEGA_UAPI_VERSION)
		return -EPROTO;
	if (request.flags & ~MEGA_COMPACT_HUGE || request.reserved[0] || request.reserved[1] ||
	    request.budget_ns > MEGA_BUDGET_MAX_NS)
		return -EINVAL;
	if (request.count > MEGA_COMPACT_MAX)
		return -E2BIG;
	if (!access_ok(u64_to_user_ptr(request.list),
		       (size_t)request.count * sizeof(struct mega_compact_block)))
		return -EFAULT;
	work.flags = request.flags;
	request.moved = 0;
	request.freed = 0;
	request.tried = 0;
	for (request.done = 0; request.done < request.count; request.done++) {
		if (fatal_signal_pending(current)) {
			error = -EINTR;
			break;
		}
		if (rest == MEGA_BLOCK_UNDONE && signal_pending(current)) {
			if (!request.done)
				return -EINTR;
			rest = MEGA_BLOCK_INTERRUPTED;
		}
		if (rest == MEGA_BLOCK_UNDONE && ktime_get_ns() - began >= request.budget_ns)
			rest = MEGA_BLOCK_BUDGET;
		error = mega_step(&work, &request, request.done, rest);
		if (error)
			break;
		cond_resched();
	}
	request.took_ns = ktime_get_ns() - began;
	if (copy_to_user(argument, &request, sizeof(request)))
		error = -EFAULT;
	return error;
}
