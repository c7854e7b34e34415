/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of mega.ko share. */
#ifndef MEGA_H
#define MEGA_H

#include <linux/ktime.h>
#include <linux/types.h>

#include "compat.h"
#include "uapi/mega.h"

#define MEGA_BLOCK_PAGES (1UL << 9)
#define MEGA_BLOCK_BYTES (MEGA_BLOCK_PAGES << PAGE_SHIFT)

#define MEGA_COMPACT_MAX (1U << 20)
#define MEGA_BLOCKS_MAX (1U << 22)
#define MEGA_AGE_MAX (1U << 20)
#define MEGA_PROBE_MAX (1U << 22)
#define MEGA_BUDGET_MAX_NS (60ULL * NSEC_PER_SEC)

/* One file each: copies the request in, checks it, does it, copies it out.
 * Process context, may sleep, no lock held.
 */
long mega_compact(void __user *argument);
long mega_blocks(void __user *argument);
long mega_age(void __user *argument);
long mega_probe(void __user *argument);

/* Block numbers end here. */
u64 mega_blocks_end(void);

/*
 * Looks at a block. Takes no lock; the caller holds mega_memory_lock(), without
 * which the block's struct pages may go away. Writes all of @out.
 */
void mega_look(u64 block, struct mega_block *out);

/*
 * Keeps struct pages where they are: while it is held, memory that goes offline
 * waits. A mutex, outermost; the notifier below takes it under the kernel's
 * locks of memory hotplug, so none of those may be taken inside it.
 */
int mega_memory_lock(void); /* 0, or EINTR */
void mega_memory_unlock(void);
/* A part of this range is going offline: leave it alone. Under the lock. */
bool mega_memory_leaves(unsigned long pfn, unsigned long pages);
int mega_memory_init(void);
void mega_memory_exit(void);

static inline u32 mega_ns32(u64 ns)
{
	return ns < U32_MAX ? ns : U32_MAX;
}

#endif
