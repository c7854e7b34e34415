/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between kernels, 6.1 to 6.18, each with its reason; and what
 * the kernel keeps from modules, with the way that is used instead.
 *
 * Built and run on 6.1 and 6.12, which are the series that are admitted. The
 * cases for others are from their sources and have not been built.
 *
 * Nothing here looks up symbols that are not exported (kallsyms through a
 * kprobe): a processor with indirect branch tracking traps on a call to a
 * function whose address the kernel takes nowhere, because the kernel removes
 * the landing mark of such functions while it boots (CONFIG_X86_KERNEL_IBT,
 * on in Debian's 6.12).
 */
#ifndef MEGA_COMPAT_H
#define MEGA_COMPAT_H

#include <linux/version.h>

#ifndef CONFIG_X86_64
#error "mega.ko: x86-64 only: accessed bits are handled as that processor keeps them"
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "mega.ko: needs Linux 6.1 or later"
#endif
/* Of this series. */
#define MEGA_SERIES(minor) \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, (minor), 0) && \
	 LINUX_VERSION_CODE < KERNEL_VERSION(6, (minor) + 1, 0))
#if !MEGA_SERIES(1) && !MEGA_SERIES(12) && !defined(MEGA_UNTRIED_KERNEL)
/* To try it: ccflags-y := -DMEGA_UNTRIED_KERNEL in Kbuild. */
#error "mega.ko: tried on Linux 6.1 and 6.12 only (-DMEGA_UNTRIED_KERNEL tries it on another)"
#endif
#ifndef CONFIG_CONTIG_ALLOC
#error "mega.ko: needs a kernel with CONFIG_CONTIG_ALLOC (compaction and memory isolation)"
#endif
#ifndef CONFIG_TRANSPARENT_HUGEPAGE
#error "mega.ko: needs a kernel with CONFIG_TRANSPARENT_HUGEPAGE"
#endif
#ifndef CONFIG_SPARSEMEM_VMEMMAP
#error "mega.ko: needs a kernel with CONFIG_SPARSEMEM_VMEMMAP"
#endif

#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/mm_types.h>
#include <linux/mmu_notifier.h>
#include <linux/mmzone.h>
#include <linux/page-flags.h>
#include <linux/page_idle.h>
#include <linux/page_ref.h>
#include <linux/pagevec.h>
#include <linux/pid.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <asm/tlbflush.h>

/* The largest order of the allocator. 6.1: MAX_ORDER is one more than it; from
 * 6.4 MAX_ORDER is it; 6.8 renamed it.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
#define MEGA_ORDER_MAX MAX_PAGE_ORDER
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#define MEGA_ORDER_MAX MAX_ORDER
#else
#define MEGA_ORDER_MAX (MAX_ORDER - 1)
#endif

/* Takes every page of a range for us. 6.16 replaced the type that the block is
 * to have afterwards by flags; none of them: movable.
 */
static inline int mega_take_range(unsigned long start, unsigned long end)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
	return alloc_contig_range(start, end, ACR_FLAGS_NONE, GFP_KERNEL | __GFP_NOWARN);
#else
	return alloc_contig_range(start, end, MIGRATE_MOVABLE, GFP_KERNEL | __GFP_NOWARN);
#endif
}

/*
 * Gives a taken block back so that it is one free chunk at once.
 *
 * free_contig_range() frees page by page, and so onto this processor's own
 * list, which from 6.7 on may keep them for seconds: the block would be free
 * and of no use. Chunks of 2^8 pages are not kept on those lists (only orders
 * up to 3 and the huge page's own are), so it is freed in two such halves,
 * which the allocator joins. The pages were split when they were taken and have
 * a count of 1 each; in a chunk only the first has one. Somebody may hold a
 * page for an instant without having known whose it was (lockless lookups):
 * then page_ref_freeze() fails, and the block is given back page by page.
 *
 * With allocation profiling built in each page carries a tag that only freeing
 * it by itself takes off: page by page, too. Likewise after 6.18.
 */
static inline void mega_give_back(unsigned long pfn, unsigned long pages)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0) && !defined(CONFIG_MEM_ALLOC_PROFILING)
	const unsigned int order = pageblock_order - 1;
	const unsigned long half = 1UL << order;
	unsigned long n;

	for (n = 0; n < pages; n++) {
		if (n % half && !page_ref_freeze(pfn_to_page(pfn + n), 1))
			break;
	}
	if (n == pages) {
		for (n = 0; n < pages; n += half)
			__free_pages(pfn_to_page(pfn + n), order);
		return;
	}
	while (n--) {
		if (n % half)
			page_ref_unfreeze(pfn_to_page(pfn + n), 1);
	}
#endif
	free_contig_range(pfn, pages);
}

/* Puts the pages that wait on this processor's way to the LRU lists there.
 * lru_add_drain() is not exported; releasing an empty batch begins with it.
 * 6.5 renamed the batch.
 */
static inline int mega_drain_here(void *unused)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	struct folio_batch batch;

	folio_batch_init(&batch);
	__folio_batch_release(&batch);
#else
	struct pagevec batch;

	pagevec_init(&batch);
	__pagevec_release(&batch);
#endif
	return 0;
}

/* The type of a block's pages: get_pfnblock_flags_mask() is not exported, its
 * table is. -1: the section has none. From 6.18 on being isolated is a bit of
 * its own.
 */
