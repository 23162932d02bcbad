//! The inode of a Unix socket's file. The lookup follows no symbolic link, and a later replacement of the path has no
//! effect.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The inode of a socket's file.
pub(super) struct SocketInode {
    metadata: Metadata,
    handle: Handle,
}

/// A descriptor that only identifies the file (`O_PATH`).
#[cfg(target_os = "linux")]
type Handle = fs::File;

/// Other systems do not have `O_PATH`.
#[cfg(not(target_os = "linux"))]
type Handle = std::path::PathBuf;

/// The device and the inode number.
pub(super) type InodeId = (u64, u64);

impl SocketInode {
    /// Opens the inode of the socket at `path`.
    ///
    /// # Errors
    /// The path is not a socket, for example a symbolic link.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let (metadata, handle) = open(path)?;
        if metadata.file_type().is_socket() { Ok(Self { metadata, handle }) } else { Err(not_a_socket()) }
    }

    pub(super) fn id(&self) -> InodeId {
        inode_id(&self.metadata)
    }

    /// Sets the permission bits, unless the file has them already.
    ///
    /// # Errors
    /// Another user owns the file, or the system reports another error.
    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        if self.metadata.mode() & 0o777 == mode { Ok(()) } else { set_mode(&self.handle, mode) }
    }
}

pub(super) fn inode_id(file: &Metadata) -> InodeId {
    (file.dev(), file.ino())
}

pub(super) fn not_a_socket() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket")
}

#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<(Metadata, Handle)> {
    use rustix::fs::{Mode, OFlags, open};

    let file = fs::File::from(open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
    Ok((file.metadata()?, file))
}

/// Changes the mode through `/proc`: `fchmod` rejects `O_PATH` descriptors, and `fchmod` of a listening socket
/// does not change its file.
#[cfg(target_os = "linux")]
fn set_mode(file: &Handle, mode: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), fs::Permissions::from_mode(mode))
}

#[cfg(not(target_os = "linux"))]
fn open(path: &Path) -> io::Result<(Metadata, Handle)> {
    Ok((fs::symlink_metadata(path)?, path.to_owned()))
}

#[cfg(not(target_os = "linux"))]
fn set_mode(path: &Handle, mode: u32) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Mode, RawMode, chmodat};

    Ok(chmodat(CWD, path, Mode::from_raw_mode(mode as RawMode), AtFlags::SYMLINK_NOFOLLOW)?)
}
