//! Notices changed files by polling their metadata.
//!
//! Polling also works where notifications do not: on network file systems, in Kubernetes volumes, where a symbolic link
//! changes, and after a file was replaced by a rename. A changed file is read only after its metadata has been equal
//! twice, so that a file that is being written is not read halfway. It is read a second time later, because a change
//! within the resolution of the file system's clock may not change the metadata.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

mod detached;

pub use self::detached::read_detached;

/// Files that are polled together.
#[derive(Debug)]
pub struct FileWatch {
    paths: Vec<PathBuf>,
    /// The metadata at the last poll. `None` for a file that cannot be found.
    seen: Vec<Option<Stamp>>,
    state: State,
}

/// Files that are polled together, and whose contents are used only once two reads, one poll apart, were equal. A file
/// that is written in pieces can be valid before its end.
#[derive(Debug)]
pub struct StableFiles<T> {
    watch: FileWatch,
    /// The contents at the last read.
    last_read: Option<T>,
}

/// The metadata that changes with a file: of the file itself, if the path is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The files were read after their last change.
    Settled,
    /// The metadata has changed since the files were read.
    Changing,
    /// The files were read after a change, and are read again.
    Confirming,
}

impl FileWatch {
    /// Watches files that have just been read, or are about to be read.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let seen = stamps(&paths);
        // A file may have changed after it was read and before its metadata was.
        Self { paths, seen, state: State::Confirming }
    }

    /// Watches other files.
    pub fn set_paths(&mut self, paths: &[PathBuf]) {
        if self.paths != paths {
            *self = Self::new(paths.to_owned());
        }
    }

    /// Polls the metadata. Returns `true` if the files must be read now, because they may have changed.
    pub fn poll(&mut self) -> bool {
        let stamps = stamps(&self.paths);
        let is_stable = stamps == self.seen;
        self.seen = stamps;
        let (state, must_read) = match (self.state, is_stable) {
            (_, false) => (State::Changing, false),
            (State::Settled, true) => (State::Settled, false),
            (State::Changing, true) => (State::Confirming, true),
            (State::Confirming, true) => (State::Settled, true),
        };
        self.state = state;
        must_read
    }
}

impl<T: Clone + PartialEq> StableFiles<T> {
    /// Watches files that have just been read.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { watch: FileWatch::new(paths), last_read: None }
    }

    /// Watches other files.
    pub fn set_paths(&mut self, paths: &[PathBuf]) {
        self.watch.set_paths(paths);
    }

    /// Polls the metadata, and reads files that may have changed. Returns their contents if they must be used now.
    pub fn poll(&mut self, read: impl FnOnce() -> T) -> Option<T> {
        let must_read = self.watch.poll();
        if !must_read && self.watch.state != State::Changing {
            return None;
        }
        let contents = Some(read());
        let is_equal = contents == self.last_read;
        self.last_read.clone_from(&contents);
        if !is_equal {
            self.watch.state = State::Changing; // the next poll reads again
        }
        contents.filter(|_| must_read && is_equal)
    }
}

impl Stamp {
    /// Reads the metadata of a file or folder. Returns `None` if it cannot be found, and for pipes and devices: their
    /// contents change without it.
    pub fn read(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok().filter(|file| file.is_file() || file.is_dir())?;
        Some(Self {
            inode: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::read(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// A folder that is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidegate-watch-{name}-{}", std::process::id()));
            _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.path(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns a settled watch.
    fn watch(path: &Path) -> FileWatch {
        let mut watch = FileWatch::new(vec![path.to_owned()]);
        assert!(watch.poll());
        assert!(!watch.poll());
        watch
    }

    /// Checks that a change is noticed, and read twice.
    fn assert_changed(watch: &mut FileWatch) {
        let polls = [(); 5].map(|()| watch.poll());
        assert_eq!(polls, [false, true, true, false, false]);
    }

    #[test]
    fn written_and_renamed_and_recreated_files_are_noticed() {
        let folder = Folder::new("written");
        let path = folder.write("rules", "one");
        let mut watch = watch(&path);
        fs::write(&path, "another").unwrap();
        assert_changed(&mut watch);
        fs::rename(folder.write("new", "another"), &path).unwrap();
        assert_changed(&mut watch);
        fs::remove_file(&path).unwrap();
        assert_changed(&mut watch);
        fs::write(&path, "another").unwrap();
        assert_changed(&mut watch);
    }

    #[test]
    fn changed_symbolic_links_are_noticed() {
        let folder = Folder::new("links");
        for version in ["one", "two"] {
            fs::create_dir(folder.path(version)).unwrap();
            folder.write(&format!("{version}/rules"), "equal size");
        }
        // A Kubernetes volume: the path is a link through `..data`, which is replaced by a rename.
        symlink("one", folder.path("..data")).unwrap();
        symlink("..data/rules", folder.path("rules")).unwrap();
        let mut watch = watch(&folder.path("rules"));
        symlink("two", folder.path("..data_tmp")).unwrap();
        fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
        assert_changed(&mut watch);
        symlink("one/rules", folder.path("other")).unwrap();
        fs::rename(folder.path("other"), folder.path("rules")).unwrap();
        assert_changed(&mut watch);
    }

    /// Regression test: a file that was written in two pieces was used after the first one.
    #[test]
    fn contents_are_used_after_two_equal_reads() {
        let folder = Folder::new("stable");
        let path = folder.write("rules", "old");
        let read = || fs::read_to_string(&path).unwrap();
        let mut files = StableFiles::new(vec![path.clone()]);
        let settled = [(); 5].map(|()| files.poll(read).is_some());
        assert_eq!(settled, [false, true, true, false, false]);
        for piece in ["first", "first, second", "first, second and last"] {
            fs::write(&path, piece).unwrap();
            assert_eq!(files.poll(read), None, "{piece}");
        }
        assert_eq!(files.poll(read).as_deref(), Some("first, second and last"));
        // A change that does not show in the metadata.
        let mut versions = ["one", "two", "two", "two"].into_iter();
        let polls = [(); 4].map(|()| files.poll(|| versions.next().unwrap().to_owned()).is_some());
        assert_eq!(polls, [false, false, true, true]);
        assert_eq!(files.poll(|| "three".to_owned()), None);
    }

    #[test]
    fn file_is_not_read_while_it_changes() {
        let folder = Folder::new("changing");
        let path = folder.write("rules", "");
        let mut watch = watch(&path);
        for length in 1..20 {
            fs::write(&path, "x".repeat(length)).unwrap();
            assert!(!watch.poll());
        }
        assert!(watch.poll());
    }
}
