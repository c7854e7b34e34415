// SPDX-License-Identifier: GPL-2.0
/*
 * Ageing one region: its last-level table, or its huge page.
 *
 * - A last-level table is looked at under its lock, and only if the entry that
 *   leads to it is still the same under the lock. A huge page is looked at under
 *   the lock of the table that it is in.
 * - The processor sets accessed and dirty bits at any time: bits are cleared by
 *   one locked instruction, as ptep_test_and_clear_young() does on x86.
 *
 * What else learns from accessed bits is told, as the kernel's page_idle and
 * DAMON tell each other: where a bit is cleared PG_young is set and PG_idle
 * cleared (where the kernel has them). Reclaim counts PG_young as an access.
 * No page is moved on the LRU lists, isolated or referenced.
 *
 * Locks: inside mmap_lock (read): RCU, one table lock.
 */
#include <linux/rcupdate.h>

#include "age.h"

/* A table that changes under us so often is left. */
#define MEGA_TRIES 3

static void mega_mark(u64 *map, unsigned int n)
{
	map[n / 64] |= 1ULL << (n % 64);
}

/* Clears an entry's accessed bit, which was seen set, and tells who else wants
 * to know (@folio, if somebody keeps track of it). Under the table's lock.
 */
static __always_inline void mega_clear(struct mega_walk *walk, unsigned long *entry,
				       struct folio *folio)
{
	/* Only the processor changes it meanwhile, and that sets it. */
	clear_bit(_PAGE_BIT_ACCESSED, entry);
	if (MEGA_HAS_YOUNG && folio && !(walk->flags & MEGA_AGE_TAKE))
		mega_keep_young(folio);
}

/* Whether only PG_young says that a page was accessed, which is taken back if
 * that was asked for. Under the table's lock.
 */
static bool mega_young(struct mega_walk *walk, bool accessed, struct folio *folio)
{
	const u32 taking = MEGA_AGE_CLEAR | MEGA_AGE_TAKE;

	if (!MEGA_HAS_YOUNG || !folio || !(walk->flags & MEGA_AGE_YOUNG) ||
	    !folio_test_young(folio))
		return false;
	if ((walk->flags & taking) == taking)
		folio_test_clear_young(folio);
	return !accessed;
}

/* The folio that a last-level entry maps, whose table is locked; NULL where it
 * maps none that anybody keeps track of. A special entry is the zero page or
 * has no struct page; every other one that is present has.
 */
static __always_inline struct folio *mega_pte_folio(pte_t pte)
{
	struct page *page;

	if (pte_special(pte))
		return NULL;
	page = pfn_to_page(pte_pfn(pte));
	return is_zone_device_page(page) ? NULL : page_folio(page);
}

/* Any entry. */
static void mega_entry(struct mega_walk *walk, pte_t *entry, unsigned int n,
		       struct mega_region *region, struct mega_region_map *map)
{
	pte_t pte = READ_ONCE(*entry);
	bool accessed, young, zero;
	struct folio *folio;

	if (pte_none(pte))
		return;
	if (!pte_present(pte)) {
		region->swapped++;
		return;
	}
	accessed = pte_young(pte);
	zero = pte_special(pte) && is_zero_pfn(pte_pfn(pte));
	folio = MEGA_HAS_YOUNG ? mega_pte_folio(pte) : NULL;
	young = mega_young(walk, accessed, folio);
	if (accessed && walk->flags & MEGA_AGE_CLEAR)
		mega_clear(walk, &entry->pte, folio);
	walk->cleared |= accessed;
	region->mapped++;
	region->accessed += accessed;
	region->young += young;
	region->zero += zero;
	region->dirty += !!pte_dirty(pte);
	region->write_protected += !(pte_flags(pte) & _PAGE_RW);
	if (!map)
		return;
	mega_mark(map->mapped, n);
	if (accessed || young)
		mega_mark(map->accessed, n);
	if (pte_dirty(pte))
		mega_mark(map->dirty, n);
	if (zero)
		mega_mark(map->zero, n);
}

/*
 * A last-level table. Nearly all of a program's memory is written anonymous
 * memory, whose entries are told by one comparison: those are counted here, and
 * this loop is most of what ageing costs. Under the table's lock.
 */
static void mega_table(struct mega_walk *walk, pte_t *table, struct mega_region *region,
		       struct mega_region_map *map)
{
	const pteval_t idle = _PAGE_PRESENT | _PAGE_RW | _PAGE_DIRTY;
	const pteval_t used = idle | _PAGE_ACCESSED;
	const pteval_t asked = used | _PAGE_SPECIAL;
	const bool clear = walk->flags & MEGA_AGE_CLEAR;
	unsigned int n, nr_idle = 0, nr_used = 0;

