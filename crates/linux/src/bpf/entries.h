// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Entries of page tables, the maps that a scan works in, and what struct page says. */
#ifndef MEGA_ENTRIES_H
#define MEGA_ENTRIES_H

#include "types.h"
#include "intf.h"

#define P 0x1UL
#define RW 0x2UL
#define A 0x20UL
#define D 0x40UL
#define PSE 0x80UL
#define PROTNONE 0x100UL
#define SPECIAL 0x200UL
/* From 6.6 a write-protected entry keeps D here: RW clear with D set is a shadow stack. */
#define SAVED_DIRTY_AT 58

#define REGION_SIZE (1UL << 21)
#define GB_SHIFT 30
#define STEPS_MAX 8192

/*
 * Lanes: the bits {0,1,5,6} times 1 + 2^9 + 2^26 + 2^36 make 16 different
 * powers of two, so nothing carries; four of them are kept, 13 bits apart or
 * more: P at 0, A at 14, RW at 27, D at 42; 53 and up are free for the swapped.
 */
#define LANE_BITS (P | RW | A | D)
#define LANE_SPREAD (1UL | 1UL << 9 | 1UL << 26 | 1UL << 36)
#define LANE_KEEP (1UL | 1UL << 14 | 1UL << 27 | 1UL << 42)
#define LANES(v) ((((v) & LANE_BITS) * LANE_SPREAD) & LANE_KEEP)
#define LANE_P(s) ((s) & 0x1fff)
#define LANE_A(s) (((s) >> 14) & 0x1fff)
#define LANE_RW(s) (((s) >> 27) & 0x1fff)
#define LANE_D(s) (((s) >> 42) & 0x7ff)
#define LANE_SWAPPED_AT 53
#define LANE_SWAPPED(s) ((s) >> LANE_SWAPPED_AT)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mega_shared);
} mega_shared SEC(".maps");

enum gb_state { GB_NONE, GB_TABLE, GB_LEAF };

struct cursor {
	__u64 at, end;	 /* what is left of the current range */
	__u64 gb;	 /* the gigabyte whose PMD table is in scratch; ~0: none */
	__u64 pmd_table; /* kernel address of it, or the PUD leaf */
	__u64 skip;	 /* GB_NONE: nothing is mapped within this aligned size */
	__u64 retried;	 /* the last region that changed under us */
	__u64 pgd;
	__u32 state;
	__u32 range;	 /* the next range to take */
	__u32 out;
	__u32 tables;
	__u32 young;
	__u32 complete;
};

struct content {
	__u64 base; /* kernel address of the huge page */
	__u32 zero;
	__u32 checked;
	__u64 heads; /* only the first line of each base page */
};

/*
 * Used by one read at a time (the map is private to one scanner). State that
 * bpf_loop callbacks change is here and not on the stack: what is read from a
 * map is unknown to the verifier, so its walk through the loop converges.
 */
struct scratch {
	__u64 pte[512];
	__u64 pmd[512];
	struct cursor c;
	struct content k;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} mega_scratch SEC(".maps");

static __always_inline struct mega_shared *shared(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&mega_shared, &zero);
}

static __always_inline struct scratch *scratch(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&mega_scratch, &zero);
}

static __always_inline __u64 word(__u64 address)
{
	__u64 v = 0;

	if (bpf_probe_read_kernel(&v, sizeof(v), (void *)address))
		return 0;
	return v;
}

/* ---- struct page ---------------------------------------------------- */

static __always_inline __u64 page_of(struct mega_shared *s, __u64 entry)
{
	return s->machine.vmemmap +
	       ((entry & s->machine.frame_mask) >> 12) *
		       bpf_core_type_size(struct page);
}

static __always_inline __u32 young_bit(void)
{
	if (bpf_core_enum_value_exists(enum pageflags, PG_young))
		return bpf_core_enum_value(enum pageflags, PG_young);
	return 64;
}

/* The page's folio's PG_young: a large folio has one bit for all its pages. */
static __always_inline __u64 page_young(__u64 page, __u32 bit)
{
	__u64 head, flags;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		/*
		 * Plain loads of a page's first two words, flags and
		 * compound_head. As struct page the verifier would take the
		 * second one for a pointer; this type has two numbers there.
		 */
		struct timespec64 *w = bpf_rdonly_cast((void *)page,
				bpf_core_type_id_kernel(struct timespec64));

		flags = w->tv_sec;
		head = w->tv_nsec;
		if (head & 1)
			flags = word(head - 1);
	} else {
		__u64 w[2] = {};

		if (bpf_probe_read_kernel(w, sizeof(w), (void *)page))
			return 0;
		flags = w[0];
		head = w[1];
		if (head & 1)
			flags = word(head - 1);
	}
	return (flags >> (bit & 63)) & 1;
}

/* Mapped more than once? Best effort: the kernel's own counts, unlocked. */
static __always_inline bool page_shared(__u64 page)
{
	__s32 count = -1;

	if (!bpf_core_field_exists(((struct page *)0)->_mapcount))
		return false;
	bpf_probe_read_kernel(&count, sizeof(count),
		(void *)(page + bpf_core_field_offset(((struct page *)0)->_mapcount)));
	/* Large values are page types, which user pages do not have. */
	return count >= 1 && count < 1 << 20;
}

static __always_inline bool huge_shared(__u64 page)
{
	__s32 count = -1;
	__u64 at;

	if (bpf_core_field_exists(((struct folio *)0)->_entire_mapcount))
		at = page + bpf_core_field_offset(((struct folio *)0)->_entire_mapcount);
	else if (bpf_core_field_exists(((struct page *)0)->compound_mapcount))
		at = page + bpf_core_type_size(struct page) +
		     bpf_core_field_offset(((struct page *)0)->compound_mapcount);
	else
		return false;
	bpf_probe_read_kernel(&count, sizeof(count), (void *)at);
	return count >= 1 && count < 1 << 20;
}

#endif
