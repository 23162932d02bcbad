//! The file of `--state` stores how many gateways share the store.
//!
//! Redis counts the gateways. Without the file, a gateway that starts while Redis is unreachable would assume that it
//! is the only one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use tidegate_rules::settings::files::open_regular;

/// The version of the file format.
const VERSION: u32 = 1;
/// A larger file is invalid.
const MAX_BYTES: u64 = 4_096;
/// A larger number is invalid.
const MAX_GATEWAYS: u32 = 1 << 16;

/// The path of the state file, and the number of gateways in it.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    gateways: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    gateways: u32,
}

impl StateFile {
    /// Reads the file. Logs a warning if it is damaged or unreadable. A missing file is created later.
    pub(crate) fn read(path: &Path) -> Self {
        let gateways = match read(path) {
            Ok(gateways) => Some(gateways),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the state file, starting without it");
                None
            }
        };
        Self { path: path.to_owned(), gateways }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of gateways in the file.
    pub(crate) fn gateways(&self) -> Option<u32> {
        self.gateways
    }

    /// Writes the number of gateways whenever it changes, until the store is dropped.
    pub(super) async fn follow(mut self, mut counted: watch::Receiver<Option<u32>>) {
        while counted.changed().await.is_ok() {
            let gateways = *counted.borrow_and_update();
            if gateways.is_none() || gateways == self.gateways {
                continue;
            }
            self.gateways = gateways;
            let file = self.clone();
            if let Ok(Err(error)) = spawn_blocking(move || file.write()).await {
                let path = self.path.display();
                tracing::warn!(%path, %error, "cannot write the state file");
            }
        }
    }

    /// Replaces the file atomically.
    fn write(&self) -> io::Result<()> {
        let content = Content { version: VERSION, gateways: self.gateways.unwrap_or(1) };
        // The process id in the name matters: a draining gateway may write at the same time as its successor.
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let written = write_new(Path::new(&temporary), &content).and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            _ = fs::remove_file(&temporary);
        }
        written
    }
}

fn write_new(path: &Path, content: &Content) -> io::Result<()> {
    let mut file = File::create(path)?;
    serde_json::to_writer(&mut file, content)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn read(path: &Path) -> io::Result<u32> {
    let mut text = String::new();
    let bytes = open_regular(path)?.0.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    let damaged = |message: String| io::Error::new(ErrorKind::InvalidData, message);
    if bytes as u64 > MAX_BYTES {
        return Err(damaged("the file is too large".to_owned()));
    }
    let content: Content = serde_json::from_str(&text)?;
    match content {
        Content { version: VERSION, gateways: gateways @ 1..=MAX_GATEWAYS } => Ok(gateways),
        Content { version: VERSION, gateways } => {
            Err(damaged(format!("the number of gateways is {gateways}, not 1 to {MAX_GATEWAYS}")))
        }
        Content { version, .. } => Err(damaged(format!("the file has version {version}, not {VERSION}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged_by;

    /// A path whose file is removed on drop.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("tidegate-state-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            _ = fs::remove_file(&self.0);
        }
    }

    #[tokio::test]
    async fn state_file_remembers_the_number_of_gateways() {
        let path = Temporary::new("remembers");
        let (sender, counted) = watch::channel(None);
        let follows = tokio::spawn(StateFile::read(&path.0).follow(counted));
        for gateways in [3, 2] {
            sender.send_replace(Some(gateways));
            while StateFile::read(&path.0).gateways() != Some(gateways) {
                tokio::task::yield_now().await;
            }
        }
        drop(sender);
        follows.await.expect("no panic");
        let folder = path.0.parent().expect("a folder");
        let name = path.0.file_name().expect("a name").to_string_lossy().into_owned();
        let left =
            fs::read_dir(folder).expect("entries").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        assert_eq!(left.filter(|other| other.starts_with(&name)).count(), 1);
    }

    #[test]
    fn damaged_state_file_is_a_warning() {
        let path = Temporary::new("damaged");
        assert_eq!(logged_by(|| assert_eq!(StateFile::read(&path.0).gateways(), None)), "");
        let long = " ".repeat(5_000);
        for text in
            ["", "{", "{\"version\":1}", "{\"version\":2,\"gateways\":3}", "{\"version\":1,\"gateways\":0}", &long]
        {
            fs::write(&path.0, text).expect("written");
            let log = logged_by(|| assert_eq!(StateFile::read(&path.0).gateways(), None));
            assert!(log.contains("cannot read the state file"), "{text}: {log}");
        }
        fs::write(&path.0, "{\"version\":1,\"gateways\":7,\"later\":true}").expect("written");
        assert_eq!(StateFile::read(&path.0).gateways(), Some(7));
    }
}
