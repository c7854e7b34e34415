// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and clears the accessed bits of a range of a process in one pass.
 *
 * The kernel's page table walker, its clearing functions and its ranged TLB
 * flush are not exported, so the tables are walked here, by the rules of
 * mm/pgtable-generic.c:
 *
 * - The address space's lock is held for reading: tables above the last level
 *   stay, and regions that have a mapping keep their last-level table, or have
 *   it taken away under its lock and freed after an RCU grace period (from 6.5
 *   on, page cache).
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
 * Locks: mmap_lock (read), for MEGA_STEPS steps at most; inside it RCU and one
 * table lock at a time. Answers are copied out with none held.
 */
#include <linux/hugetlb_inline.h>
#include <linux/mmap_lock.h>
#include <linux/pgtable.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "mega.h"

/* Regions per hold of the address space's lock. */
#define MEGA_REGIONS 32
/* Entries looked at per hold that led to nothing. */
#define MEGA_STEPS 4096
/* A table that changes under us so often is left. */
#define MEGA_TRIES 3

struct mega_walk {
	struct mm_struct *mm;
	u32 flags;
	bool want_maps;
	bool cleared; /* if clearing: some bits were */
	u32 n; /* regions filled in below */
	struct mega_region regions[MEGA_REGIONS];
	struct mega_region_map maps[MEGA_REGIONS];
};

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

/* One try at a region. Returns false when its entry changed between two looks. */
static bool mega_region_once(struct mega_walk *walk, pmd_t *entry, struct mega_region *region,
			     struct mega_region_map *map)
{
	pmd_t pmd = READ_ONCE(*entry);
	spinlock_t *lock;
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
		if (same && pmd_trans_huge(*entry) && !mega_pmd_device(*entry)) {
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
	rcu_read_lock();
	lock = pte_lockptr(walk->mm, &pmd);
	spin_lock(lock);
	same = pmd_same(pmd, READ_ONCE(*entry));
	if (same)
		mega_table(walk, pte_offset_kernel(&pmd, 0), region, map);
	spin_unlock(lock);
	rcu_read_unlock();
	return same;
}

/* The answer for the region at @address, whose entry is @entry. */
static void mega_region(struct mega_walk *walk, unsigned long address, pmd_t *entry)
{
	struct mega_region_map *map = walk->want_maps ? &walk->maps[walk->n] : NULL;
	struct mega_region *region = &walk->regions[walk->n];
	int tries;

	memset(region, 0, sizeof(*region));
	region->address = address;
	if (map)
		memset(map, 0, sizeof(*map));
	for (tries = 0; tries < MEGA_TRIES; tries++) {
		if (mega_region_once(walk, entry, region, map)) {
			/* Gone, or an empty table: nothing to tell. */
			if (region->mapped || region->swapped)
				walk->n++;
			return;
		}
	}
	region->flags = MEGA_REGION_RACED;
	walk->n++;
}

/* A region that is told by one flag. */
static void mega_flagged(struct mega_walk *walk, unsigned long address, u16 flag)
{
	struct mega_region *region = &walk->regions[walk->n];

	memset(region, 0, sizeof(*region));
	memset(&walk->maps[walk->n], 0, sizeof(walk->maps[walk->n]));
	region->address = address;
	region->mapped = PTRS_PER_PTE;
	region->flags = flag;
	walk->n++;
}

/* Looks at the entries that lead to @address. Returns where to go on. */
static unsigned long mega_descend(struct mega_walk *walk, unsigned long address, unsigned long end)
{
	pgd_t *pgd = pgd_offset(walk->mm, address);
	p4d_t *p4d;
	pud_t *pud;
	pud_t value;

	if (pgd_none(*pgd) || unlikely(pgd_bad(*pgd)))
		return pgd_addr_end(address, end);
	p4d = p4d_offset(pgd, address);
	if (p4d_none(*p4d) || unlikely(p4d_bad(*p4d)))
		return p4d_addr_end(address, end);
	pud = pud_offset(p4d, address);
	value = READ_ONCE(*pud);
	if (pud_none(value) || !pud_present(value))
		return pud_addr_end(address, end);
	if (pud_leaf(value)) {
		mega_flagged(walk, address, MEGA_REGION_GIGANTIC);
		return address + PMD_SIZE;
	}
	if (unlikely(pud_bad(value)))
		return pud_addr_end(address, end);
	mega_region(walk, address, pmd_offset(pud, address));
	return address + PMD_SIZE;
}

/* Goes on from @address, under the address space's lock. Returns where it came to. */
static unsigned long mega_some(struct mega_walk *walk, unsigned long address, unsigned long end,
			       u32 room)
{
	struct vm_area_struct *vma = NULL;
	int steps;

	for (steps = 0; steps < MEGA_STEPS && address < end && walk->n < room; steps++) {
		if (!vma || vma->vm_end <= address) {
			vma = find_vma(walk->mm, address);
			if (!vma)
				return end;
		}
		if (vma->vm_start >= address + PMD_SIZE) {
			address = min(vma->vm_start & PMD_MASK, end);
		} else if (is_vm_hugetlb_page(vma)) {
			/* Its tables have other locks, and may be shared. */
			mega_flagged(walk, address, MEGA_REGION_HUGETLB);
			address += PMD_SIZE;
		} else {
			address = mega_descend(walk, address, end);
		}
	}
	return min(address, end);
}

static int mega_copy_out(struct mega_walk *walk, const struct mega_age *request)
{
	struct mega_region_map __user *maps = u64_to_user_ptr(request->maps);
	struct mega_region __user *list = u64_to_user_ptr(request->list);

	if (copy_to_user(list + request->done, walk->regions, walk->n * sizeof(*list)))
		return -EFAULT;
	if (walk->want_maps &&
	    copy_to_user(maps + request->done, walk->maps, walk->n * sizeof(*maps)))
		return -EFAULT;
	return 0;
}

static int mega_walk(struct mega_walk *walk, struct mega_age *request)
{
	int error;

	while (request->next < request->end && request->done < request->count) {
		u64 began;

		if (signal_pending(current))
			return -EINTR;
		error = mmap_read_lock_killable(walk->mm);
		if (error)
			return error;
		began = ktime_get_ns();
		walk->n = 0;
		request->next = mega_some(walk, request->next, request->end,
					  min_t(u32, request->count - request->done, MEGA_REGIONS));
		mmap_read_unlock(walk->mm);
		request->lock_max_ns = max(request->lock_max_ns, ktime_get_ns() - began);
		error = mega_copy_out(walk, request);
		if (error)
			return error;
		request->done += walk->n;
		cond_resched();
	}
	return 0;
}

/* The address space of a pidfd's process, with a reference; else an error
 * pointer.
 */
static struct mm_struct *mega_mm(int pidfd)
{
	struct task_struct *task;
	struct mm_struct *mm;
	struct pid *pid;

