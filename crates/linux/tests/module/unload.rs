//! The module goes, and comes back.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::module;

fn remove() -> i32 {
    // SAFETY: takes a name and flags; the module goes only when nobody uses it.
    match unsafe { libc::syscall(libc::SYS_delete_module, c"mega".as_ptr(), libc::O_NONBLOCK) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

#[test]
fn who_has_it_open_holds_it_and_else_it_goes_and_comes_back() {
    let Some(turn) = module() else { return };
    let Ok(file) = File::open("/mega.ko") else {
        eprintln!("SKIPPED: its file is not at /mega.ko");
        return;
    };
    assert_eq!(remove(), libc::EAGAIN);
    let super::Turn { module, _turn } = turn;
    drop(module);
    for round in 0..20 {
        assert_eq!(remove(), 0, "round {round}");
        assert!(!Path::new("/dev/mega").exists());
        // SAFETY: loads the module from a file, without parameters.
        let loaded = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        assert_eq!(loaded, 0, "{}", std::io::Error::last_os_error());
        let again = mega_linux::module::Module::open().unwrap();
        assert_eq!(again.all_blocks().unwrap().len() as u64, again.info().blocks);
    }
}
