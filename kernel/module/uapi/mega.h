/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * What /dev/mega understands: the contract between mega.ko and its callers.
 * crates/linux/src/module/uapi.rs is its Rust side; a test compares the two.
 *
 * Rules for every request
 * - The caller needs CAP_SYS_ADMIN in the first user namespace, at open and at
 *   each call: EPERM.
 * - @version is MEGA_UAPI_VERSION, else EPROTO. Unknown flags and reserved
 *   fields that are not 0: EINVAL. A pointer that cannot be read or written:
 *   EFAULT. A number of a request that does not exist: ENOTTY.
 * - A call can be interrupted by a signal. If it has done something by then it
 *   returns 0 and says how far it came; if not, EINTR.
 * - Nothing outlives the call: no memory is held, nothing is left locked.
 *
 * Words
 * - block: a 2 MB-aligned 2 MB of physical memory; its number is its address
 *   divided by 2 MB.
 * - region: a 2 MB-aligned 2 MB of one process's virtual memory.
 * - Counts are base pages unless a name says otherwise.
 *
 * All integers have the machine's byte order. No structure has holes, and 32-
 * and 64-bit callers see the same layout.
 */
#ifndef _UAPI_MEGA_H
#define _UAPI_MEGA_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define MEGA_UAPI_VERSION 1
#define MEGA_DEVICE "/dev/mega"

/* mega_info.abilities */
#define MEGA_CAN_COMPACT (1ULL << 0)
#define MEGA_CAN_BLOCKS (1ULL << 1)
#define MEGA_CAN_AGE (1ULL << 2)
#define MEGA_CAN_PROBE (1ULL << 3)
/* Pages have the flag PG_young, so clearing accessed bits hides nothing from
 * reclaim (CONFIG_PAGE_IDLE_FLAG).
 */
#define MEGA_CAN_YOUNG (1ULL << 4)

/* What the module is. All of it is written by the kernel. */
struct mega_info {
	__u32 version; /* MEGA_UAPI_VERSION */
	__u32 base_page_bytes;
	__u32 block_pages; /* base pages of a block or region: 512 */
	__u32 order_max; /* largest mega_probe.order */
	__u64 abilities; /* MEGA_CAN_* */
	__u64 blocks; /* block numbers end here */
	__u32 compact_max; /* largest mega_compact.count */
	__u32 blocks_max; /* largest mega_blocks.count */
	__u32 age_max; /* largest mega_age.count */
	__u32 probe_max; /* largest mega_probe.count */
	__u64 budget_max_ns; /* largest budget_ns of any request */
	__u64 reserved[2];
};

/* mega_compact.flags */
/* Also empty blocks that hold huge pages (THP or hugetlb): each of them takes
 * another free block to move to, or is split.
 */
#define MEGA_COMPACT_HUGE 1

/* mega_compact_block.outcome */
enum mega_outcome {
	MEGA_BLOCK_UNDONE = 0, /* not looked at: see mega_compact.done */
	MEGA_BLOCK_FREED = 1, /* emptied, and given back as a whole */
	MEGA_BLOCK_ALREADY = 2, /* was free already */
	MEGA_BLOCK_UNMOVABLE = 3, /* holds pages that cannot be moved */
	MEGA_BLOCK_PINNED = 4, /* holds movable pages that somebody holds on to */
	MEGA_BLOCK_BUSY = 5, /* tried, and not all could be moved */
	MEGA_BLOCK_ZONE = 6, /* in a zone that is left alone (DMA, device) */
	MEGA_BLOCK_TYPE = 7, /* CMA, an atomic reserve, or isolated by another */
	MEGA_BLOCK_HUGE = 8, /* holds huge pages, and MEGA_COMPACT_HUGE is not set */
	MEGA_BLOCK_POISONED = 9, /* holds pages with memory errors */
	MEGA_BLOCK_ABSENT = 10, /* no memory there, not all of it, or going offline */
	MEGA_BLOCK_NO_ROOM = 11, /* too little free memory to move its pages to */
	MEGA_BLOCK_BUDGET = 12, /* its turn did not come within the budget */
	MEGA_BLOCK_INTERRUPTED = 13, /* a signal came first */
};

struct mega_compact_block {
	__u64 block; /* in: its number */
	__u32 outcome; /* enum mega_outcome; this and all that follows: out */
	__u32 took_ns; /* all ones: 4.3 s or more */
	__u16 in_use; /* pages that had to be moved */
	__u16 moved; /* of them not there any more */
	__u16 pinned; /* pages that looked pinned at the last look */
	__u16 unmovable; /* at the last look */
};

