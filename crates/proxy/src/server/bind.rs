//! Opens the listening sockets of all workers on one address.

use std::io;
use std::net::SocketAddr;

use socket2::{Protocol, SockAddr, Socket, Type};

use crate::transport::optional;

/// The size of the accept queue. The kernel applies its own limit if that is smaller.
const BACKLOG: i32 = 4096;

/// Returns the sockets that listen on `address`: all inherited ones and, where the kernel distributes connections over
/// several sockets, new ones up to the number of workers. No inherited socket is dropped, because connections may wait
/// in its queue. If there are fewer sockets than workers, some workers accept from the same queue. With port 0 the
/// system chooses one port for all sockets.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr, workers: usize, inherited: Vec<Socket>) -> io::Result<Vec<Socket>> {
    let mut sockets = inherited;
    if sockets.is_empty() {
        sockets.push(listen(address)?);
    }
    let address = sockets[0].local_addr()?;
    while sockets.len() < workers && has_reuse_port(&sockets[0]) {
        match listen_on(&address) {
            Ok(socket) => sockets.push(socket),
            // Another user owns the port.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
}

/// Checks that no other socket listens on `address`. The workers' sockets share their port (`SO_REUSEPORT`), also with
/// another gateway of the same user. This check therefore binds a socket without that option.
///
/// # Errors
/// Another socket listens on the address, or it cannot be bound for another reason.
pub fn ensure_free(address: SocketAddr) -> io::Result<()> {
    new_socket(&address.into())?.bind(&address.into())
}

/// Opens the only socket on an address.
///
/// # Errors
/// See [`ensure_free`].
pub fn bind_alone(address: SocketAddr) -> io::Result<Socket> {
    let address = address.into();
    listen_with(new_socket(&address)?, &address)
}

/// Returns `true` if further sockets may use the port, so that the kernel distributes connections over them.
#[cfg(target_os = "linux")]
fn has_reuse_port(socket: &Socket) -> bool {
    socket.reuse_port().unwrap_or(false)
}

#[cfg(not(target_os = "linux"))]
fn has_reuse_port(_: &Socket) -> bool {
    false
}

fn listen(address: SocketAddr) -> io::Result<Socket> {
    listen_on(&SockAddr::from(address))
}

fn listen_on(address: &SockAddr) -> io::Result<Socket> {
    let socket = new_socket(address)?;
    // Without it, the workers share one socket.
    #[cfg(target_os = "linux")]
    optional("SO_REUSEPORT", socket.set_reuse_port(true));
    listen_with(socket, address)
}

fn new_socket(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, Some(Protocol::TCP))?;
    // Closed connections in TIME_WAIT do not keep the port.
    optional("SO_REUSEADDR", socket.set_reuse_address(true));
    Ok(socket)
}

fn listen_with(socket: Socket, address: &SockAddr) -> io::Result<Socket> {
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Opens a socket for the clients of a test.
#[cfg(test)]
pub(crate) fn bind_one(address: &tidegate_config::ListenAddress) -> std::net::TcpListener {
    listen(address.tcp().unwrap()).unwrap().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(sockets: &[Socket]) -> Vec<u16> {
        sockets.iter().map(|socket| socket.local_addr().unwrap().as_socket().unwrap().port()).collect()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn all_workers_share_a_system_chosen_port() {
        let ports = ports(&bind("127.0.0.1:0".parse().unwrap(), 3, Vec::new()).unwrap());
        assert_eq!(ports.len(), 3);
        assert_ne!(ports[0], 0);
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn bind_keeps_inherited_sockets_and_opens_missing_ones() {
        let inherited = bind("127.0.0.1:0".parse().unwrap(), 3, Vec::new()).unwrap();
        let address = inherited[0].local_addr().unwrap().as_socket().unwrap();
        assert_eq!(bind(address, 2, inherited).unwrap().len(), 3);
        let inherited = vec![listen("127.0.0.1:0".parse().unwrap()).unwrap()];
        let all = ports(&bind(address, 2, inherited).unwrap());
        assert!(all.len() == 2 && all[0] == all[1], "{all:?}");
    }

    #[test]
    fn port_is_free_once_its_listener_is_closed() {
        // No other test uses this address, so none can take the port in the meantime.
        let sockets = bind("127.3.5.7:0".parse().unwrap(), 1, Vec::new()).unwrap();
        sockets[0].set_nonblocking(false).unwrap();
        let address = sockets[0].local_addr().unwrap().as_socket().unwrap();
        assert_eq!(ensure_free(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = std::net::TcpStream::connect(address).unwrap();
        let accepted = sockets[0].accept().unwrap();
        drop(sockets);
        ensure_free(address).unwrap();
        drop(accepted); // the side that closes first keeps TIME_WAIT
        drop(client);
        ensure_free(address).unwrap();
    }

    #[test]
    fn socket_without_reuse_port_serves_all_workers() {
        let alone = Socket::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        assert_eq!(bind("127.0.0.1:0".parse().unwrap(), 3, vec![alone]).unwrap().len(), 1);
    }
}
