//! Sockets that a service manager opened for us: the protocol of sd_listen_fds(3).

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// A path or an abstract name.
    Unix(UnixListener),
    /// An address and a port.
    Tcp(TcpListener),
}

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;
/// At most so many are taken.
const MOST: RawFd = 16;

/// Takes the listening stream sockets that were handed to this very process, once: the variables that name them are removed. Others are closed.
pub fn inherited_listeners() -> Vec<Listener> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (ours, count) = (number("LISTEN_PID"), number("LISTEN_FDS"));
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        std::env::remove_var(name);
    }
    let count = match ours {
        Some(pid) if pid == std::process::id() => count.and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0),
        _ => 0,
    };
    (FIRST..FIRST + count.clamp(0, MOST)).filter_map(take).collect()
}

fn take(fd: RawFd) -> Option<Listener> {
    // SAFETY: asks about a descriptor; one that is not open is an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, and by the protocol ours alone; the variables that name it are gone, so that nobody takes it again.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let listens = option(&socket, libc::SO_ACCEPTCONN)? != 0 && option(&socket, libc::SO_TYPE)? == libc::SOCK_STREAM;
    match option(&socket, libc::SO_DOMAIN)? {
        libc::AF_UNIX if listens => Some(Listener::Unix(socket.into())),
        libc::AF_INET | libc::AF_INET6 if listens => Some(Listener::Tcp(socket.into())),
        _ => None,
    }
}

fn option(socket: &OwnedFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to variables of ours of the sizes that the call is told.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (done == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_listen_is_no_listener_and_what_does_is_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(option(&file.into(), libc::SO_DOMAIN).is_none());
        let unix: OwnedFd = UnixListener::bind(folder.path().join("s")).unwrap().into();
        assert_eq!(option(&unix, libc::SO_DOMAIN), Some(libc::AF_UNIX));
        assert_eq!(option(&unix, libc::SO_ACCEPTCONN), Some(1));
        let tcp: OwnedFd = TcpListener::bind("127.0.0.1:0").unwrap().into();
        assert_eq!(option(&tcp, libc::SO_DOMAIN), Some(libc::AF_INET));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(option(&one.into(), libc::SO_ACCEPTCONN), Some(0));
    }
}
