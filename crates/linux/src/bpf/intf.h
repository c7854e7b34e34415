/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The contract between scan.bpf.c and scan/intf.rs: one value, in one mmapable
 * array map. Userspace writes `machine` once and `request` before each read of
 * the iterator; the program writes `reply` and the results. Nothing else may
 * run in between, so there is no locking.
 *
 * Units are in the names. Addresses are virtual user addresses unless a name
 * says otherwise. Change both sides together.
 */
#ifndef MEGA_INTF_H
#define MEGA_INTF_H

#define MEGA_RANGES_MAX 512
#define MEGA_REGIONS_MAX 4096
#define MEGA_CONTENTS_MAX 64
#define MEGA_NEEDLE_WORDS 8

enum mega_mode {
	MEGA_SCAN = 1,	   /* ranges[] -> regions[] */
	MEGA_PAGE_MAP = 2, /* the region at `address` -> page_map */
	MEGA_CONTENTS = 3, /* the huge pages at ranges[].start -> contents[] */
	MEGA_PROBE = 4,	   /* the entry that maps `address` -> reply.entry */
	MEGA_FIND_PAGE = 5,   /* struct page of page 0 of file `fd` -> reply.found */
	MEGA_FIND_DIRECT = 6, /* direct map base by `needle` -> reply.found */
	MEGA_READ_WORD = 7,   /* kernel word at `address` -> reply.found */
};

enum mega_status {
	MEGA_NOT_RUN = 0, /* the task was not there */
	MEGA_OK = 1,
	MEGA_NO_MM = 2,	     /* the task has no address space (any more) */
	MEGA_MM_CHANGED = 3, /* exec or exit while it was read: discard */
	MEGA_NOT_FOUND = 4,
};

/* mega_region.flags */
#define MEGA_HUGE 1
#define MEGA_RACED 2
#define MEGA_SHARED 4
#define MEGA_GIGANTIC 8

/* mega_range.flags */
#define MEGA_YOUNG 1
#define MEGA_HEADS 2 /* MEGA_CONTENTS: only the first line of each base page */

struct mega_machine {
	__u64 direct_map;    /* kernel address of physical address 0 */
	__u64 vmemmap;	     /* kernel address of struct page 0; 0: not known */
	__u64 frame_mask;    /* bits of an entry that are the frame's address */
	__u64 zero_entry;    /* frame bits of the shared zero page; 1: not known */
	__u64 huge_zero_entry; /* the same for the huge zero page; 1: not known */
	__u32 levels;	     /* of page tables: 4 or 5 */
	__u32 pad;
};

struct mega_request {
	__u32 mode;
	__u32 nr_ranges;
	__u32 tables_max; /* PTE tables to read in this call, at most */
	__u32 fd;
	__u64 address;
	__u64 deadline_ns; /* MEGA_CONTENTS: start no region later than this */
	__u64 frame;	   /* MEGA_FIND_DIRECT: frame number of the needle */
	__u64 needle[MEGA_NEEDLE_WORDS];
};

struct mega_reply {
	__u32 status;
	__u32 nr_regions; /* or contents, or 1 GB steps tried */
	__u32 range;	  /* where the scan stopped: this range ... */
	__u32 complete;	  /* ... unless it got through all of them */
	__u64 next;	  /* ... at this address */
	__u64 entry;	  /* MEGA_PROBE: the leaf entry; 0: none */
	__u32 entry_shift; /* 12, 21 or 30 */
	__u32 page_size;  /* sizeof(struct page) */
	__u64 found;
	__u64 pgd;	  /* kernel address of the task's top table */
	__u32 young_bit;  /* PG_young; 64: this kernel has none */
	__u32 direct_loads; /* 1: struct page is read by plain loads */
};

struct mega_range {
	__u64 start;
	__u64 end;
	__u64 flags;
};

struct mega_region {
	__u64 address;
	__u16 mapped;
	__u16 accessed;
	__u16 dirty;
	__u16 zero;
	__u16 write_protected;
	__u16 swapped;
	__u16 flags;
	__u16 pad;
};

struct mega_page_map {
	__u64 mapped[8];
	__u64 accessed[8];
	__u64 dirty[8];
	__u64 zero[8];
	__u64 flags;
};

struct mega_contents {
	__u64 address;
	__u64 time_ns;
	__u16 zero;    /* base pages that are zero-filled */
	__u16 checked; /* base pages read: 512, or 0 where no huge page is mapped */
	__u16 flags;
	__u16 pad;
};

struct mega_shared {
	struct mega_machine machine;
	struct mega_request request;
	struct mega_reply reply;
	struct mega_page_map page_map;
	struct mega_range ranges[MEGA_RANGES_MAX];
	struct mega_contents contents[MEGA_CONTENTS_MAX];
	struct mega_region regions[MEGA_REGIONS_MAX];
};

/* One record per VMA on the iter/task_vma stream. */
enum mega_vma_kind {
	MEGA_VMA_ANONYMOUS = 0,
	MEGA_VMA_FILE = 1,
	MEGA_VMA_SHMEM = 2,
	MEGA_VMA_SPECIAL = 3, /* vdso and the like */
};

struct mega_vma {
	__u64 start;
	__u64 end;
	__u64 vm_flags;
	__u64 kind;
};

#endif
