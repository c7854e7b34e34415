//! Weak symbols of the C library: each may be missing, and the library itself needs none.

use core::arch::asm;

macro_rules! weak {
    ($(#[$doc:meta])* $name:ident, $symbol:literal) => {
        $(#[$doc])*
        pub fn $name() -> Option<usize> {
            let address: usize;
            // SAFETY: reads the entry of the global offset table, which is nothing where the symbol is missing.
            unsafe {
                asm!(
                    concat!(".weak ", $symbol),
                    concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                    out(reg) address,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            (address != 0).then_some(address)
        }
    };
}

weak!(
    /// Where the environment is.
    environ, "__environ"
);
weak!(
    /// What the kernel told the program at its start.
    getauxval, "getauxval"
);
weak!(
    /// glibc's: what to call around forks.
    register_atfork, "__register_atfork"
);
weak!(
    /// musl's.
    pthread_atfork, "pthread_atfork"
);
weak!(
    /// Goes through the loaded objects.
    dl_iterate_phdr, "dl_iterate_phdr"
);
weak!(
    /// Attributes of a new thread.
    pthread_attr_init, "pthread_attr_init"
);
weak!(
    /// Whether somebody joins it.
    pthread_attr_setdetachstate, "pthread_attr_setdetachstate"
);
weak!(
    /// The size of its stack.
    pthread_attr_setstacksize, "pthread_attr_setstacksize"
);
weak!(
    /// Where a thread keeps its last error.
    errno_location, "__errno_location"
);

/// The thread's `errno`; none where the C library keeps it elsewhere.
fn errno_at() -> Option<*mut i32> {
    // SAFETY: glibc's and musl's signature.
    let location: extern "C" fn() -> *mut i32 = unsafe { core::mem::transmute(errno_location()?) };
    Some(location())
}

pub fn errno() -> i32 {
    // SAFETY: it is the thread's own.
    errno_at().map_or(0, |errno| unsafe { *errno })
}

pub fn set_errno(error: i32) {
    if let Some(errno) = errno_at() {
        // SAFETY: it is the thread's own.
        unsafe { *errno = error };
    }
}
