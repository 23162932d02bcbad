//! The file of `--state` with the ending `.operators` stores overrides and the audit list.
//!
//! A gateway that starts while Redis is unreachable, or has lost its data, applies and restores them. Reasons and addresses
//! of clients are in the file, so only the owner can read it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::checked_file;
use super::operators::Operators;
use tidegate_store::transfer::OperatorData;

/// The version of the file format.
const VERSION: u32 = 1;

/// The time between two checks for changes. Each write replaces the whole file.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The time until the next attempt after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// The path of the file.
#[derive(Clone, Debug)]
pub(super) struct SavedOperators(PathBuf);

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    #[serde(flatten)]
    data: OperatorData,
}

impl SavedOperators {
    /// Returns the file that belongs to this state file.
    pub(super) fn of_state(state: &Path) -> Self {
        let mut path = state.to_owned().into_os_string();
        path.push(".operators");
        Self(path.into())
    }

    /// Reads the data; empty data if there is no file. Logs a warning if the file is damaged or unreadable.
    pub(super) fn read(&self) -> OperatorData {
        self.try_read().unwrap_or_else(|error| {
            let path = self.0.display();
            tracing::warn!(%path, %error, "cannot read the saved overrides, starting without them");
            OperatorData::default()
        })
    }

    fn try_read(&self) -> io::Result<OperatorData> {
        let Some(json) = checked_file::read(&self.0)? else { return Ok(OperatorData::default()) };
        let Content { version, data } = serde_json::from_str(&json)?;
        if version != VERSION {
            let message = format!("the file has version {version}, not {VERSION}");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        Ok(data)
    }

    /// Writes the data after each change. Does not end.
    pub(super) async fn follow(self, operators: Operators) {
        let mut written = None;
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            let version = operators.version();
            if written.as_ref() != Some(&version) {
                let (file, operators) = (self.clone(), operators.clone());
                let is_written = spawn_blocking(move || file.write(&operators)).await.unwrap_or(false);
                written = is_written.then_some(version);
                if !is_written {
                    tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Replaces the file. Logs a failure. Creates no file without data. Returns `false` after a failure.
    pub(super) fn write(&self, operators: &Operators) -> bool {
        let content = Content { version: VERSION, data: operators.data() };
        if content.data == OperatorData::default() && !self.0.exists() {
            return true;
        }
        let written = serde_json::to_string(&content).map_err(io::Error::from);
        if let Err(error) = written.and_then(|json| checked_file::replace(&self.0, &json)) {
            tracing::warn!(path = %self.0.display(), %error, "cannot save the overrides for the next start");
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_store::StoredOverride;

    #[test]
    fn damaged_file_of_overrides_is_ignored() {
        let state = std::env::temp_dir().join(format!("tidegate-operators-{}", std::process::id()));
        let saved = SavedOperators::of_state(&state);
        assert_eq!(saved.read(), OperatorData::default());
        let entry = StoredOverride { id: "a".to_owned(), revision: 1, ends: 2, remembered: 3, text: None };
        let data = OperatorData { overrides: vec![entry], audit: vec!["{}".to_owned()] };
        let write = |version| {
            let content = Content { version, data: data.clone() };
            checked_file::replace(&saved.0, &serde_json::to_string(&content).expect("JSON")).expect("written");
        };
        write(VERSION);
        assert_eq!(saved.read(), data);
        let text = std::fs::read_to_string(&saved.0).expect("a file");
        for damaged in [text.replace("revision\":1", "revision\":9"), String::new()] {
            std::fs::write(&saved.0, damaged).expect("written");
            assert_eq!(saved.read(), OperatorData::default());
        }
        write(VERSION + 1);
        assert_eq!(saved.read(), OperatorData::default());
        std::fs::remove_file(&saved.0).expect("removed");
    }
}
