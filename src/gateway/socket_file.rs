//! The files of Unix sockets: their owners and their modes.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use socket2::{Domain, SockAddr, Socket, Type};

use super::socket_inode::{InodeId, SocketInode, inode_id, not_a_socket};

/// Maximum length of the accept queue. The kernel may apply a lower bound.
const BACKLOG: i32 = 4096;

/// The mode of a socket that only processes of its owner can connect to.
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// A listening socket, and the file of a Unix socket.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) socket: Socket,
    /// `None` for TCP, and for Unix sockets of systemd, which removes their files itself.
    pub(crate) file: Option<Arc<SocketFile>>,
}

/// The file of a listening Unix socket. Removed on drop if this process owns it and the path was not replaced.
///
/// Exactly one process owns a file, except during a handover: from the first socket that is sent until the successor
/// serves or fails, neither process removes files.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The mode that the file gets when this process becomes its owner.
    mode: OnceLock<u32>,
    /// The inode at the time when this process became its owner.
    inode: OnceLock<InodeId>,
    is_owned: AtomicBool,
}

/// Sockets that a successor receives.
pub(crate) type Sockets = Arc<Vec<Arc<ListeningSocket>>>;

/// The listening sockets of a gateway. A reload replaces them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentSockets(Arc<ArcSwap<Vec<Arc<ListeningSocket>>>>);

/// Listens on a Unix socket at `path`. Replaces a socket that no process listens on.
///
/// # Errors
/// Another process listens on the socket, the path is not a socket, or the system reports an error.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<ListeningSocket> {
    remove_stale(path)?;
    let socket = with_mode(Socket::new(Domain::UNIX, Type::STREAM, None)?, mode);
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::created_at(path, mode)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(ListeningSocket { socket, file: Some(Arc::new(file)) })
}

/// Sets the mode with which Linux creates the file in `bind`. The umask can only remove bits from it. Other systems
/// ignore this mode.
fn with_mode(socket: Socket, mode: u32) -> Socket {
    let file = File::from(OwnedFd::from(socket));
    _ = file.set_permissions(Permissions::from_mode(mode));
    OwnedFd::from(file).into()
}

/// Removes the socket file of a process that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) if !file.file_type().is_socket() => Err(not_a_socket()),
        Ok(_) => match is_in_use(path) {
            Ok(true) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on this socket")),
            Ok(false) => fs::remove_file(path),
            Err(error) => Err(error),
        },
    }
}

fn is_in_use(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A blocking connect would wait while the accept queue of the other process is full.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

// === impl ListeningSocket ===

impl ListeningSocket {
    pub(crate) fn without_file(socket: Socket) -> Self {
        Self { socket, file: None }
    }
}

// === impl CurrentSockets ===

impl CurrentSockets {
    /// Returns the sockets that are open now.
    pub(crate) fn get(&self) -> Sockets {
        self.0.load_full()
    }

    pub(super) fn replace(&self, sockets: Vec<Arc<ListeningSocket>>) {
        self.0.store(Arc::new(sockets));
    }
}

// === impl SocketFile ===

impl SocketFile {
    /// Owns the file at `path`, which this process has just created.
    ///
    /// # Errors
    /// The path is not a socket, or its mode cannot be set.
    fn created_at(path: &Path, mode: u32) -> io::Result<Self> {
        let file = Self::unowned(path);
        file.request_mode(mode);
        file.claim().map(|()| file)
    }

    /// Describes the file of a socket that another process opened and owns.
    pub(crate) fn unowned(path: &Path) -> Self {
        let (mode, inode) = (OnceLock::new(), OnceLock::new());
        Self { path: path.to_owned(), mode, inode, is_owned: AtomicBool::new(false) }
    }

    /// Sets the mode that the file gets when this process becomes its owner.
    pub(crate) fn request_mode(&self, mode: u32) {
        _ = self.mode.set(mode);
    }

    /// Makes this process the owner, and sets the requested mode.
    ///
    /// # Errors
    /// The path is not a socket, so there is no file to own; or its mode cannot be set.
    pub(crate) fn claim(&self) -> io::Result<()> {
        let inode = SocketInode::find(&self.path)?;
        _ = self.inode.set(inode.id());
        self.is_owned.store(true, Relaxed);
        self.mode.get().map_or(Ok(()), |mode| inode.set_mode(*mode))
    }

    /// Changes the mode of the file, if this process owns it.
    ///
    /// # Errors
    /// The path is not a socket, or its mode cannot be set.
    pub(crate) fn change_mode(&self, mode: u32) -> io::Result<()> {
        if self.is_owned.load(Relaxed) { SocketInode::find(&self.path)?.set_mode(mode) } else { Ok(()) }
    }

    /// Gives up the ownership in favour of a successor.
    pub(crate) fn lend(&self) {
        self.is_owned.store(false, Relaxed);
    }

    /// Owns the file again after the successor has failed.
    pub(crate) fn reclaim(&self) {
        self.is_owned.store(true, Relaxed);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Some(own) = self.inode.get().filter(|_| self.is_owned.load(Relaxed)) else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|file| inode_id(&file) == *own) {
            // A file that cannot be removed is replaced by the next process that listens on this path.
            _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Returns an unused path.
    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn stale_socket_is_replaced_and_removed_on_drop() {
        let path = path("stale");
        drop(UnixListener::bind(&path).unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let ListeningSocket { socket, file } = listen(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        assert!(UnixStream::connect(&path).is_ok());
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn socket_in_use_is_not_replaced() {
        let path = path("taken");
        let _listening = listen(&path, 0o600).unwrap();
        let error = listen(&path, 0o600).unwrap_err();
        assert_eq!(error.to_string(), "another process listens on this socket");
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn socket_with_a_full_queue_is_in_use() {
        let path = path("full");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        assert_eq!(listen(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file_that_is_not_a_socket_is_not_removed() {
        let path = path("file");
        fs::write(&path, "precious").unwrap();
        assert_eq!(listen(&path, 0o600).unwrap_err().to_string(), "the path exists and is not a socket");
        fs::remove_file(&path).unwrap();

        let ListeningSocket { socket: _socket, file } = listen(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn successor_removes_the_socket_file() {
        let path = path("left");
        let ListeningSocket { socket, file } = listen(&path, 0o600).unwrap();
        drop(SocketFile::unowned(&path));
        let successors = SocketFile::unowned(&path);
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
    fn reclaimed_file_is_removed() {
        let path = path("back");
        let ListeningSocket { file, .. } = listen(&path, 0o600).unwrap();
        let file = file.unwrap();
        file.lend();
        file.reclaim();
        drop(file);
        assert!(!path.exists());
    }

    /// Regression test: the mode was set by path, so that the mode of a link's target changed.
    #[test]
    fn mode_of_a_link_target_does_not_change() {
        let (path, target) = (path("link"), path("target"));
        fs::write(&target, "precious").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let error = SocketFile::created_at(&path, 0o666).unwrap_err();
        assert_eq!(error.to_string(), "the path exists and is not a socket");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&path).is_ok(), "the link still exists");
        fs::remove_file(&path).unwrap();
        fs::remove_file(&target).unwrap();
    }
}
