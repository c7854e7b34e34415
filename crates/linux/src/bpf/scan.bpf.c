// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The page-table scanner.
 *
 * 1. `mega_task` runs once per read of its iterator, for one task (the link is
 *    filtered by tid). It does what `request` asks and leaves the answer in the
 *    shared map. It never writes to anything of the task's.
 * 2. Page tables are reached through the direct map: user-space told us its
 *    base. Every read is a nofault read, so a table that is freed under us
 *    yields stale data or an error, not an oops; BPF runs as an RCU reader.
 * 3. The PMD table of a gigabyte is copied at once; per region one PTE table
 *    (4096 bytes) is copied and counted. The PMD entry is read again after the
 *    copy; if it changed the region is done once more, then marked RACED.
 * 4. Counting is by packed lanes: multiply spreads the bits P, RW, A and D of
 *    an entry into four wide lanes of one word, so that 512 entries are added
 *    up without a branch. What lanes cannot tell (swap entries, PROT_NONE, the
 *    zero page) is looked for only where the sums say that there may be some.
 * 5. DAMON and idle page tracking clear accessed bits and keep the fact in the
 *    page flag PG_young; it is looked at only for entries that are present and
 *    not accessed, and only where asked for.
 * 6. BPF does not reschedule: the work per read is bounded by tables_max, by
 *    the output and by the number of steps.
 * 7. `mega_vma` writes one binary record per VMA.
 */
#include "entries.h"
#include "passes.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- the walk ------------------------------------------------------- */

/* Leaves the PMD table of `at`'s gigabyte in scratch, or why there is none. */
static __always_inline void load_gb(struct mega_shared *s, struct scratch *t,
				    struct cursor *c, __u64 at)
{
	__u64 table = c->pgd, mask = s->machine.frame_mask, e;

	c->gb = at >> GB_SHIFT;
	c->state = GB_NONE;
	if (s->machine.levels == 5) {
		e = word(table + ((at >> 48) & 511) * 8);
		c->skip = 1UL << 48;
		if (!(e & P))
			return;
		table = s->machine.direct_map + (e & mask);
	}
	e = word(table + ((at >> 39) & 511) * 8);
	c->skip = 1UL << 39;
	if (!(e & P))
		return;
	table = s->machine.direct_map + (e & mask);
	e = word(table + ((at >> 30) & 511) * 8);
	c->skip = 1UL << 30;
	if (e & PSE) {
		c->state = GB_LEAF;
		c->pmd_table = e;
		return;
	}
	if (!(e & P))
		return;
	table = s->machine.direct_map + (e & mask);
	if (bpf_probe_read_kernel(t->pmd, sizeof(t->pmd), (void *)table))
		return;
	c->pmd_table = table;
	c->state = GB_TABLE;
}

static __always_inline void count_table(struct mega_shared *s, struct mega_region *r,
					bool young)
{
	__u64 sum = mega_sum(), mapped, accessed, dirty, zero = 0, swapped = 0;

	/* Swap entries have garbage in the lanes, so sum again without them. */
	if (LANE_P(sum) != 512 && mega_any_odd()) {
		sum = mega_sum_odd();
		swapped = LANE_SWAPPED(sum);
	}
	mapped = LANE_P(sum);
	accessed = LANE_A(sum);
	dirty = LANE_D(sum);
	if (LANE_RW(sum) != mapped) {
		__u64 protected = mega_protected_pages();

		zero = protected & 0xffff;
		dirty += protected >> 16;
	}
	if (young && accessed < mapped)
		accessed += mega_young_pages();
	r->mapped = mapped;
	r->accessed = accessed;
	r->dirty = dirty;
	r->write_protected = mapped - LANE_RW(sum);
	r->zero = zero;
	r->swapped = swapped;
	if (s->machine.vmemmap && mapped - LANE_RW(sum) > zero && mega_sample_shared())
		r->flags |= MEGA_SHARED;
}

static __always_inline void count_leaf(struct mega_shared *s, struct mega_region *r,
				       __u64 e, bool young)
{
	bool usable = (e & P) && s->machine.vmemmap;
	bool zero = (e & (s->machine.frame_mask & ~(REGION_SIZE - 1))) ==
		    s->machine.huge_zero_entry;

	r->mapped = 512;
	r->zero = zero ? 512 : 0;
	r->accessed = e & A ? 512 : 0;
	r->dirty = e & (D | 1UL << SAVED_DIRTY_AT) ? 512 : 0;
	r->write_protected = e & RW ? 0 : 512;
	r->flags |= MEGA_HUGE;
	if (!usable || zero)
		return;
	e &= ~(REGION_SIZE - 1);
	if (young && !r->accessed && page_young(page_of(s, e), young_bit()))
		r->accessed = 512;
	if (r->write_protected && huge_shared(page_of(s, e)))
		r->flags |= MEGA_SHARED;
}

