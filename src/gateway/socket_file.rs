//! The files of Unix sockets: who removes them, and their modes.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use socket2::{Domain, SockAddr, Socket, Type};

use super::socket_inode::{SocketInode, UpstreamTlsConfig, identity, no_socket};

/// Connections that may wait to be accepted; the kernel takes the smaller of this and its own bound.
const BACKLOG: i32 = 4096;

/// The mode of a socket that only its user may connect to.
pub(crate) const OWNER_ALONE: u32 = 0o600;

/// A listening socket, with the file that goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) socket: Socket,
    /// None if it has no file, or one that is systemd's.
    pub(crate) file: Option<Arc<SocketFile>>,
}

/// The file of a listening socket. On drop, it is removed if this process owns it and the path still leads to it.
///
/// Exactly one process owns a file, except during a handover: from the first socket that a successor is sent until the
/// successor serves or fails, neither of the two removes files.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The mode that the file gets when this process becomes its owner.
    mode: OnceLock<u32>,
    /// Its device and inode, since this process became its owner.
    identity: OnceLock<UpstreamTlsConfig>,
    is_owned: AtomicBool,
}

/// Listens at `path`. Replaces a socket that is there already if no process listens on it.
///
/// # Errors
/// Another process listens there, the path is that of something else, or the system reports an error.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<Listening> {
    clear(path)?;
    let socket = with_mode(Socket::new(Domain::UNIX, Type::STREAM, None)?, mode);
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::at(path, mode)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(Listening { socket, file: Some(Arc::new(file)) })
}

/// Sets the mode with which Linux creates the file at the bind; the umask can only narrow it. Other systems create the file
/// with the umask's mode.
fn with_mode(socket: Socket, mode: u32) -> Socket {
    let file = File::from(OwnedFd::from(socket));
    _ = file.set_permissions(Permissions::from_mode(mode));
    OwnedFd::from(file).into()
}

/// Removes what a gateway that did not end in order has left.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) if !file.file_type().is_socket() => Err(no_socket()),
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
    /// The file at `path`, which this process has created.
    ///
    /// # Errors
    /// The path leads to something else than a socket, or its mode cannot be set.
    fn at(path: &Path, mode: u32) -> io::Result<Self> {
        let file = Self::of_another(path);
        file.request_mode(mode);
        file.claim().map(|()| file)
    }

    /// The file of a socket that another process has opened, and owns.
    pub(crate) fn of_another(path: &Path) -> Self {
        let (mode, identity) = (OnceLock::new(), OnceLock::new());
        Self { path: path.to_owned(), mode, identity, is_owned: AtomicBool::new(false) }
    }

    /// Sets the mode that the file gets when this process becomes its owner.
    pub(crate) fn request_mode(&self, mode: u32) {
        _ = self.mode.set(mode);
    }

    /// Makes this process the owner, and sets the mode that was requested.
    ///
    /// # Errors
    /// The path leads to something else than a socket: then there is no file to own. Or its mode cannot be set.
    pub(crate) fn claim(&self) -> io::Result<()> {
        let inode = SocketInode::find(&self.path)?;
        _ = self.identity.set(inode.identity());
        self.is_owned.store(true, Relaxed);
        self.mode.get().map_or(Ok(()), |mode| inode.set_mode(*mode))
    }

    /// Leaves the file to a successor.
    pub(crate) fn lend(&self) {
        self.is_owned.store(false, Relaxed);
    }

    /// Owns the file again, since the successor has failed.
    pub(crate) fn take_back(&self) {
        self.is_owned.store(true, Relaxed);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Some(own) = self.identity.get().filter(|_| self.is_owned.load(Relaxed)) else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == *own) {
            // If it cannot be removed, the next one to listen there replaces it.
            _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
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
    fn successor_removes_the_socket_file() {
        let path = path("left");
        let Listening { socket, file } = listen(&path, 0o600).unwrap();
        drop(SocketFile::of_another(&path));
        let successors = SocketFile::of_another(&path);
        successors.request_mode(0o660);
        file.as_ref().unwrap().lend();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok());
        successors.claim().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        drop((socket, successors));
        assert!(!path.exists());
    }

    #[test]
    fn file_that_was_taken_back_is_removed() {
        let path = path("back");
        let Listening { file, .. } = listen(&path, 0o600).unwrap();
        let file = file.unwrap();
        file.lend();
        file.take_back();
        drop(file);
        assert!(!path.exists());
    }

    /// Regression test: the mode was set by path, so and the mode of a link's target changed.
    #[test]
    fn mode_of_a_link_target_stays() {
        let (path, target) = (path("link"), path("target"));
        fs::write(&target, "precious").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let error = SocketFile::at(&path, 0o666).unwrap_err();
        assert_eq!(error.to_string(), "there is a file that is no socket");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&path).is_ok(), "the link is left alone");
        fs::remove_file(&path).unwrap();
        fs::remove_file(&target).unwrap();
    }
}
