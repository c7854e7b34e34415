// SPDX-License-Identifier: GPL-2.0
/*
 * What blocks of physical memory hold, read from their struct pages without
 * any lock, as /proc/kpageflags does, but counted here: a block costs 512 looks
 * at memory and 32 bytes of answer instead of 4096.
 *
 * All of it is a hint. A page may be allocated, freed, merged or become part of
 * a huge page between two loads: no pointer read from a struct page is followed
 * except to the head of its folio, which is a struct page wherever it points,
 * and each length read is cut to the block. Who acts on a look has to be told
 * by the kernel whether it came true.
 *
 * Not known here: when a page was last allocated (only page_owner, a debugging
 * option, keeps that).
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "mega.h"

/* Entries that are read under one hold of the lock and copied out together. */
#define MEGA_BATCH 32

u64 mega_blocks_end(void)
{
	unsigned long end = 0;
	int node;

	for_each_online_node(node)
		end = max(end, node_end_pfn(node));
	return DIV_ROUND_UP(end, MEGA_BLOCK_PAGES);
}

static u8 mega_zone_of(struct zone *zone)
{
	switch (zone_idx(zone)) {
#ifdef CONFIG_ZONE_DMA
	case ZONE_DMA:
		return MEGA_ZONE_DMA;
#endif
#ifdef CONFIG_ZONE_DMA32
	case ZONE_DMA32:
		return MEGA_ZONE_DMA32;
#endif
	case ZONE_NORMAL:
		return MEGA_ZONE_NORMAL;
	case ZONE_MOVABLE:
		return MEGA_ZONE_MOVABLE;
#ifdef CONFIG_ZONE_DEVICE
	case ZONE_DEVICE:
		return MEGA_ZONE_DEVICE;
#endif
	default:
		return MEGA_ZONE_NONE;
	}
}

static u8 mega_type_of(unsigned long pfn)
{
	switch (mega_block_type(pfn)) {
	case MIGRATE_UNMOVABLE:
		return MEGA_TYPE_UNMOVABLE;
	case MIGRATE_MOVABLE:
		return MEGA_TYPE_MOVABLE;
	case MIGRATE_RECLAIMABLE:
		return MEGA_TYPE_RECLAIMABLE;
	case MIGRATE_HIGHATOMIC:
		return MEGA_TYPE_ATOMIC;
#ifdef CONFIG_CMA
	case MIGRATE_CMA:
		return MEGA_TYPE_CMA;
#endif
	case MIGRATE_ISOLATE:
		return MEGA_TYPE_ISOLATED;
	default:
		return MEGA_TYPE_UNKNOWN;
	}
}

#define MEGA_FLAG(name) BIT(PG_##name)
/* 1 GB pages are the largest folios. */
#define MEGA_FOLIO_ORDER_MAX (PUD_SHIFT - PAGE_SHIFT)

/*
 * Held by more than maps it and the page or swap cache: by DMA, a pipe; or for
 * an instant by anybody. Of large folios before 6.10 only DMA is told.
 */
static bool mega_looks_pinned(struct folio *folio, unsigned long flags, unsigned int order)
{
	int expected = mega_mapcount(folio, flags & MEGA_FLAG(head));

	if (flags & MEGA_FLAG(head) && mega_large_pins(folio) > 0)
		return true;
	if (expected < 0)
		return false;
	if (folio_test_anon(folio) ?
	    (flags & MEGA_FLAG(swapcache) && flags & MEGA_FLAG(swapbacked)) :
	    !!READ_ONCE(folio->mapping))
		expected += 1 << order;
	if (flags & MEGA_FLAG(private))
		expected++;
	return folio_ref_count(folio) > expected;
}

/* One folio, of which @pages are inside the block. */
static void mega_look_at_folio(struct folio *folio, unsigned long flags, unsigned int order,
			       unsigned long pages, struct mega_block *out)
{
	int mapcount = mega_mapcount(folio, flags & MEGA_FLAG(head));

	if (order >= HPAGE_PMD_ORDER) {
		out->huge += pages;
		/* Not told before 6.10, but rarely not so. */
		if (mapcount)
			out->mapped += pages;
		if (mega_looks_pinned(folio, flags, order))
			out->pinned += pages;
		if (order == HPAGE_PMD_ORDER && pages == MEGA_BLOCK_PAGES)
			out->flags |= MEGA_BLOCK_HEAD;
		return;
	}
	if (flags & MEGA_FLAG(lru)) {
		out->movable += pages;
		if (mega_looks_pinned(folio, flags, order))
			out->pinned += pages;
	} else if (mega_page_movable_ops(folio_page(folio, 0))) {
		out->movable += pages;
		return;
	} else if (flags & MEGA_FLAG(swapbacked) && (mapcount > 0 || folio_test_anon(folio))) {
		/* A process's, yet on no list: on its way to one, or off it for a moment. */
		out->movable += pages;
		out->batched += pages;
	} else {
		out->unmovable += pages;
		return;
	}
	if (mapcount)
		out->mapped += pages;
}