/* Copies the PTE table below `pmd`; true if it surely was that region's. */
static __always_inline bool copy_table(struct mega_shared *s, struct scratch *t,
				       struct cursor *c, __u64 at, __u64 pmd)
{
	__u64 table = s->machine.direct_map + (pmd & s->machine.frame_mask);
	__u64 slot = c->pmd_table + ((at >> 21) & 511) * 8;
	/* The hardware sets A in a table entry too. */
	return !bpf_probe_read_kernel(t->pte, sizeof(t->pte), (void *)table) &&
	       !((word(slot) ^ pmd) & ~(A | D));
}

static long scan_step(__u32 step, void *ctx)
{
	struct mega_shared *s = shared();
	struct scratch *t = scratch();
	struct cursor *c;
	struct mega_region *r;
	__u64 at, pmd, index;
	__u32 out;

	if (!s || !t)
		return 1;
	c = &t->c;
	at = c->at;
	if (at >= c->end) {
		__u32 i = c->range;

		if (i >= s->request.nr_ranges || i >= MEGA_RANGES_MAX) {
			c->complete = 1;
			return 1;
		}
		c->at = s->ranges[i].start;
		c->end = s->ranges[i].end;
		c->young = s->ranges[i].flags & MEGA_YOUNG && s->machine.vmemmap &&
			   young_bit() < 64;
		c->range = i + 1;
		return 0;
	}
	out = c->out;
	if (out >= MEGA_REGIONS_MAX || c->tables >= s->request.tables_max)
		return 1;
	if (c->gb != at >> GB_SHIFT)
		load_gb(s, t, c, at);
	if (c->state == GB_NONE) {
		c->at = (at & ~(c->skip - 1)) + c->skip;
		return 0;
	}
	c->at = at + REGION_SIZE;
	index = (at >> 21) & 511;
	pmd = c->state == GB_TABLE ? t->pmd[index] : c->pmd_table;
	if (!pmd)
		return 0;

	r = &s->regions[out];
	__builtin_memset(r, 0, sizeof(*r));
	r->address = at;
	if (c->state == GB_LEAF) {
		count_leaf(s, r, pmd, false);
		r->flags |= MEGA_GIGANTIC;
	} else if (pmd & PSE) {
		count_leaf(s, r, pmd, c->young);
	} else if (pmd & P) {
		c->tables++;
		if (!copy_table(s, t, c, at, pmd)) {
			__u64 now = word(c->pmd_table + index * 8);

			t->pmd[index] = now;
			if (!now)
				return 0;
			if (c->retried != at) {
				/* Once more, with what is there now. */
				c->retried = at;
				c->at = at;
				return 0;
			}
			r->flags |= MEGA_RACED;
		}
		count_table(s, r, c->young);
		if (!r->mapped && !r->swapped)
			return 0;
	} else {
		r->swapped = 512; /* a PMD migration or swap entry */
	}
	c->out = out + 1;
	return 0;
}

static __always_inline struct cursor *begin(struct scratch *t, __u64 pgd)
{
	__builtin_memset(&t->c, 0, sizeof(t->c));
	t->c.gb = t->c.retried = ~0UL;
	t->c.pgd = pgd;
	return &t->c;
}

static __always_inline void scan(struct mega_shared *s, struct scratch *t, __u64 pgd)
{
	struct cursor *c = begin(t, pgd);

	bpf_loop(STEPS_MAX, scan_step, 0, 0);
	s->reply.nr_regions = c->out;
	s->reply.complete = c->complete;
	s->reply.range = c->range ? c->range - 1 : 0;
	s->reply.next = c->at;
}

/* ---- one region's map ----------------------------------------------- */

static __always_inline __u64 entry_of(struct mega_shared *s, struct scratch *t,
				      struct cursor *c, __u64 at)
{
	load_gb(s, t, c, at);
	return c->state == GB_TABLE ? t->pmd[(at >> 21) & 511] : 0;
}

/*
 * The 64 pages of word `w` of the map. A pass like those above, and without a
 * branch: up to 6.1 the verifier takes every number for important and would
 * follow the 64 bits in every combination.
 */
