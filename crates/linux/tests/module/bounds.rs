//! How long a call takes: its budget, its longest list, and a signal in the middle.

use std::time::{Duration, Instant};

use mega_linux::module::uapi::CompactBlock;
use mega_linux::module::BlockOutcome;

use super::{module, patience};

#[test]
fn a_budget_of_zero_does_nothing_and_a_million_blocks_are_bounded() {
    let Some(module) = module() else { return };
    let before = super::vmstat("pgmigrate_success");
    let mut list: Vec<_> = (0..module.info().blocks).map(CompactBlock::asked).collect();
    let done = module.compact(&mut list, Duration::ZERO, true).unwrap();
    assert_eq!((done.freed, done.tried, done.moved), (0, 0, 0));
    assert_eq!(done.done as usize, list.len());
    assert!(list.iter().all(|block| block.outcome() == BlockOutcome::Budget));
    assert_eq!(super::vmstat("pgmigrate_success"), before, "somebody else moved pages");

    let mut list: Vec<_> = (0..1 << 20)
        .map(|n| CompactBlock::asked((n * 7919) << 20 | n))
        .collect();
    let began = Instant::now();
    let done = module.compact(&mut list, Duration::from_millis(100), false).unwrap();
    let took = began.elapsed();
    assert!(took < patience(5), "{took:?}");
    assert_eq!(done.done, 1 << 20);
    assert!(list
        .iter()
        .all(|block| block.outcome() != BlockOutcome::Undone && block.outcome() != BlockOutcome::Interrupted));
    // The same ones that are there, again and again.
    let blocks = module.info().blocks;
    list = (0..1 << 20).map(|n| CompactBlock::asked(n % blocks)).collect();
    let began = Instant::now();
    let done = module.compact(&mut list, Duration::from_millis(100), true).unwrap();
    assert!(began.elapsed() < patience(5), "{:?}", began.elapsed());
    assert_eq!(done.done, 1 << 20);
    assert_eq!(list[list.len() - 1].outcome(), BlockOutcome::Budget);
    eprintln!("MODULE a million blocks that are none, budget 100 ms: {took:?}");
}

#[test]
fn a_signal_ends_a_call_in_the_middle() {
    extern "C" fn nothing(_: i32) {}
    let Some(module) = module() else { return };
    let handler: extern "C" fn(i32) = nothing;
    // SAFETY: all zero is a valid value of it; the handler touches nothing.
    let us = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        libc::gettid()
    };
    let blocks = module.info().blocks;
    let mut list: Vec<_> = (0..1 << 20).map(|n| CompactBlock::asked(n % blocks)).collect();
    let began = Instant::now();
    let done = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            // SAFETY: a signal to a thread of ours, whose handler does nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), us, libc::SIGUSR1) };
        });
        module.compact(&mut list, Duration::from_secs(60), true).unwrap()
    });
    assert!(began.elapsed() < patience(10), "{:?}", began.elapsed());
    assert_eq!(done.done as usize, list.len());
    assert_eq!(list[list.len() - 1].outcome(), BlockOutcome::Interrupted);
    assert_ne!(list[0].outcome(), BlockOutcome::Interrupted);
}