/*
 * Empties chosen blocks, in the order given, until @budget_ns have passed. The
 * time is looked at before each block; one block takes milliseconds, longer
 * where pages are being written to disk. A budget of 0 does nothing but fill
 * in outcomes. One such call at a time works on a block; others wait.
 */
struct mega_compact {
	__u32 version;
	__u32 flags; /* MEGA_COMPACT_* */
	__u64 list; /* in and out: struct mega_compact_block[count] */
	__u32 count; /* above mega_info.compact_max: E2BIG */
	__u32 done; /* out: blocks with an outcome */
	__u64 budget_ns; /* above mega_info.budget_max_ns: EINVAL */
	__u64 took_ns; /* out, and all that follows */
	__u64 moved; /* pages */
	__u32 freed; /* blocks */
	__u32 tried; /* blocks of which pages were being moved, freed ones included */
	__u64 reserved[2];
};

/* mega_block.flags */
#define MEGA_BLOCK_HOLE 1 /* not all of it is memory that is online */
#define MEGA_BLOCK_HEAD 2 /* exactly one huge page fills it */
#define MEGA_BLOCK_WHOLE 4 /* it is, or is part of, one free chunk */
#define MEGA_BLOCK_TWO_ZONES 8

/* mega_block.zone */
enum mega_zone {
	MEGA_ZONE_NONE = 0,
	MEGA_ZONE_DMA = 1,
	MEGA_ZONE_DMA32 = 2,
	MEGA_ZONE_NORMAL = 3,
	MEGA_ZONE_MOVABLE = 4,
	MEGA_ZONE_DEVICE = 5,
};

/* mega_block.type */
enum mega_type {
	MEGA_TYPE_UNKNOWN = 0,
	MEGA_TYPE_UNMOVABLE = 1,
	MEGA_TYPE_MOVABLE = 2,
	MEGA_TYPE_RECLAIMABLE = 3,
	MEGA_TYPE_ATOMIC = 4,
	MEGA_TYPE_CMA = 5,
	MEGA_TYPE_ISOLATED = 6,
};

/*
 * A block as its struct pages show it, read without locks: each count is true
 * of some moment during the call, and they need not be of the same one. free +
 * listed + movable + unmovable + huge + poisoned + absent is 512.
 */
struct mega_block {
	__u16 free; /* with the buddy allocator */
	/* No user, and not with the buddy allocator: mostly on a processor's own list. */
	__u16 listed;
	__u16 movable; /* on an LRU list, on the way to one, or with a driver that can move it */
	__u16 unmovable; /* slab, page tables, reserved and all else */
	__u16 huge; /* in huge pages (THP of 2 MB, hugetlb and its free stock) */
	__u16 poisoned;
	__u16 absent;
	__u16 pinned; /* of the movable and huge: held by more than maps them */
	__u16 mapped; /* of the movable and huge: mapped by some process */
	__u16 batched; /* of the movable: on the way to an LRU list */
	__u8 zone; /* enum mega_zone */
	__u8 type; /* enum mega_type: what the allocator keeps the block for */
	__u16 node; /* NUMA node */
	__u32 flags; /* MEGA_BLOCK_* */
	__u32 reserved;
};

/* Reads blocks from number @first on. */
struct mega_blocks {
	__u32 version;
	__u32 flags; /* 0 */
	__u64 first;
	__u64 list; /* out: struct mega_block[count] */
	__u32 count; /* above mega_info.blocks_max: E2BIG */
	__u32 done; /* out: entries written; fewer than @count at the end of memory */
	__u64 took_ns; /* out */
	__u64 reserved[2];
};

/* mega_age.flags */
#define MEGA_AGE_CLEAR 1 /* clear accessed bits that are set */
/* Flush the TLBs after clearing, once, before the call returns: an access
 * after the call is seen by the next. Without it a page whose translation a
 * processor still has may be missed until that goes.
 */
#define MEGA_AGE_FLUSH 2
/* Also read PG_young, where others (DAMON, page_idle, this module) keep accessed bits that they
 * cleared: mega_region.young.
 */
#define MEGA_AGE_YOUNG 4
/* With CLEAR and YOUNG: clear PG_young, too. Reclaim then does not learn of those accesses. */
#define MEGA_AGE_TAKE 8

/* mega_age.found */
/* Something else than the processor's own tables maps the process's memory (a
 * virtual machine): what that accesses is not seen.
 */
#define MEGA_AGE_SECONDARY 1

