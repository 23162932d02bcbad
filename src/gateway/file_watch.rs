//! The task of the control thread that watches the rule file, the certificate files, and the files of API keys and tokens.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::identity_files::IdentityFiles;
use super::reload_file::RuleFileWatcher;
use crate::tls::CertificateWatcher;

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The time until the next poll if the rule file has just changed. A change is in force after at most both times.
const CHANGED_INTERVAL: Duration = Duration::from_millis(200);

/// Commands for the task.
pub(super) type FileWatchSender = UnboundedSender<FileWatchCommand>;

/// A command for the task.
#[derive(Debug)]
pub(super) enum FileWatchCommand {
    /// Watches the files of another TLS configuration.
    AddCertificates(CertificateWatcher),
    /// Watches the rule file.
    AddRules(RuleFileWatcher),
    /// Watches the files of API keys and tokens, and no longer the previous ones.
    ReplaceIdentities(IdentityFiles),
    /// Checks all certificate files now.
    CheckCertificates,
}

/// All watched files.
#[derive(Debug, Default)]
struct WatchedFiles {
    certificates: Vec<CertificateWatcher>,
    rules: Option<RuleFileWatcher>,
    identities: Option<IdentityFiles>,
}

/// Watches files until the gateway is dropped. Reads them on a blocking thread, because they may be on a network file
/// system.
pub(super) async fn watch_files(mut commands: UnboundedReceiver<FileWatchCommand>) {
    let mut files = WatchedFiles::default();
    loop {
        let command = match timeout(files.interval(), commands.recv()).await {
            Ok(None) => return,
            Ok(command) => command,
            Err(_) => None,
        };
        let checked = spawn_blocking(move || {
            match command {
                Some(FileWatchCommand::AddCertificates(watcher)) => files.certificates.push(watcher),
                Some(FileWatchCommand::AddRules(watcher)) => files.rules = Some(watcher),
                Some(FileWatchCommand::ReplaceIdentities(watcher)) => files.identities = Some(watcher),
                Some(FileWatchCommand::CheckCertificates) => {
                    files.certificates.iter_mut().for_each(CertificateWatcher::check);
                }
                None => files.poll(),
            }
            files
        });
        files = match checked.await {
            Ok(files) => files,
            Err(error) => return tracing::error!(%error, "file watcher failed, changes are no longer noticed"),
        };
    }
}

// === impl WatchedFiles ===

impl WatchedFiles {
    fn interval(&self) -> Duration {
        if self.rules.as_ref().is_some_and(RuleFileWatcher::is_changing) {
            return CHANGED_INTERVAL;
        }
        let intervals = self.certificates.iter().map(CertificateWatcher::check_interval);
        intervals.min().map_or(POLL_INTERVAL, |interval| interval.min(POLL_INTERVAL))
    }

    fn poll(&mut self) {
        self.certificates.iter_mut().for_each(CertificateWatcher::poll);
        let unused: Vec<_> = self.certificates.extract_if(.., |watcher| watcher.is_unused()).collect();
        if !unused.is_empty() {
            unused.iter().for_each(CertificateWatcher::remove_metrics);
            // Another watcher may have the same file.
            self.certificates.iter().for_each(CertificateWatcher::set_metrics);
        }
        self.identities.iter_mut().for_each(IdentityFiles::poll);
        self.rules.take_if(|watcher| watcher.poll().is_break());
    }
}
