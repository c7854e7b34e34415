//! Who may call, and what is refused with which errno.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use mega_linux::module::uapi::{self, Age, Blocks, Compact, Info, Probe};

use super::memory::{Memory, PAGE};
use super::module;

/// Calls with anything; the errno, or 0.
fn call<T>(device: &impl AsFd, number: u64, request: *mut T) -> i32 {
    // SAFETY: what a wrong request makes the kernel write goes where the request says: nowhere, or to memory of the test.
    match unsafe { libc::ioctl(device.as_fd().as_raw_fd(), number, request) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

fn compact() -> Compact {
    Compact {
        version: uapi::VERSION,
        ..Compact::default()
    }
}

fn age(pidfd: i32, list: &mut [uapi::Region]) -> Age {
    Age {
        version: uapi::VERSION,
        pidfd,
        count: list.len() as u32,
        start: 0,
        end: 1 << 30,
        list: list.as_mut_ptr() as u64,
        ..Age::default()
    }
}

#[test]
fn the_module_says_what_it_is() {
    let Some(module) = module() else { return };
    let info = module.info();
    assert_eq!(
        (info.base_page_bytes, info.block_pages, info.order_max),
        (4096, 512, 10)
    );
    assert_eq!(info.abilities & 15, 15, "{info:?}");
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total_kb: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(info.blocks >= total_kb / 2048, "{info:?}");
    eprintln!("MODULE {info:?}");
}

#[test]
fn every_bad_call_is_answered_with_its_errno() {
    let Some(module) = module() else { return };
    let file = &module.fd();
    let null = std::ptr::null_mut::<u8>();
    for number in [
        0,
        0xE6_00,
        3 << 30 | 72 << 16 | 0xE6 << 8 | 9,
        uapi::IOC_COMPACT + (8 << 16),
        !0,
    ] {
        assert_eq!(call(file, number, null), libc::ENOTTY, "{number:#x}");
    }
    for number in [
        uapi::IOC_INFO,
        uapi::IOC_COMPACT,
        uapi::IOC_BLOCKS,
        uapi::IOC_AGE,
        uapi::IOC_PROBE,
    ] {
        assert_eq!(call(file, number, null), libc::EFAULT, "{number:#x}");
        assert_eq!(
            call(file, number, (!0u64 << 20) as *mut u8),
            libc::EFAULT,
            "{number:#x}"
        );
    }

    let compact = compact();
    let wrong = [
        (Compact::default(), libc::EPROTO),
        (Compact { flags: 2, ..compact }, libc::EINVAL),
        (
            Compact {
                reserved: [0, 1],
                ..compact
            },
            libc::EINVAL,
        ),
        (
            Compact {
                budget_ns: module.info().budget_max_ns + 1,
                ..compact
            },
            libc::EINVAL,
        ),
        (
            Compact {
                count: module.info().compact_max + 1,
                ..compact
            },
            libc::E2BIG,
        ),
        (
            Compact {
                count: 1,
                budget_ns: 1 << 30,
                ..compact
            },
            libc::EFAULT,
        ),
        (
            Compact {
                count: 1,
                list: !0 << 12,
                ..compact
            },
            libc::EFAULT,
        ),
    ];
    for (mut request, errno) in wrong {
        assert_eq!(call(file, uapi::IOC_COMPACT, &mut request), errno, "{request:?}");
    }

    let blocks = Blocks {
        version: uapi::VERSION,
        ..Blocks::default()
    };
    for (mut request, errno) in [
        (Blocks::default(), libc::EPROTO),
        (Blocks { flags: 1, ..blocks }, libc::EINVAL),
        (
            Blocks {
                reserved: [1, 0],
                ..blocks
            },
            libc::EINVAL,
        ),
        (
            Blocks {
                count: module.info().blocks_max + 1,
                ..blocks
            },
            libc::E2BIG,
        ),
        (Blocks { count: 1, ..blocks }, libc::EFAULT),
        (
            Blocks {
                count: 1,
                first: !0,
                list: 4096,
                ..blocks
            },
            0,
        ),
    ] {
        assert_eq!(call(file, uapi::IOC_BLOCKS, &mut request), errno, "{request:?}");
        assert_eq!(request.done, 0);
    }

    let probe = Probe {
        version: uapi::VERSION,
        node: -1,
        ..Probe::default()
    };
    for (mut request, errno) in [
        (
            Probe {
                node: -1,
                ..Probe::default()
            },
            libc::EPROTO,
        ),
        (Probe { flags: 32, ..probe }, libc::EINVAL),
        (Probe { order: 11, ..probe }, libc::EINVAL),
        (Probe { node: 1 << 20, ..probe }, libc::EINVAL),
        (Probe { node: 63, ..probe }, libc::EINVAL),
        (Probe { node: -2, ..probe }, libc::EINVAL),
        (
            Probe {
                reserved: [1, 0],
                ..probe
            },
            libc::EINVAL,
        ),
        (Probe { budget_ns: !0, ..probe }, libc::EINVAL),
        (
            Probe {
                count: module.info().probe_max + 1,
                ..probe
            },
            libc::E2BIG,
        ),
        (
            Probe {
                count: 4,
                budget_ns: 1 << 30,
                ..probe
            },
            libc::EFAULT,
        ),
        (Probe { count: 4, ..probe }, 0),
        (probe, 0),
    ] {
        assert_eq!(call(file, uapi::IOC_PROBE, &mut request), errno, "{request:?}");
    }
}

#[test]
fn ageing_refuses_what_is_no_process_and_no_range() {
    let Some(module) = module() else { return };
    let file = &module.fd();
    let mut list = [uapi::Region::default(); 4];
    let us = mega_linux::sys::pidfd_open(std::process::id()).unwrap();
    let check = |request: Age, errno: i32| {
        let mut changed = request;
        assert_eq!(call(file, uapi::IOC_AGE, &mut changed), errno, "{request:?}");
    };
    let good = age(us.as_raw_fd(), &mut list);
    check(good, 0);
    check(Age { version: 2, ..good }, libc::EPROTO);
    check(Age { flags: 16, ..good }, libc::EINVAL);
    check(
        Age {
            reserved: [0, 9],
            ..good
        },
        libc::EINVAL,
    );
    check(Age { count: 0, ..good }, libc::EINVAL);
    check(Age { start: 4096, ..good }, libc::EINVAL);
    check(
        Age {
            end: (1 << 30) + 4096,
            ..good
        },
        libc::EINVAL,
    );
    check(Age { start: 1 << 30, ..good }, libc::EINVAL);
    check(Age { end: 1 << 63, ..good }, libc::EINVAL);
    check(Age { end: !0 << 21, ..good }, libc::EINVAL);
    check(
        Age {
            count: module.info().age_max + 1,
            ..good
        },
        libc::E2BIG,
    );
    check(Age { list: !0 << 12, ..good }, libc::EFAULT);
    check(Age { maps: !0 << 12, ..good }, libc::EFAULT);
    check(
        Age {
            end: 1 << 47,
            list: 0,
            ..good
        },
        libc::EFAULT,
    );
    check(Age { pidfd: -1, ..good }, libc::EBADF);
    check(Age { pidfd: 9999, ..good }, libc::EBADF);
    for other in ["/dev/null", "/proc/self/mem", "/proc/self", "/mega.ko"] {
        let Ok(other) = File::open(other) else { continue };
        check(
            Age {
                pidfd: other.as_raw_fd(),
                ..good
            },
            libc::EBADF,
        );
    }
    let (read, _write) = rustix::pipe::pipe().unwrap();
    check(
        Age {
            pidfd: read.as_raw_fd(),
            ..good
        },
        libc::EBADF,
    );
    check(
        Age {
            pidfd: file.as_raw_fd(),
            ..good
        },
        libc::EBADF,
    );
    // A thread of the kernel has no memory of its own.
    let kthreadd = mega_linux::sys::pidfd_open(2).unwrap();
    check(
        Age {
            pidfd: kthreadd.as_raw_fd(),
            ..good
        },
        libc::ESRCH,
    );
    let mut child = std::process::Command::new("/proc/self/exe")
        .arg("--list")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pidfd = mega_linux::sys::pidfd_open(child.id()).unwrap();
    child.wait().unwrap();
    check(
        Age {
            pidfd: pidfd.as_raw_fd(),
            ..good
        },
        libc::ESRCH,
    );
}

#[test]
fn who_is_not_privileged_may_neither_open_nor_call() {
    let Some(module) = module() else { return };
    let file = &module.fd();
    // A child that gives its rights up; the answers are its status.
    // SAFETY: the child calls only what is safe after a fork of a program with threads: plain system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut info = Info::default();
        // SAFETY: as above.
        unsafe {
            let opened = {
                libc::setresgid(1000, 1000, 1000);
                libc::setresuid(1000, 1000, 1000);
                libc::open(c"/dev/mega".as_ptr(), libc::O_RDWR)
            };
            let open_errno = *libc::__errno_location();
            let called = libc::ioctl(file.as_raw_fd(), uapi::IOC_INFO, &mut info);
            let call_errno = *libc::__errno_location();
            let good = opened == -1 && open_errno == libc::EACCES && called == -1 && call_errno == libc::EPERM;
            libc::_exit(i32::from(!good));
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // Root without CAP_SYS_ADMIN.
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let header = [0x2008_0522u32, 0];
        let data = [0u32; 6];
        // SAFETY: as above; version 3 of capset's header, and two empty sets.
        unsafe {
            libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr());
            let opened = libc::open(c"/dev/mega".as_ptr(), libc::O_RDWR);
            let open_errno = *libc::__errno_location();
            let mut info = Info::default();
            let called = libc::ioctl(file.as_raw_fd(), uapi::IOC_INFO, &mut info);
            let call_errno = *libc::__errno_location();
            let good = opened == -1 && open_errno == libc::EPERM && called == -1 && call_errno == libc::EPERM;
            libc::_exit(i32::from(!good));
        }
    }
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn results_that_cannot_be_written_are_said_so() {
    let Some(module) = module() else { return };
    let file = &module.fd();
    let mut memory = Memory::map(1);
    (0..4).for_each(|page| memory.fill(page));
    let us = mega_linux::sys::pidfd_open(std::process::id()).unwrap();
    // Its second page can be read only, its fourth is the last but for a hole.
    // SAFETY: pages that only this test has.
    unsafe {
        libc::mprotect(memory.address(1) as *mut libc::c_void, PAGE as usize, libc::PROT_READ);
        libc::munmap(memory.address(4) as *mut libc::c_void, PAGE as usize);
    }
    for list in [memory.address(1), memory.address(4) - 16, memory.address(4)] {
        let compact = Compact {
            list,
            count: 2,
            budget_ns: 1 << 30,
            ..compact()
        };
        let blocks = Blocks {
            version: uapi::VERSION,
            list,
            count: 2,
            ..Blocks::default()
        };
        let probe = Probe {
            version: uapi::VERSION,
            node: -1,
            times: list,
            count: 8,
            budget_ns: 1 << 30,
            ..Probe::default()
        };
        let age = Age {
            list,
            count: 2,
            end: 1 << 47,
            ..age(us.as_raw_fd(), &mut [])
        };
        let mut good = [uapi::Region::default(); 2];
        let maps = Age {
            list: good.as_mut_ptr() as u64,
            maps: list,
            ..age
        };
        assert_eq!(
            call(file, uapi::IOC_COMPACT, &mut { compact }),
            libc::EFAULT,
            "{list:#x}"
        );
        assert_eq!(call(file, uapi::IOC_BLOCKS, &mut { blocks }), libc::EFAULT, "{list:#x}");
        assert_eq!(call(file, uapi::IOC_PROBE, &mut { probe }), libc::EFAULT, "{list:#x}");
        assert_eq!(call(file, uapi::IOC_AGE, &mut { age }), libc::EFAULT, "{list:#x}");
        assert_eq!(call(file, uapi::IOC_AGE, &mut { maps }), libc::EFAULT, "{list:#x}");
    }
    // The request itself.
    assert_eq!(call(file, uapi::IOC_INFO, memory.address(1) as *mut Info), libc::EFAULT);
    let half = (memory.address(4) - 16) as *mut Compact;
    assert_eq!(call(file, uapi::IOC_COMPACT, half), libc::EFAULT);
    let request = memory.address(2) as *mut Blocks;
    // SAFETY: a page of ours, which is then read-only.
    unsafe {
        request.write(Blocks {
            version: uapi::VERSION,
            ..Blocks::default()
        });
        libc::mprotect(request.cast(), PAGE as usize, libc::PROT_READ);
    }
    assert_eq!(call(file, uapi::IOC_BLOCKS, request), libc::EFAULT);
}
