//! Telling the service manager how we are: the datagrams of sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use mega_linux::sys;

/// How long the manager may take to make room for a message.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// Where to tell it; nowhere when no service manager started us.
#[derive(Debug)]
pub struct Notify(Option<Manager>);

#[derive(Debug)]
struct Manager {
    address: SocketAddr,
    /// Waits for room.
    states: UnixDatagram,
    /// Does not: a full queue must not hold up a scan.
    pings: UnixDatagram,
}

impl Notify {
    /// Tells nobody.
    pub fn nowhere() -> Self {
        Self(None)
    }

    /// The socket named by NOTIFY_SOCKET.
    pub fn from_environment() -> Self {
        let open = |name: &OsStr| {
            let address = match name.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(name),
            };
            let (states, pings) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
            states.set_write_timeout(Some(ROOM_WITHIN))?;
            pings.set_nonblocking(true)?;
            let address = address?;
            Ok::<_, std::io::Error>(Manager { address, states, pings })
        };
        Self(std::env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name).ok()))
    }

    /// Sends it, as well as can be.
    pub fn tell(&self, text: &str) {
        if let Some(manager) = &self.0 {
            let _ = manager.states.send_to_addr(text.as_bytes(), &manager.address);
        }
    }

    /// We are alive.
    pub fn ping(&self) {
        if let Some(manager) = &self.0 {
            let _ = manager.pings.send_to_addr(b"WATCHDOG=1", &manager.address);
        }
    }

    /// A reload begins: the manager waits for a READY=1 that is later than this time.
    pub fn reloading(&self) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", sys::monotonic().as_micros()));
    }
}