/* mega_region.flags */
#define MEGA_REGION_HUGE 1
#define MEGA_REGION_RACED 2 /* its table changed at each try: counts are 0 */
#define MEGA_REGION_GIGANTIC 4 /* in a 1 GB page: looked at by no count but mapped */
#define MEGA_REGION_HUGETLB 8 /* likewise */
#define MEGA_REGION_OTHER 16 /* likewise: a leaf that is no huge page (device memory) */

/* A region with a table or a leaf. Regions without are left out. */
struct mega_region {
	__u64 address;
	__u16 mapped; /* present */
	__u16 accessed; /* accessed bit set, before it was cleared; a huge page: 512 */
	__u16 young; /* accessed bit not set, but PG_young */
	__u16 dirty;
	__u16 zero; /* the shared zero page */
	__u16 write_protected;
	__u16 swapped; /* neither none nor present */
	__u16 flags; /* MEGA_REGION_* */
};

/* The same page by page: bit n of word n / 64 is base page n of the region. */
struct mega_region_map {
	__u64 mapped[8];
	__u64 accessed[8]; /* or young */
	__u64 dirty[8];
	__u64 zero[8];
};

/*
 * Reads, and clears, the accessed bits of a range of a process. The table lock
 * is held for one region at a time, the address space's lock (for reading) for
 * a few dozen. Pages stay where they are on the LRU lists. Where a call ends
 * before @end it says where to go on (@next).
 */
struct mega_age {
	__u32 version;
	__u32 flags; /* MEGA_AGE_* */
	__s32 pidfd; /* of the process: EBADF, ESRCH when it has ended or is the kernel's */
	__u32 count; /* of @list; above mega_info.age_max: E2BIG; 0: EINVAL */
	__u64 start; /* multiples of 2 MB */
	__u64 end;
	__u64 list; /* out: struct mega_region[count] */
	__u64 maps; /* out: struct mega_region_map[count]; or 0 */
	__u64 next; /* out, and all that follows */
	__u32 done; /* regions written */
	__u32 found; /* MEGA_AGE_SECONDARY */
	__u64 took_ns;
	__u64 lock_max_ns; /* the longest that the address space's lock was held */
	__u64 reserved[2];
};

/* mega_probe.flags: how hard each allocation tries. Never more than a user's. */
#define MEGA_PROBE_RECLAIM 1 /* direct reclaim and compaction */
#define MEGA_PROBE_KSWAPD 2 /* wake the background threads */
#define MEGA_PROBE_RETRY 4 /* with RECLAIM: try harder, short of the OOM killer */
#define MEGA_PROBE_MOVABLE 8 /* from blocks for movable pages */
#define MEGA_PROBE_ZERO 16 /* zero-fill, as a fault does */

/* mega_probe.ended */
enum mega_probe_end {
	MEGA_PROBE_COUNT = 0, /* as many as asked */
	MEGA_PROBE_FAILED = 1, /* an allocation failed */
	MEGA_PROBE_FLOOR = 2, /* no more than floor_bytes would be left */
	MEGA_PROBE_BUDGET = 3,
	MEGA_PROBE_SIGNAL = 4,
};

/*
 * Allocates chunks of 2^order pages one after another and times each, then
 * frees all. The memory is the kernel's meanwhile and counts for no cgroup.
 */
struct mega_probe {
	__u32 version;
	__u32 flags; /* MEGA_PROBE_* */
	__u32 order; /* above mega_info.order_max: EINVAL */
	__u32 count; /* chunks at most; above mega_info.probe_max: E2BIG */
	__u64 times; /* out: __u32 ns[count]; all ones: 4.3 s or more */
	__u64 budget_ns;
	__u64 floor_bytes; /* available memory to leave; at least 64 MB are left */
	__s32 node; /* NUMA node, -1: any; one that is not there: EINVAL */
	__u32 done; /* out: chunks allocated, and times written */
	__u32 ended; /* out: enum mega_probe_end */
	__u32 failed_ns; /* out: how long the failed allocation took */
	__u64 took_ns; /* out: allocating, without freeing */
	__u64 reserved[2];
};

#define MEGA_IOC 0xE6
#define MEGA_IOC_INFO _IOR(MEGA_IOC, 0, struct mega_info)
#define MEGA_IOC_COMPACT _IOWR(MEGA_IOC, 1, struct mega_compact)
#define MEGA_IOC_BLOCKS _IOWR(MEGA_IOC, 2, struct mega_blocks)
#define MEGA_IOC_AGE _IOWR(MEGA_IOC, 3, struct mega_age)
#define MEGA_IOC_PROBE _IOWR(MEGA_IOC, 4, struct mega_probe)

#endif
