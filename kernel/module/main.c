// SPDX-License-Identifier: GPL-2.0
/*
 * mega.ko: what huge pages need and a stock kernel gives no program.
 *
 *	main.c		the device, and who may use it
 *	blocks.c	what blocks of physical memory hold
 *	compact.c	empties chosen blocks
 *	age.c		reads and clears accessed bits of a range
 *	age_region.c	those of one region
 *	probe.c		times allocations
 *	hotplug.c	memory that goes away meanwhile
 *	compat.h	what differs between kernels
 *	uapi/mega.h	the contract with userspace
 *
 * The module has no state but a lock: no thread, no timer, nothing of a
 * process held between two calls. An open descriptor or a running call holds
 * the module (fops.owner); without either it can be removed at any time.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "mega.h"

static_assert(MEGA_BLOCK_PAGES == PTRS_PER_PTE);
static_assert(sizeof(struct mega_info) == 72);
static_assert(sizeof(struct mega_compact_block) == 24);
static_assert(sizeof(struct mega_compact) == 72);
static_assert(sizeof(struct mega_block) == 32);
static_assert(sizeof(struct mega_blocks) == 56);
static_assert(sizeof(struct mega_region) == 24);
static_assert(sizeof(struct mega_region_map) == 256);
static_assert(sizeof(struct mega_age) == 96);
static_assert(sizeof(struct mega_probe) == 80);

static long mega_info(void __user *argument)
{
	const struct mega_info info = {
		.version = MEGA_UAPI_VERSION,
		.base_page_bytes = PAGE_SIZE,
		.block_pages = MEGA_BLOCK_PAGES,
		.order_max = MEGA_ORDER_MAX,
		.abilities = MEGA_CAN_COMPACT | MEGA_CAN_BLOCKS | MEGA_CAN_AGE |
			     MEGA_CAN_PROBE | (MEGA_HAS_YOUNG ? MEGA_CAN_YOUNG : 0),
		.blocks = mega_blocks_end(),
		.compact_max = MEGA_COMPACT_MAX,
		.blocks_max = MEGA_BLOCKS_MAX,
		.age_max = MEGA_AGE_MAX,
		.probe_max = MEGA_PROBE_MAX,
		.budget_max_ns = MEGA_BUDGET_MAX_NS,
	};

	return copy_to_user(argument, &info, sizeof(info)) ? -EFAULT : 0;
}

static long mega_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;

	/* The descriptor may have been handed to somebody else. */
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	switch (command) {
	case MEGA_IOC_INFO:
		return mega_info(pointer);
	case MEGA_IOC_COMPACT:
		return mega_compact(pointer);
	case MEGA_IOC_BLOCKS:
		return mega_blocks(pointer);
	case MEGA_IOC_AGE:
		return mega_age(pointer);
	case MEGA_IOC_PROBE:
		return mega_probe(pointer);
	default:
		return -ENOTTY;
	}
}

static int mega_open(struct inode *inode, struct file *file)
{
	return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static const struct file_operations mega_fops = {
	.owner = THIS_MODULE,
	.open = mega_open,
	.unlocked_ioctl = mega_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice mega_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "mega",
	.fops = &mega_fops,
	.mode = 0600,
};

static int __init mega_init(void)
{
	int error;

	if (pageblock_nr_pages != MEGA_BLOCK_PAGES) {
		pr_err("the allocator's blocks have %lu pages here, not %lu\n",
		       (unsigned long)pageblock_nr_pages, MEGA_BLOCK_PAGES);
		return -EOPNOTSUPP;
	}
	error = mega_memory_init();
	if (error)
		return error;
	error = misc_register(&mega_device);
	if (error)
		mega_memory_exit();
	return error;
}

static void __exit mega_exit(void)
{
	misc_deregister(&mega_device);
	mega_memory_exit();
}

module_init(mega_init);
module_exit(mega_exit);

MODULE_DESCRIPTION("Empties chosen blocks of memory, reads and clears accessed bits");
MODULE_AUTHOR("The MEGA project");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1");
