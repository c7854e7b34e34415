/* SPDX-License-Identifier: GPL-2.0 */
/* What age.c, which goes through an address space, and age_region.c, which looks
 * at one region of it, share.
 */
#ifndef MEGA_AGE_H
#define MEGA_AGE_H

#include <linux/mm_types.h>
#include <linux/pgtable.h>

#include "mega.h"

/* Regions per hold of the address space's lock. */
#define MEGA_REGIONS 32

struct mega_walk {
	struct mm_struct *mm;
	u32 flags;
	bool want_maps;
	bool cleared; /* if clearing: some bits were */
	bool anonymous; /* the mapping that is walked */
	u32 n; /* regions filled in below */
	struct mega_region regions[MEGA_REGIONS];
	struct mega_region_map maps[MEGA_REGIONS];
};

/*
 * Appends the answer for the region at @address, whose entry is @entry; nothing
 * where nothing is mapped. Under the address space's lock, with room for one.
 */
void mega_region(struct mega_walk *walk, unsigned long address, pmd_t *entry);

#endif
