//! Notifies systemd about the state of a service with `Type=notify`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, such as `READY=1`. Does nothing without `NOTIFY_SOCKET`.
pub(super) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = address(&path);
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, state, "cannot notify systemd");
    }
}

/// Parses a path, or the name of an abstract socket, which begins with `@`.
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let [b'@', name @ ..] = path.as_encoded_bytes() {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(path)
}
