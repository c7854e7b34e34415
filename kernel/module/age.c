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
	bool cleared; /* something was, since the last flush */
	u32 n; /* regions filled in below */
	struct mega_region regions[MEGA_REGIONS];
	struct mega_region_map maps[MEGA_REGIONS];
};

static void mega_mark(u64 *map, unsigned int n)
{
	map[n / 64] |= 1ULL << (n % 64);
}

/* The folio behind an entry, whose table is locked; NULL where nobody keeps
 * track of accesses to it.
 */
static struct folio *mega_folio(unsigned long pfn)
{
	struct page *page;

	if (!pfn_valid(pfn))
		return NULL;
	page = pfn_to_page(pfn);
	if (PageReserved(page) || is_zone_device_page(page))
		return NULL;
	return page_folio(page);
}

/*
 * Handles an entry's accessed bit, and PG_young. Returns whether it was
 * accessed; sets @young where only PG_young says so. Under the table's lock.
 */
static bool mega_accessed(struct mega_walk *walk, unsigned long *entry, bool set, unsigned long pfn,
			  bool *young)
{
	const u32 both = MEGA_AGE_YOUNG | MEGA_AGE_TAKE;
	struct folio *folio = NULL;

	*young = false;
	if (MEGA_HAS_YOUNG && ((set && walk->flags & MEGA_AGE_CLEAR) ||
			       walk->flags & MEGA_AGE_YOUNG))
		folio = mega_folio(pfn);
	if (folio && walk->flags & MEGA_AGE_YOUNG && folio_test_young(folio)) {
		*young = !set;
		if (walk->flags & MEGA_AGE_CLEAR && (walk->flags & both) == both)
			folio_test_clear_young(folio);
	}
	if (set && walk->flags & MEGA_AGE_CLEAR &&
	    test_and_clear_bit(_PAGE_BIT_ACCESSED, entry)) {
		walk->cleared = true;
		if (folio && !(walk->flags & MEGA_AGE_TAKE))
			mega_keep_young(folio);
	}
	return set;
}

static void mega_table(struct mega_walk *walk, pte_t *table, struct mega_region *region,
		       struct mega_region_map *map)
{
	unsigned int n;
	bool young;

	for (n = 0; n < PTRS_PER_PTE; n++) {
		pte_t pte = READ_ONCE(table[n]);
		bool accessed, zero;

		if (pte_none(pte))
			continue;
		if (!pte_present(pte)) {
			region->swapped++;
			continue;
		}
		zero = is_zero_pfn(pte_pfn(pte));
		region->mapped++;
		region->zero += zero;
		region->dirty += !!pte_dirty(pte);
		region->write_protected += !(pte_flags(pte) & _PAGE_RW);
		/* Special: no struct page, or none that counts. */
		accessed = mega_accessed(walk, (unsigned long *)&table[n].pte, pte_young(pte),
					 pte_special(pte) ? ULONG_MAX : pte_pfn(pte), &young);
		region->accessed += accessed;
		region->young += young;
		if (!map)
			continue;
		mega_mark(map->mapped, n);
		if (accessed || young)
			mega_mark(map->accessed, n);
		if (pte_dirty(pte))
			mega_mark(map->dirty, n);
		if (zero)
			mega_mark(map->zero, n);
	}
}

static void mega_huge(struct mega_walk *walk, pmd_t *entry, struct mega_region *region,
		      struct mega_region_map *map)
{
	struct page *page = pmd_page(*entry);
	bool accessed, zero, young;
	pmd_t pmd = *entry;

	/* huge_zero_page is not exported: it is the one without owner. */
	zero = !READ_ONCE(page->mapping);
	accessed = mega_accessed(walk, (unsigned long *)&entry->pmd, pmd_young(pmd),
				 zero ? ULONG_MAX : pmd_pfn(pmd), &young);
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
	if (!request->count || request->start >= request->end || request->end > TASK_SIZE_MAX ||
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
	if (walk->cleared && request.flags & MEGA_AGE_FLUSH)
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