	pid = mega_pidfd_pid(pidfd);
	if (IS_ERR(pid))
		return ERR_CAST(pid);
	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!task)
		return ERR_PTR(-ESRCH);
	mm = get_task_mm(task);
	put_task_struct(task);
	return mm ? mm : ERR_PTR(-ESRCH);
}

static int mega_age_check(const struct mega_age *request)
{
	if (request->version != MEGA_UAPI_VERSION)
		return -EPROTO;
	if (request->flags & ~(MEGA_AGE_CLEAR | MEGA_AGE_FLUSH | MEGA_AGE_YOUNG | MEGA_AGE_TAKE) ||
	    request->reserved[0] || request->reserved[1])
		return -EINVAL;
	if (!request->count || request->start >= request->end ||
	    request->end > round_up(TASK_SIZE_MAX, PMD_SIZE) ||
	    !IS_ALIGNED(request->start | request->end, PMD_SIZE))
		return -EINVAL;
	if (request->count > MEGA_AGE_MAX)
		return -E2BIG;
	if (!access_ok(u64_to_user_ptr(request->list),
		       (size_t)request->count * sizeof(struct mega_region)))
		return -EFAULT;
	if (request->maps && !access_ok(u64_to_user_ptr(request->maps),
					(size_t)request->count * sizeof(struct mega_region_map)))
		return -EFAULT;
	return 0;
}

long mega_age(void __user *argument)
{
	u64 began = ktime_get_ns();
	struct mega_age request;
	struct mega_walk *walk;
	struct mm_struct *mm;
	int error;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	error = mega_age_check(&request);
	if (error)
		return error;
	mm = mega_mm(request.pidfd);
	if (IS_ERR(mm))
		return PTR_ERR(mm);
	walk = kmalloc(sizeof(*walk), GFP_KERNEL);
	if (!walk) {
		mmput(mm);
		return -ENOMEM;
	}
	walk->mm = mm;
	walk->flags = request.flags;
	walk->want_maps = request.maps != 0;
	walk->cleared = false;
	request.next = request.start;
	request.done = 0;
	request.lock_max_ns = 0;
	request.found = mm_has_notifiers(mm) ? MEGA_AGE_SECONDARY : 0;
	error = mega_walk(walk, &request);
	/* Also when something went wrong: the bits are cleared. */
	if (walk->cleared && request.flags & MEGA_AGE_CLEAR && request.flags & MEGA_AGE_FLUSH)
		mega_flush_mm(mm);
	mmput(mm);
	kfree(walk);
	if (error == -EINTR && request.done)
		error = 0;
	request.took_ns = ktime_get_ns() - began;
	if (!error && copy_to_user(argument, &request, sizeof(request)))
		error = -EFAULT;
	return error;
}
