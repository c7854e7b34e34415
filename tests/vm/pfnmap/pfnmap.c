// SPDX-License-Identifier: GPL-2.0
/*
 * A device whose memory programs map by huge entries without a struct page, as
 * vfio-pci maps a BAR from Linux 6.12 on: for mega.ko's tests, which must not
 * look for such pages. /dev/mega-pfnmap; the memory is none: physical addresses
 * far above a test machine's.
 */
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pfn_t.h>
#include <linux/version.h>

#define PFNMAP_BASE (32ULL << 30)

static unsigned long pfnmap_pfn(struct vm_fault *vmf)
{
	return (PFNMAP_BASE >> PAGE_SHIFT) +
	       ((vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT);
}

static vm_fault_t pfnmap_fault(struct vm_fault *vmf)
{
	return vmf_insert_pfn(vmf->vma, vmf->address & PAGE_MASK, pfnmap_pfn(vmf));
}

static vm_fault_t pfnmap_huge(struct vm_fault *vmf, bool is_pmd)
{
	unsigned long start = vmf->address & PMD_MASK;
	unsigned long pfn = pfnmap_pfn(vmf) & ~(PTRS_PER_PMD - 1UL);

	if (!is_pmd || start < vmf->vma->vm_start || start + PMD_SIZE > vmf->vma->vm_end)
		return VM_FAULT_FALLBACK;
	return vmf_insert_pfn_pmd(vmf, pfn_to_pfn_t(pfn), false);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
static vm_fault_t pfnmap_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	return pfnmap_huge(vmf, order == PMD_SHIFT - PAGE_SHIFT);
}
#else
static vm_fault_t pfnmap_huge_fault(struct vm_fault *vmf, enum page_entry_size size)
{
	return pfnmap_huge(vmf, size == PE_SIZE_PMD);
}
#endif

static const struct vm_operations_struct pfnmap_ops = {
	.fault = pfnmap_fault,
	.huge_fault = pfnmap_huge_fault,
};

static int pfnmap_mmap(struct file *file, struct vm_area_struct *vma)
{
	const unsigned long flags = VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP;

	vma->vm_ops = &pfnmap_ops;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
	return 0;
}

static const struct file_operations pfnmap_files = {
	.owner = THIS_MODULE,
	.mmap = pfnmap_mmap,
};

static struct miscdevice pfnmap_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "mega-pfnmap",
	.fops = &pfnmap_files,
	.mode = 0600,
};

module_misc_device(pfnmap_device);
MODULE_DESCRIPTION("Huge mappings without struct pages, for tests");
MODULE_LICENSE("GPL");