static inline int mega_block_type(unsigned long pfn)
{
	struct mem_section *section = __pfn_to_section(pfn);
	unsigned long bit, word;
	unsigned long *flags;

	if (!section || !section->usage)
		return -1;
	flags = section_to_usemap(section);
	bit = ((pfn & (PAGES_PER_SECTION - 1)) >> pageblock_order) * NR_PAGEBLOCK_BITS;
	word = READ_ONCE(flags[bit / BITS_PER_LONG]) >> (bit % BITS_PER_LONG);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	if (word & BIT(PB_migrate_isolate))
		return MIGRATE_ISOLATE;
	return word & GENMASK(PB_migrate_2, PB_migrate_0);
#else
	return word & GENMASK(PB_migrate_end, PB_migrate);
#endif
}

/* A page of a driver that can move it (balloon, zsmalloc). 6.17 made it a page
 * type.
 */
static inline bool mega_page_movable_ops(struct page *page)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	return page_has_movable_ops(page);
#else
	return __PageMovable(page);
#endif
}

/*
 * Fields of a folio that may become another's at any moment. The kernel's own
 * readers assert, in debugging kernels, that it does not.
 */

/* 6.18 wrapped the flags of a page into a type of their own. */
static inline unsigned long mega_flags(const struct page *page)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return READ_ONCE(page->flags.f);
#else
	return READ_ONCE(page->flags);
#endif
}

/* The order of a large folio. 6.6 moved it into the second page's flags. */
static inline unsigned int mega_large_order(struct folio *folio)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
	return READ_ONCE(folio->_flags_1) & 0xff;
#else
	return READ_ONCE(folio->_folio_order);
#endif
}

/* How often a folio is mapped; below 0: not known. Large folios have one count
 * of it since 6.10.
 */
static inline int mega_mapcount(struct folio *folio, bool large)
{
	if (!large)
		return max(atomic_read(&folio->_mapcount) + 1, 0);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	return max(atomic_read(&folio->_large_mapcount) + 1, 0);
#else
	return -1;
#endif
}

/* How often a large folio is pinned for DMA. 6.2 made the field a name of its
 * own.
 */
static inline int mega_large_pins(struct folio *folio)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return atomic_read(&folio->_pincount);
#else
	return atomic_read(folio_pincount_ptr(folio));
#endif
}

/* A leaf that is device memory. 6.18 took the mark away: such leaves are
 * ordinary ones there.
 */
static inline bool mega_pmd_device(pmd_t pmd)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return false;
#else
	return pmd_devmap(pmd);
#endif
}

/* A leaf that is special: a device's memory without a struct page (6.12), or the
 * huge zero page, which has one (6.18). Earlier kernels do not set the bit.
 */
static inline bool mega_pmd_special(pmd_t pmd)
{
	return pmd_flags(pmd) & _PAGE_SPECIAL;
}

/* PG_young and PG_idle, as the kernel's own page_idle and DAMON use them: who
 * clears an accessed bit sets young, so that reclaim still learns of it, and
 * clears idle, so that they do.
 */
#ifdef CONFIG_PAGE_IDLE_FLAG
#define MEGA_HAS_YOUNG 1
#else
#define MEGA_HAS_YOUNG 0
#endif

static inline void mega_keep_young(struct folio *folio)
{
	if (!folio_test_young(folio))
		folio_set_young(folio);
	if (folio_test_idle(folio))
		folio_clear_idle(folio);
}

/*
 * Flushes all that any processor has cached of an address space.
 *
 * flush_tlb_mm_range() and its helpers are for the kernel itself. What they
 * rest on is not: the address space's generation is raised, so that a processor
 * that takes it up again later flushes by itself, and the processors that have
 * it now flush all they have. That is more than a range, and right in the same
 * way; hence once per call.
 *
 * From 6.15 on AMD processors that flush by broadcast may have entries of an
 * address space that they are not in: there every processor is asked.
 */
static inline void mega_flush_here(void *unused)
{
	__flush_tlb_all();
}

static inline void mega_flush_mm(struct mm_struct *mm)
{
	atomic64_inc(&mm->context.tlb_gen);
	/* The generation is there before the set of processors is read. */
	smp_mb__after_atomic();
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	on_each_cpu(mega_flush_here, NULL, true);
#else
	on_each_cpu_mask(mm_cpumask(mm), mega_flush_here, NULL, true);
#endif
}

/*
 * The process that a pidfd is of, with a reference; else an error pointer.
 *
 * The kernel's own function for it is not exported. Until 6.8, and where 6.9
 * was built without pidfs, a pidfd is an anonymous inode's file of that name;
 * since then a file of pidfs.
 */
static inline struct pid *mega_pidfd_pid(int fd)
{
	struct pid *pid = NULL;
	struct file *file;

	file = fget(fd);
	if (!file)
		return ERR_PTR(-EBADF);
#ifdef PID_FS_MAGIC
	if (file_inode(file)->i_sb->s_magic == PID_FS_MAGIC && !d_is_dir(file->f_path.dentry))
		pid = file_inode(file)->i_private;
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	if (!pid && file_inode(file)->i_sb->s_magic == ANON_INODE_FS_MAGIC &&
	    !strcmp(file->f_path.dentry->d_name.name, "[pidfd]"))
		pid = file->private_data;
#endif
	pid = pid ? get_pid(pid) : ERR_PTR(-EBADF);
	fput(file);
	return pid;
}

#endif
