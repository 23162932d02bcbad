//! The files of Unix sockets: made where nobody listens, removed by whoever listened last.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that may wait to be accepted; the kernel takes the smaller of this and its own bound.
const BACKLOG: i32 = 4096;

/// The mode of a socket that is its user's alone, and of any while it is not known who else may connect.
pub(crate) const OWNER_ALONE: u32 = 0o600;

/// A listening socket, with the file that goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) socket: Socket,
    /// None if it has no file, or one that is systemd's.
    pub(crate) file: Option<SocketFile>,
}

/// The file of a listening socket. On drop, it is removed if it is still the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Its device and number; none while it belongs to another process.
    file: Option<(u64, u64)>,
}

/// Listens at `path`. A socket that is there already is replaced if nobody listens on it.
///
/// # Errors
/// Somebody listens there, the path is that of something else, or the system says no.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<Listening> {
    clear(path)?;
    let socket = closed_to_others(Socket::new(Domain::UNIX, Type::STREAM, None)?);
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::at(path);
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(Listening { socket, file: Some(file) })
}

/// Has the file be made for its owner alone, whatever the umask allows. Linux does that; where another system does not,
/// the file has the umask's mode for a moment.
fn closed_to_others(socket: Socket) -> Socket {
    let file = File::from(OwnedFd::from(socket));
    _ = file.set_permissions(Permissions::from_mode(OWNER_ALONE));
    OwnedFd::from(file).into()
}

/// Removes what a gateway that did not end in order has left.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"))
        }
        Ok(_) => match somebody_listens(path) {
            Ok(true) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
            Ok(false) => fs::remove_file(path),
            Err(error) => Err(error),
        },
    }
}

fn somebody_listens(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Else it would wait while the other's queue is full.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

// === impl Listening ===

impl Listening {
    pub(crate) fn without_file(socket: Socket) -> Self {
        Self { socket, file: None }
    }
}

// === impl SocketFile ===

impl SocketFile {
    /// The file that is there now is ours.
    pub(crate) fn at(path: &Path) -> Self {
        let mut file = Self::of_another(path);
        file.claim();
        file
    }

    /// The file that is there is that of another process, which listens on the same socket.
    pub(crate) fn of_another(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }

    /// That process leaves it to this one.
    pub(crate) fn claim(&mut self) {
        self.file = fs::symlink_metadata(&self.path).ok().as_ref().map(identity);
    }

    /// Another process listens on the same socket from now on, and removes the file.
    pub(crate) fn leave(&mut self) {
        self.file = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Some(own) = self.file else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == own) {
            // If it cannot be removed, the next one to listen there replaces it.
            _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// A path that no other test uses, with nothing there.
    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_replaced_and_removed_at_the_end() {
        let path = path("stale");
        drop(UnixListener::bind(&path).unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let Listening { socket, file } = listen(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        assert!(UnixStream::connect(&path).is_ok());
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_somebody_listens_on_stays() {
        let path = path("taken");
        let _listening = listen(&path, 0o600).unwrap();
        let error = listen(&path, 0o600).unwrap_err();
        assert_eq!(error.to_string(), "another process listens there");
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_socket_with_a_full_queue_is_somebodys() {
        let path = path("full");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        assert_eq!(listen(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_stays_and_so_does_what_took_the_place_of_ours() {
        let path = path("file");
        fs::write(&path, "precious").unwrap();
        assert_eq!(listen(&path, 0o600).unwrap_err().to_string(), "there is a file that is no socket");
        fs::remove_file(&path).unwrap();

        let Listening { socket: _socket, file } = listen(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn whoever_was_left_the_socket_removes_its_file() {
        let path = path("left");
        let Listening { socket, mut file } = listen(&path, 0o600).unwrap();
        drop(SocketFile::of_another(&path));
        let successors = SocketFile::at(&path);
        file.as_mut().unwrap().leave();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok());
        drop((socket, successors));
        assert!(!path.exists());
    }
}
