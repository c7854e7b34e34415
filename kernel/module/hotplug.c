// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that goes away while we look at it.
 *
 * get_online_mems(), which would hold it still, is not exported. But whoever
 * takes memory offline asks the notifiers first (MEM_GOING_OFFLINE), and its
 * struct pages go only after that. So we do our work under a mutex that our
 * notifier takes, too: work that is going on ends first, and what comes later
 * finds the range noted and leaves it alone. pfn_to_online_page() says what is
 * offline already.
 *
 * Locks: device_hotplug_lock, mem_hotplug_lock, the notifiers' rwsem, the
 * mutex. Inside the mutex no CPU or memory hotplug lock is taken.
 */
#include <linux/memory.h>
#include <linux/mutex.h>
#include <linux/notifier.h>

#include "mega.h"

static DEFINE_MUTEX(mega_memory);
/* Frames that are going offline; guarded by mega_memory. At most one range
 * does at a time (device_hotplug_lock).
 */
static unsigned long mega_leaving_start, mega_leaving_end;

int mega_memory_lock(void)
{
	return mutex_lock_interruptible(&mega_memory);
}

void mega_memory_unlock(void)
{
	mutex_unlock(&mega_memory);
}

bool mega_memory_leaves(unsigned long pfn, unsigned long pages)
{
	lockdep_assert_held(&mega_memory);
	return pfn < mega_leaving_end && pfn + pages > mega_leaving_start;
}

static int mega_memory_notify(struct notifier_block *self, unsigned long action, void *data)
{
	const struct memory_notify *what = data;

	mutex_lock(&mega_memory);
	switch (action) {
	case MEM_GOING_OFFLINE:
		mega_leaving_start = what->start_pfn;
		mega_leaving_end = what->start_pfn + what->nr_pages;
		break;
	case MEM_CANCEL_OFFLINE:
	case MEM_OFFLINE:
		mega_leaving_start = 0;
		mega_leaving_end = 0;
		break;
	default:
		break;
	}
	mutex_unlock(&mega_memory);
	return NOTIFY_OK;
}

static struct notifier_block mega_memory_notifier = {
	.notifier_call = mega_memory_notify,
};

int mega_memory_init(void)
{
	return register_memory_notifier(&mega_memory_notifier);
}

void mega_memory_exit(void)
{
	unregister_memory_notifier(&mega_memory_notifier);
}
