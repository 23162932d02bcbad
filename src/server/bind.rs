//! One listening socket for each worker, all on one address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Connections that may wait to be accepted; the kernel takes the smaller of this and its own bound.
const BACKLOG: i32 = 4096;

/// Binds `address` once for each worker. With port 0 the system chooses one port for all.
///
/// # Errors
/// An address that cannot be bound.
pub(crate) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let first = listen(address)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    while listeners.len() < workers {
        listeners.push(another(address, &listeners[0])?);
    }
    Ok(listeners)
}

/// The kernel spreads connections over sockets that share a port.
#[cfg(target_os = "linux")]
fn another(address: SocketAddr, _first: &TcpListener) -> io::Result<TcpListener> {
    listen(address)
}

/// Where it does not, the workers accept from one queue.
#[cfg(not(target_os = "linux"))]
fn another(_address: SocketAddr, first: &TcpListener) -> io::Result<TcpListener> {
    first.try_clone()
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuse_port(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_share_the_port_that_the_system_chose() {
        let listeners = bind("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), 3);
        assert_ne!(ports[0], 0);
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    }
}
