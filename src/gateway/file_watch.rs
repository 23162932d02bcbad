//! The task of the control thread that watches the rule file, the certificate files, and the files of API keys and tokens.

use std::thread::Builder;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::identity_files::IdentityFiles;
use super::reload_file::RuleFileWatcher;
use crate::admin::{Admin, GatewayProblem, ProblemKind};
use tidegate_proxy::transport::tls::{CertificateFault, CertificateWatcher, FileKind};

/// The time between two polls. A change of the rule file is in force after at most two.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The time after which a poll is logged as hung. A reload can take some seconds.
const HUNG_AFTER: Duration = Duration::from_secs(20);

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

/// Watches files until the gateway is dropped, and reports their problems to `admin`. Reads them on separate threads, which nothing waits for when the gateway
/// ends: a hung network file system can block a thread forever.
pub(super) async fn watch_files(mut commands: UnboundedReceiver<FileWatchCommand>, admin: Admin) {
    let mut files = WatchedFiles::default();
    loop {
        let command = match timeout(files.interval(), commands.recv()).await {
            Ok(None) => return,
            Ok(command) => command,
            Err(_) => None,
        };
        let (checked, result) = oneshot::channel();
        let check = move || {
            match command {
                Some(FileWatchCommand::AddCertificates(watcher)) => files.certificates.push(watcher),
                Some(FileWatchCommand::AddRules(watcher)) => files.rules = Some(watcher),
                Some(FileWatchCommand::ReplaceIdentities(watcher)) => files.identities = Some(watcher),
                Some(FileWatchCommand::CheckCertificates) => {
                    files.certificates.iter_mut().for_each(CertificateWatcher::check);
                }
                None => files.poll(),
            }
            _ = checked.send(files); // fails if the gateway has ended
        };
        let started = Builder::new().name("files".into()).spawn(check);
        files = match (started, wait(result, &admin).await) {
            (Ok(_), Some(files)) => files,
            _ => {
                admin.set_watched_problems(vec![watch_problem("the watcher has failed: restart the gateway")]);
                return tracing::error!("file watcher failed, changes are no longer noticed");
            }
        };
        admin.set_watched_problems(files.problems());
    }
}

/// Waits for the result of a thread. Returns `None` if the thread has failed.
async fn wait<T>(mut result: oneshot::Receiver<T>, admin: &Admin) -> Option<T> {
    if let Ok(result) = timeout(HUNG_AFTER, &mut result).await {
        return result.ok();
    }
    let seconds = HUNG_AFTER.as_secs();
    admin.set_watched_problems(vec![watch_problem("the file system does not respond: changes are not noticed")]);
    tracing::error!(seconds, "file system of watched files does not respond, changes are not noticed");
    let result = result.await.ok()?;
    tracing::warn!("file system of watched files responds again");
    Some(result)
}

fn watch_problem(message: &str) -> GatewayProblem {
    GatewayProblem::new(ProblemKind::FileWatch, "watched files", message)
}

fn certificate_problem(CertificateFault { kind, subject, message }: CertificateFault) -> GatewayProblem {
    let kind = match kind {
        FileKind::Certificate => ProblemKind::Certificate,
        FileKind::OcspResponse => ProblemKind::Ocsp,
        FileKind::RevocationLists => ProblemKind::Crl,
    };
    GatewayProblem::new(kind, subject, message)
}

// === impl WatchedFiles ===

impl WatchedFiles {
    fn interval(&self) -> Duration {
        let intervals = self.certificates.iter().map(CertificateWatcher::check_interval);
        intervals.min().map_or(POLL_INTERVAL, |interval| interval.min(POLL_INTERVAL))
    }

    fn problems(&self) -> Vec<GatewayProblem> {
        let certificates = self.certificates.iter().flat_map(CertificateWatcher::faults).map(certificate_problem);
        certificates.chain(self.identities.iter().flat_map(IdentityFiles::problems)).collect()
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