PASS __u64 mega_map_word(__u32 w)
{
	struct mega_shared *s = shared();
	struct scratch *t = scratch();
	__u64 mapped = 0, accessed = 0, dirty = 0, zero = 0;
	__u64 mask, zero_entry, young;

	if (!s || !t)
		return 1;
	young = t->c.young & 1;
	mask = s->machine.frame_mask | P;
	zero_entry = s->machine.zero_entry | P;
	for (int b = 0; b < 64; b++) {
		__u32 i = (w * 64 + b) & 511;
		__u64 v = t->pte[i];
		__u64 here = (v | v >> 8) & 1;
		__u64 differs = (v & mask) ^ zero_entry;

		asm volatile("" : "+r"(differs));
		mapped |= here << b;
		accessed |= (here & (v >> 5)) << b;
		dirty |= (here & (v >> 6 | v >> SAVED_DIRTY_AT)) << b;
		zero |= ((differs - 1) >> 63) << b;
		if (young)
			accessed |= (mega_young_at(i) & 1) << b;
	}
	s->page_map.mapped[w & 7] = mapped;
	s->page_map.accessed[w & 7] = accessed;
	s->page_map.dirty[w & 7] = dirty;
	s->page_map.zero[w & 7] = zero;
	return 0;
}

static long map_word(__u32 w, void *ctx)
{
	mega_map_word(w);
	return 0;
}

static __always_inline void page_map(struct mega_shared *s, struct scratch *t, __u64 pgd)
{
	struct cursor *c = begin(t, pgd);
	__u64 at = s->request.address;
	__u64 e = entry_of(s, t, c, at);
	struct mega_region r = {};

	__builtin_memset(&s->page_map, 0, sizeof(s->page_map));
	c->young = s->machine.vmemmap && young_bit() < 64;
	if (c->state == GB_LEAF)
		e = c->pmd_table;
	if (e & PSE) {
		count_leaf(s, &r, e, c->young && c->state != GB_LEAF);
		for (int w = 0; w < 8; w++) {
			s->page_map.mapped[w] = ~0UL;
			s->page_map.accessed[w] = r.accessed ? ~0UL : 0;
			s->page_map.dirty[w] = r.dirty ? ~0UL : 0;
			s->page_map.zero[w] = r.zero ? ~0UL : 0;
		}
		s->page_map.flags = r.flags | (c->state == GB_LEAF ? MEGA_GIGANTIC : 0);
	} else if (e & P) {
		if (!copy_table(s, t, c, at, e))
			s->page_map.flags = MEGA_RACED;
		bpf_loop(8, map_word, 0, 0);
	}
}

/* ---- contents of huge pages ----------------------------------------- */

static long content_page(__u32 i, void *ctx)
{
	struct scratch *t = scratch();
	struct content *k;
	__u64 head[8], page;

	if (!t)
		return 1;
	k = &t->k;
	page = k->base + i * 4096UL;
	/* Data mostly shows in the first line; a whole page costs ten times it. */
	if (bpf_probe_read_kernel(head, sizeof(head), (void *)page))
		return 1;
	k->checked++;
	if (head[0] | head[1] | head[2] | head[3] | head[4] | head[5] | head[6] | head[7])
		return 0;
	if (k->heads) {
		k->zero++;
		return 0;
	}
	if (bpf_probe_read_kernel(t->pte, sizeof(t->pte), (void *)page))
		return 1;
	if (!mega_any_bits())
		k->zero++;
	return 0;
}

static long content_step(__u32 i, void *ctx)
{
	struct mega_shared *s = shared();
	struct scratch *t = scratch();
	struct mega_contents *o;
	struct content *k;
	__u64 begin = bpf_ktime_get_ns(), at, e;

	if (!s || !t || i >= MEGA_CONTENTS_MAX || i >= s->request.nr_ranges)
		return 1;
	k = &t->k;
	/* The first one always, so that every call gets on. */
	if (i && begin > s->request.deadline_ns)
		return 1;
	at = s->ranges[i].start;
	o = &s->contents[i];
	__builtin_memset(o, 0, sizeof(*o));
	o->address = at;
	k->zero = k->checked = 0;
	k->heads = s->ranges[i].flags & MEGA_HEADS;
	e = entry_of(s, t, &t->c, at);
	if ((e & (P | PSE)) == (P | PSE)) {
		k->base = s->machine.direct_map +
			  (e & s->machine.frame_mask & ~(REGION_SIZE - 1));
		bpf_loop(512, content_page, 0, 0);
		o->flags = MEGA_HUGE;
		if ((word(t->c.pmd_table + ((at >> 21) & 511) * 8) ^ e) & ~(A | D | RW))
			o->flags |= MEGA_RACED;
	}
	o->zero = k->zero;
	o->checked = k->checked;
	o->time_ns = bpf_ktime_get_ns() - begin;
	t->c.out = i + 1;
	return 0;
}

