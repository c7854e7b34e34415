// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Passes over the 512 entries of the table in scratch. */
#ifndef MEGA_PASSES_H
#define MEGA_PASSES_H

#include "entries.h"

/*
 * The passes over the 512 entries in scratch. Each is a global function, which
 * the verifier checks once on its own; inlined, every way to get to it times
 * every way through it would be followed.
 */
#define PASS __attribute__((noinline))

PASS __u64 mega_sum(void)
{
	struct scratch *t = scratch();
	__u64 sum = 0;

	if (!t)
		return 0;
#pragma clang loop unroll_count(16)
	for (int i = 0; i < 512; i++) {
		__u64 v = t->pte[i];

		sum += LANES(v);
	}
	return sum;
}

/* Are there entries that are neither none nor present in the ordinary way? */
PASS __u64 mega_any_odd(void)
{
	struct scratch *t = scratch();
	__u64 odd = 0;

	if (!t)
		return 0;
#pragma clang loop unroll_count(16)
	for (int i = 0; i < 512; i++) {
		__u64 v = t->pte[i];

		odd |= v & ((v & P) - 1);
	}
	return odd;
}

/*
 * The rarer passes go in eight parts of 64 entries, each part a global function
 * again: the verifier then follows 64 turns of a loop and not 512, which took
 * most of the time in which all this is loaded.
 */
#define PARTS 8
#define PART (512 / PARTS)

#define SUM_OF_PARTS(name, of_part)                     \
	PASS __u64 name(void)                           \
	{                                               \
		__u64 sum = 0;                          \
							\
		for (int part = 0; part < PARTS; part++) \
			sum += of_part(part);           \
		return sum;                             \
	}

static __always_inline const __u64 *part_of(struct scratch *t, __u32 part)
{
	return &t->pte[(part & (PARTS - 1)) * PART];
}

/* The sum where there are such, with the count of swapped ones in a lane. */
PASS __u64 mega_sum_odd_part(__u32 part)
{
	struct scratch *t = scratch();
	const __u64 *entries;
	__u64 sum = 0;

	if (!t)
		return 0;
	entries = part_of(t, part);
	for (int i = 0; i < PART; i++) {
		__u64 v = entries[i];
		__u64 present = (v | v >> 8) & 1; /* P or PROTNONE */
		__u64 minus = -v;

		sum += LANES((v | P) & -present);
		/* A branch here would double the verifier's states. */
		asm volatile("" : "+r"(minus));
		v = (v | minus) >> 63;
		sum += (v & (present ^ 1)) << LANE_SWAPPED_AT;
	}
	return sum;
}

SUM_OF_PARTS(mega_sum_odd, mega_sum_odd_part)

/* What only write-protected entries can be: the zero page, or saved dirty (times 2^16). */
PASS __u64 mega_protected_part(__u32 part)
{
	struct mega_shared *s = shared();
	struct scratch *t = scratch();
	const __u64 *entries;
	__u64 n = 0, mask, zero;

	if (!s || !t)
		return 0;
	mask = s->machine.frame_mask | P;
	zero = s->machine.zero_entry | P;
	entries = part_of(t, part);
	for (int i = 0; i < PART; i++) {
		__u64 v = entries[i];
		__u64 differs = (v & mask) ^ zero;

		n += ((v | v >> 8) & ~(v >> 1) & v >> SAVED_DIRTY_AT & 1) << 16;
		asm volatile("" : "+r"(differs));
		n += (differs - 1) >> 63; /* the top bit is not in the mask */
	}
	return n;
}

SUM_OF_PARTS(mega_protected_pages, mega_protected_part)

/* PG_young of the page that an entry maps, if the entry is present and not accessed. */
static __always_inline __u64 entry_young(struct mega_shared *s, __u64 v)
{
	if ((v & (P | A | SPECIAL)) != P)
		return 0;
	return page_young(page_of(s, v), young_bit());
}

/* The same of the entry `i` of the table in scratch. */
PASS __u64 mega_young_at(__u32 i)
{
	struct mega_shared *s = shared();
	struct scratch *t = scratch();

	return s && t ? entry_young(s, t->pte[i & 511]) : 0;
}

/* How many of the present, not accessed pages have PG_young set. */
PASS __u64 mega_young_part(__u32 part)
{
	struct mega_shared *s = shared();
	struct scratch *t = scratch();
	const __u64 *entries;
	__u64 n = 0;

	if (!s || !t)
		return 0;
	entries = part_of(t, part);
	for (int i = 0; i < PART; i++)
		n += entry_young(s, entries[i]);
	return n;
}

SUM_OF_PARTS(mega_young_pages, mega_young_part)

/* The first write-protected ordinary entry; 0 for none. */
PASS __u64 mega_protected_entry(__u32 part)
{
	struct scratch *t = scratch();
	const __u64 *entries;

	if (!t)
		return 0;
	entries = part_of(t, part);
	for (int i = 0; i < PART; i++) {
		__u64 v = entries[i];

		if ((v & (P | RW | SPECIAL)) == P)
			return v;
	}
	return 0;
}

/* Is the first write-protected ordinary page mapped by others too? */
PASS __u64 mega_sample_shared(void)
{
	struct mega_shared *s = shared();
	__u64 found = 0;

	for (int part = 0; part < PARTS && !found; part++)
		found = mega_protected_entry(part);
	return s && found && page_shared(page_of(s, found));
}

/* All bits of the 4096 bytes in scratch. */
PASS __u64 mega_any_bits(void)
{
	struct scratch *t = scratch();
	__u64 any = 0;

	if (!t)
		return 1;
#pragma clang loop unroll_count(16)
	for (int i = 0; i < 512; i++)
		any |= t->pte[i];
	return any;
}

#endif