/* The page at @pfn; returns how many pages its answer is for, @left at most. */
static unsigned long mega_look_at_page(unsigned long pfn, unsigned long left,
				       struct mega_block *out)
{
	struct page *page = pfn_to_page(pfn);
	unsigned int order = 0;
	unsigned long flags, pages = 1;
	struct folio *folio;

	if (PageBuddy(page)) {
		unsigned long chunk = READ_ONCE(page->private);

		/* Taken meanwhile: whatever it says now is no order. */
		if (chunk > MEGA_ORDER_MAX)
			chunk = 0;
		pages = min(1UL << chunk, left);
		out->free += pages;
		if (pages == MEGA_BLOCK_PAGES)
			out->flags |= MEGA_BLOCK_WHOLE;
		return pages;
	}
	flags = mega_flags(page);
	if (PageHWPoison(page)) {
		out->poisoned++;
		return 1;
	}
	if (flags & MEGA_FLAG(reserved)) {
		out->unmovable++;
		return 1;
	}
	folio = page_folio(page);
	flags = mega_flags(folio_page(folio, 0));
	if (flags & MEGA_FLAG(head)) {
		unsigned long at = pfn - folio_pfn(folio);

		order = mega_large_order(folio);
		if (order <= MEGA_FOLIO_ORDER_MAX && at < 1UL << order)
			pages = min((1UL << order) - at, left);
		else
			order = 0;
	}
	/* Huge pages without a user are hugetlb's own stock. */
	if (!folio_ref_count(folio) && order < HPAGE_PMD_ORDER)
		out->listed += pages;
	else
		mega_look_at_folio(folio, flags, order, pages, out);
	return pages;
}

void mega_look(u64 block, struct mega_block *out)
{
	unsigned long first = block * MEGA_BLOCK_PAGES, n;
	struct page *page, *last;

	memset(out, 0, sizeof(*out));
	/* A section is online as a whole, and a block is inside one. */
	page = pfn_to_online_page(first);
	last = pfn_to_online_page(first + MEGA_BLOCK_PAGES - 1);
	if (!page || !last || mega_memory_leaves(first, MEGA_BLOCK_PAGES)) {
		out->absent = MEGA_BLOCK_PAGES;
		out->flags = MEGA_BLOCK_HOLE;
		return;
	}
	out->zone = mega_zone_of(page_zone(page));
	out->node = page_to_nid(page);
	out->type = mega_type_of(first);
	if (page_zone(page) != page_zone(last))
		out->flags |= MEGA_BLOCK_TWO_ZONES;
	/* The first page of a larger free chunk may be in the block before. */
	if (!PageBuddy(page) && MEGA_ORDER_MAX > pageblock_order) {
		unsigned int order;

		for (order = pageblock_order + 1; order <= MEGA_ORDER_MAX; order++) {
			unsigned long head = first & ~((1UL << order) - 1);
			struct page *chunk = pfn_to_online_page(head);

			if (chunk && PageBuddy(chunk) &&
			    READ_ONCE(chunk->private) == order) {
				out->free = MEGA_BLOCK_PAGES;
				out->flags |= MEGA_BLOCK_WHOLE;
				return;
			}
		}
	}
	for (n = 0; n < MEGA_BLOCK_PAGES;)
		n += mega_look_at_page(first + n, MEGA_BLOCK_PAGES - n, out);
}

static int mega_blocks_some(u64 first, u32 count, struct mega_block *out)
{
	int error;
	u32 n;

	error = mega_memory_lock();
	if (error)
		return error;
	for (n = 0; n < count; n++)
		mega_look(first + n, &out[n]);
	mega_memory_unlock();
	return 0;
}

long mega_blocks(void __user *argument)
{
	u64 began = ktime_get_ns(), end = mega_blocks_end();
	struct mega_block __user *list;
	struct mega_blocks request;
	struct mega_block *batch;
	long error = 0;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (request.version != MEGA_UAPI_VERSION)
		return -EPROTO;
	if (request.flags || request.reserved[0] || request.reserved[1])
		return -EINVAL;
	if (request.count > MEGA_BLOCKS_MAX)
		return -E2BIG;
	list = u64_to_user_ptr(request.list);
	if (!access_ok(list, (size_t)request.count * sizeof(*list)))
		return -EFAULT;
	batch = kmalloc_array(MEGA_BATCH, sizeof(*batch), GFP_KERNEL);
	if (!batch)
		return -ENOMEM;
	for (request.done = 0; request.done < request.count;) {
		u64 at = request.first + request.done;
		u32 some = min_t(u32, request.count - request.done, MEGA_BATCH);

		if (at >= end || at < request.first)
			break;
		some = min_t(u64, some, end - at);
		error = signal_pending(current) ? -EINTR : mega_blocks_some(at, some, batch);
		if (error)
			break;
		if (copy_to_user(list + request.done, batch, some * sizeof(*batch))) {
			error = -EFAULT;
			break;
		}
		request.done += some;
		cond_resched();
	}
	kfree(batch);
	if (error == -EINTR && request.done)
		error = 0;
	request.took_ns = ktime_get_ns() - began;
	if (!error && copy_to_user(argument, &request, sizeof(request)))
		error = -EFAULT;
	return error;
}