static __always_inline void contents(struct mega_shared *s, struct scratch *t, __u64 pgd)
{
	struct cursor *c = begin(t, pgd);

	bpf_loop(MEGA_CONTENTS_MAX, content_step, 0, 0);
	s->reply.nr_regions = c->out;
}

/* ---- finding our way at the start ----------------------------------- */

static __always_inline void probe(struct mega_shared *s, struct scratch *t, __u64 pgd)
{
	struct cursor *c = begin(t, pgd);
	__u64 at = s->request.address, e = entry_of(s, t, c, at);

	s->reply.entry_shift = 21;
	if (c->state == GB_LEAF) {
		s->reply.entry_shift = 30;
		e = c->pmd_table;
	} else if ((e & (P | PSE)) == P) {
		s->reply.entry_shift = 12;
		e = word(s->machine.direct_map + (e & s->machine.frame_mask) +
			 ((at >> 12) & 511) * 8);
	}
	s->reply.entry = e;
}

/* The page cache of a one-page file is one pointer: its struct page. */
static __always_inline void find_page(struct mega_shared *s, struct task_struct *task)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd), *file = 0;
	__u32 fd = s->request.fd;

	s->reply.status = MEGA_NOT_FOUND;
	if (fd >= BPF_CORE_READ(table, max_fds))
		return;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	s->reply.found = (__u64)BPF_CORE_READ(file, f_mapping, i_pages.xa_head);
	if (s->reply.found && !(s->reply.found & 3))
		s->reply.status = MEGA_OK;
}

static long direct_step(__u32 i, __u64 *base)
{
	struct mega_shared *s = shared();
	__u64 here[MEGA_NEEDLE_WORDS], at;

	if (!s)
		return 1;
	at = *base - ((__u64)i << GB_SHIFT);
	s->reply.nr_regions = i + 1;
	if (bpf_probe_read_kernel(here, sizeof(here), (void *)(at + (s->request.frame << 12))))
		return 0;
	for (int k = 0; k < MEGA_NEEDLE_WORDS; k++)
		if (here[k] != s->request.needle[k])
			return 0;
	s->reply.found = at;
	s->reply.status = MEGA_OK;
	return 1;
}

static __always_inline void find_direct(struct mega_shared *s)
{
	__u64 base = s->request.address;

	s->reply.status = MEGA_NOT_FOUND;
	bpf_loop(4096, direct_step, &base, 0);
}

SEC("iter/task")
int mega_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct mega_shared *s = shared();
	struct scratch *t = scratch();
	struct mm_struct *mm;
	__u64 pgd;

	if (!task || !s || !t)
		return 0;
	mm = BPF_CORE_READ(task, mm);
	if (!mm) {
		s->reply.status = MEGA_NO_MM;
		return 0;
	}
	pgd = (__u64)BPF_CORE_READ(mm, pgd);
	s->reply.status = MEGA_OK;
	s->reply.pgd = pgd;
	s->reply.page_size = bpf_core_type_size(struct page);
	s->reply.young_bit = young_bit();
	s->reply.direct_loads = bpf_ksym_exists(bpf_rdonly_cast) ? 1 : 0;

	switch (s->request.mode) {
	case MEGA_SCAN:
		scan(s, t, pgd);
		break;
	case MEGA_PAGE_MAP:
		page_map(s, t, pgd);
		break;
	case MEGA_CONTENTS:
		contents(s, t, pgd);
		break;
	case MEGA_PROBE:
		probe(s, t, pgd);
		break;
	case MEGA_FIND_PAGE:
		find_page(s, task);
		break;
	case MEGA_FIND_DIRECT:
		find_direct(s);
		break;
	case MEGA_READ_WORD:
		s->reply.found = word(s->request.address);
		break;
	}
	/* A task that still has this mm kept its page tables alive. */
	if (BPF_CORE_READ(task, mm) != mm)
		s->reply.status = MEGA_MM_CHANGED;
	return 0;
}

#define TMPFS_MAGIC 0x01021994UL
#define HUGETLBFS_MAGIC 0x958458f6UL

SEC("iter/task_vma")
int mega_vma(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct mega_vma r = {};
	struct file *file;

	if (!ctx->task || !vma)
		return 0;
	r.start = vma->vm_start;
	r.end = vma->vm_end;
	r.vm_flags = vma->vm_flags;
	file = vma->vm_file;
	if (file) {
		__u64 magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);

		r.kind = magic == TMPFS_MAGIC || magic == HUGETLBFS_MAGIC ?
				 MEGA_VMA_SHMEM : MEGA_VMA_FILE;
	} else {
		r.kind = vma->vm_ops ? MEGA_VMA_SPECIAL : MEGA_VMA_ANONYMOUS;
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
