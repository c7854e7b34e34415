// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and clears the accessed bits of a range of a process in one pass.
 *
 * The kernel's page table walker, its clearing functions and its ranged TLB
 * flush are not exported, so the tables are walked here, by the rules of
 * mm/pgtable-generic.c: while the address space's lock is held for reading,
 * tables above the last level stay, and regions that have a mapping keep their
 * last-level table, or have it taken away under its lock and freed after an RCU
 * grace period (from 6.5 on, page cache). What is in a region: age_region.c.
 *
 * Locks: mmap_lock (read), for MEGA_STEPS steps at most; inside it those of one
 * region at a time. Answers are copied out with none held.
 */
#include <linux/hugetlb_inline.h>
#include <linux/mmap_lock.h>
#include <linux/pgtable.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "age.h"

/* Entries looked at per hold that led to nothing. */
#define MEGA_STEPS 4096

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
		} else if (vma->vm_flags & (VM_IO | VM_PFNMAP) &&
			   vma->vm_start <= address && vma->vm_end >= address + PMD_SIZE) {
			/* A device's memory: its entries have no struct page. */
			address = min(vma->vm_end & PMD_MASK, end);
		} else {
			walk->anonymous = vma_is_anonymous(vma);
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
