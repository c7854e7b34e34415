/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types that the programs look into, with only the fields that
 * they use: libbpf moves every access to where the running kernel's BTF has it.
 * A name after ___ is a second shape of the same kernel type.
 */
#ifndef MEGA_TYPES_H
#define MEGA_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

enum bpf_map_type_used {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1 << 0, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* bpf_helpers.h of libbpf before 1.2 has no such macro. */
#ifndef bpf_ksym_exists
#define bpf_ksym_exists(sym) (!!(sym))
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct page {
	/* flags and compound_head are the first two words, in every version */
	atomic_t _mapcount;
	atomic_t compound_mapcount; /* to 6.1 */
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct folio {
	atomic_t _entire_mapcount;
};

/* PG_young exists with CONFIG_PAGE_IDLE_FLAG. */
enum pageflags { PG_young = 1000 };

struct xarray {
	void *xa_head;
};

struct address_space {
	struct xarray i_pages;
};

struct super_block {
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
};

struct file {
	struct address_space *f_mapping;
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

typedef struct {
	unsigned long pgd;
} pgd_t;

struct percpu_counter {
	__s64 count;
};

struct mm_rss_stat { /* to 6.1 */
	struct {
		__s64 counter;
	} count[4];
};

struct mm_struct___old {
	struct mm_rss_stat rss_stat;
};

struct rw_semaphore {
	atomic_t count;
};

struct mm_struct {
	struct percpu_counter rss_stat[4]; /* from 6.2 */
	pgd_t *pgd;
	struct rw_semaphore mmap_lock;
};

struct signal_struct {
	__u64 sum_sched_runtime; /* of the threads that have ended */
	unsigned long min_flt;
	unsigned long maj_flt;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_struct {
	unsigned int flags;
	int exit_state;
	int exit_signal;
	int pid;
	int tgid;
	__u64 start_boottime;
	unsigned long min_flt;
	unsigned long maj_flt;
	char comm[16];
	struct sched_entity se;
	struct task_struct *real_parent;
	struct signal_struct *signal;
	struct mm_struct *mm;
	struct files_struct *files;
};

struct pt_regs {
	unsigned long ip;
	unsigned long orig_ax;
};

struct vm_operations_struct;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	const struct vm_operations_struct *vm_ops;
	struct file *vm_file;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

#pragma clang attribute pop

/* From 6.2; where it is missing, the code that calls it is dead. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#endif