	if (map || walk->flags & MEGA_AGE_YOUNG) {
		for (n = 0; n < PTRS_PER_PTE; n++)
			mega_entry(walk, &table[n], n, region, map);
		return;
	}
#pragma GCC unroll 8
	for (n = 0; n < PTRS_PER_PTE; n++) {
		/* Flags only: the frame may be written in another way (Xen). */
		pteval_t flags = READ_ONCE(table[n].pte) & asked;

		if (flags == used) {
			nr_used++;
			if (clear)
				mega_clear(walk, &table[n].pte,
					   MEGA_HAS_YOUNG ? mega_pte_folio(table[n]) : NULL);
		} else if (flags == idle) {
			nr_idle++;
		} else {
			mega_entry(walk, &table[n], n, region, NULL);
		}
	}
	walk->cleared |= nr_used;
	region->mapped += nr_used + nr_idle;
	region->accessed += nr_used;
	region->dirty += nr_used + nr_idle;
}

static void mega_huge(struct mega_walk *walk, pmd_t *entry, struct mega_region *region,
		      struct mega_region_map *map)
{
	struct page *page = pmd_page(*entry);
	bool accessed, zero, young;
	struct folio *folio = NULL;
	pmd_t pmd = *entry;

	/* huge_zero_page is not exported: it is the one without owner. */
	zero = !READ_ONCE(page->mapping);
	if (!zero && !is_zone_device_page(page))
		folio = page_folio(page);
	accessed = pmd_young(pmd);
	young = mega_young(walk, accessed, folio);
	if (accessed && walk->flags & MEGA_AGE_CLEAR)
		mega_clear(walk, &entry->pmd, folio);
	walk->cleared |= accessed;
	region->flags |= MEGA_REGION_HUGE;
	region->mapped = PTRS_PER_PTE;
	region->accessed = accessed ? PTRS_PER_PTE : 0;
	region->young = young ? PTRS_PER_PTE : 0;
	region->zero = zero ? PTRS_PER_PTE : 0;
	region->dirty = pmd_dirty(pmd) ? PTRS_PER_PTE : 0;
	region->write_protected = pmd_flags(pmd) & _PAGE_RW ? 0 : PTRS_PER_PTE;
	if (!map)
		return;
	memset(map->mapped, 0xff, sizeof(map->mapped));
	if (accessed || young)
		memset(map->accessed, 0xff, sizeof(map->accessed));
	if (pmd_dirty(pmd))
		memset(map->dirty, 0xff, sizeof(map->dirty));
	if (zero)
		memset(map->zero, 0xff, sizeof(map->zero));
}

/* The region's entry. A last-level table may be taken away at any time, and is
 * freed a grace period later: whoever follows the entry to it reads the entry
 * within the same RCU section.
 */
static pmd_t mega_read_entry(pmd_t *entry)
{
	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "mega: an entry is read outside of RCU");
	return READ_ONCE(*entry);
}

/* A leaf that has a struct page for each of its base pages. A special one has
 * none, unless it is the huge zero page, which is what anonymous memory has.
 */
static bool mega_is_page(struct mega_walk *walk, pmd_t pmd)
{
	return pmd_trans_huge(pmd) && !mega_pmd_device(pmd) &&
	       (!mega_pmd_special(pmd) || walk->anonymous);
}

/* One try at a region, under RCU. Returns false when its entry changed between
 * two looks.
 */
static bool mega_region_once(struct mega_walk *walk, pmd_t *entry, struct mega_region *region,
			     struct mega_region_map *map)
{
	pmd_t pmd = mega_read_entry(entry);
	spinlock_t *lock; /* the table's */
	bool same;

	if (pmd_none(pmd))
		return true;
	if (!pmd_present(pmd)) {
		region->swapped = PTRS_PER_PTE;
		return true;
	}
	if (pmd_leaf(pmd)) {
		lock = pmd_lock(walk->mm, entry);
		same = pmd_val(READ_ONCE(*entry)) == pmd_val(pmd) ||
		       (pmd_present(*entry) && pmd_leaf(*entry));
		if (same && mega_is_page(walk, *entry)) {
			mega_huge(walk, entry, region, map);
		} else if (same) {
			region->flags |= MEGA_REGION_OTHER;
			region->mapped = PTRS_PER_PTE;
		}
		spin_unlock(lock);
		return same;
	}
	if (pmd_bad(pmd))
		return false;
	lock = pte_lockptr(walk->mm, &pmd);
	spin_lock(lock);
	same = pmd_same(pmd, READ_ONCE(*entry));
	if (same)
		mega_table(walk, pte_offset_kernel(&pmd, 0), region, map);
	spin_unlock(lock);
	return same;
}

void mega_region(struct mega_walk *walk, unsigned long address, pmd_t *entry)
{
	struct mega_region_map *map = walk->want_maps ? &walk->maps[walk->n] : NULL;
	struct mega_region *region = &walk->regions[walk->n];
	bool same = false;
	int tries;

	memset(region, 0, sizeof(*region));
	region->address = address;
	if (map)
		memset(map, 0, sizeof(*map));
	for (tries = 0; tries < MEGA_TRIES && !same; tries++) {
		rcu_read_lock();
		same = mega_region_once(walk, entry, region, map);
		rcu_read_unlock();
	}
	if (same) {
		/* Gone, or an empty table: nothing to tell. */
		if (region->mapped || region->swapped)
			walk->n++;
		return;
	}
	region->flags = MEGA_REGION_RACED;
	walk->n++;
}
