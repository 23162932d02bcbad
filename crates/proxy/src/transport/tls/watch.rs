//! Watches certificate files and reloads them when they change, so that a renewal needs no restart.
//!
//! The watcher polls the metadata of the files, and reads the files when the metadata has changed. A certificate and its
//! key are replaced one after the other, so that they may not match for a moment. Therefore an error is logged only if
//! it persists until the next check. Until the files can be loaded, the previous configuration stays active.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blake3::{Hash, Hasher};

use super::reload::{FileKind, PresentedCertificate, Reloadable};
use super::server_certificate::format_date;
use tidegate_limit::clock::{Stopwatch, unix_seconds};
use tidegate_metrics::Metrics;
use tidegate_rules::settings::files::read_bounded;
use tidegate_rules::watch::FileWatch;

/// Watches the files of one TLS configuration.
#[derive(Debug)]
pub struct CertificateWatcher {
    target: Arc<dyn Reloadable>,
    check_interval: Duration,
    metrics: Arc<Metrics>,
    /// The listener or upstream that uses the files, for log messages.
    user: String,
    /// Hash of the contents of all files at the last check.
    contents: Hash,
    error: Option<ReloadError>,
    watch: FileWatch,
    last_check: Stopwatch,
    /// The certificates, and the state of each that has already been logged.
    presented: Vec<(PresentedCertificate, Expiry)>,
}

/// Why the changed files could not be loaded.
#[derive(Debug)]
struct ReloadError {
    message: String,
    is_logged: bool,
}

/// A fault of the files of a TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFault {
    /// The purpose of the file.
    pub kind: FileKind,
    /// The file; if changed files cannot be loaded, the listener or upstream that uses them.
    pub subject: String,
    /// The fault, for operators.
    pub message: String,
}

/// How close a certificate is to its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expiry {
    Distant,
    Soon,
    Expired,
}

impl CertificateWatcher {
    /// Creates a watcher for a configuration that has just been loaded. `user` names the owner in log messages.
    pub fn new(target: Arc<dyn Reloadable>, user: &str, check_interval: Duration, metrics: Arc<Metrics>) -> Self {
        let watch = FileWatch::new(target.files().into_iter().map(Path::to_owned).collect());
        let (contents, user, last_check) = (hash_contents(&*target), user.to_owned(), Stopwatch::start());
        let (error, presented) = (None, Vec::new());
        let mut watcher = Self { target, check_interval, metrics, user, contents, error, watch, last_check, presented };
        watcher.update_presented();
        watcher
    }

    /// Returns the time after which files that cannot be loaded are checked again.
    pub fn check_interval(&self) -> Duration {
        self.check_interval
    }

    /// Returns `true` if nothing else uses the configuration any more.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.target) == 1
    }

    /// Polls the metadata, and checks the files if they may have changed. Blocks while it reads them.
    pub fn poll(&mut self) {
        let may_have_changed = self.watch.poll();
        let is_late = self.last_check.elapsed() >= self.check_interval;
        if may_have_changed || self.error.is_some() && is_late {
            self.check();
        } else if is_late {
            self.last_check = Stopwatch::start();
            self.warn_about_expiry();
        }
    }

    /// Checks the files, and reloads them if they have changed. Blocks while it reads them.
    pub fn check(&mut self) {
        self.last_check = Stopwatch::start();
        // Hashes the files before they are loaded: a change in between is noticed at the next check.
        let contents = hash_contents(&*self.target);
        if self.error.is_some() || contents != self.contents {
            self.contents = contents;
            self.reload();
        }
        self.warn_about_expiry();
    }

    fn reload(&mut self) {
        match self.target.reload() {
            Ok(()) => {
                let files: Vec<_> = self.target.files().into_iter().map(|file| file.display().to_string()).collect();
                tracing::info!(user = self.user, ?files, "certificate files changed and were reloaded");
                self.error = None;
                self.update_presented();
            }
            Err(error) => self.record_error(error.to_string()),
        }
    }

    /// Logs an error once, when it occurs for the second time in a row.
    fn record_error(&mut self, message: String) {
        match &mut self.error {
            Some(error) if error.message == message && error.is_logged => {}
            Some(error) if error.message == message => {
                let user = &self.user;
                tracing::warn!(
                    user,
                    fault = message,
                    "changed certificate files cannot be loaded, keeping the previous ones"
                );
                error.is_logged = true;
            }
            error => *error = Some(ReloadError { message, is_logged: false }),
        }
    }

    /// Returns the present faults of the files.
    pub fn faults(&self) -> Vec<CertificateFault> {
        // An error that was not logged may end with the second of two files that are replaced.
        let unusable = self.error.as_ref().filter(|error| error.is_logged).map(|error| CertificateFault {
            kind: FileKind::Certificate,
            subject: self.user.clone(),
            message: format!("changed files cannot be loaded, the previous ones stay in use: {}", error.message),
        });
        unusable.into_iter().chain(self.presented.iter().filter_map(|(one, _)| expiry_fault(one))).collect()
    }

    /// Sets the expiry metrics of the certificates.
    pub fn set_metrics(&self) {
        for (PresentedCertificate { kind, file, not_after, .. }, _) in &self.presented {
            match kind {
                FileKind::Certificate => self.metrics.set_certificate_expiry(&file.display().to_string(), *not_after),
                FileKind::RevocationLists => self.metrics.set_crl_expiry(&file.display().to_string(), *not_after),
                FileKind::OcspResponse => {}
            }
        }
    }

    /// Ends the expiry metrics of the certificates.
    pub fn remove_metrics(&self) {
        for (PresentedCertificate { kind, file, .. }, _) in &self.presented {
            match kind {
                FileKind::Certificate => self.metrics.remove_certificate_expiry(&file.display().to_string()),
                FileKind::RevocationLists => self.metrics.remove_crl_expiry(&file.display().to_string()),
                FileKind::OcspResponse => {}
            }
        }
    }

    fn update_presented(&mut self) {
        let presented = self.target.presented();
        self.presented = presented.into_iter().map(|one| (one, Expiry::Distant)).collect();
        self.set_metrics();
        self.warn_about_expiry();
    }

    /// Warns once about each certificate that expires soon, and once about each that has expired.
    fn warn_about_expiry(&mut self) {
        for (presented, logged) in &mut self.presented {
            let expiry = Expiry::of(presented);
            if expiry <= *logged {
                continue;
            }
            let PresentedCertificate { kind, file, not_after, .. } = presented;
            let (certificate, on) = (file.display(), format_date(*not_after));
            match expiry {
                Expiry::Expired if *kind == FileKind::OcspResponse => {
                    let ocsp = file.display();
                    tracing::warn!(%ocsp, %on, "OCSP response has expired and is no longer sent to clients");
                }
                Expiry::Expired if *kind == FileKind::RevocationLists => {
                    let crl = file.display();
                    tracing::error!(%crl, %on, "revocation list has expired and stays in use until a new one is there");
                }
                Expiry::Expired => {
                    tracing::error!(%certificate, %on, "certificate has expired and peers will reject it");
                }
                Expiry::Soon | Expiry::Distant => tracing::warn!(%certificate, %on, "certificate expires soon"),
            }
            *logged = expiry;
        }
    }
}

// === impl Expiry ===

impl Expiry {
    fn of(presented: &PresentedCertificate) -> Self {
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        match presented.not_after.saturating_sub(now) {
            ..0 => Self::Expired,
            left if left < presented.notice => Self::Soon,
            _ => Self::Distant,
        }
    }
}

/// Returns the fault of a file that expires soon or has expired.
fn expiry_fault(presented: &PresentedCertificate) -> Option<CertificateFault> {
    let at = format_date(presented.not_after);
    let message = match (Expiry::of(presented), presented.kind) {
        (Expiry::Distant, _) => return None,
        (Expiry::Soon, _) => format!("expires soon, at {at}: renew the file"),
        (Expiry::Expired, FileKind::Certificate) => format!("has expired at {at}, and peers reject it: renew the file"),
        (Expiry::Expired, FileKind::OcspResponse) => format!("has expired at {at}, and is no longer sent to clients"),
        (Expiry::Expired, FileKind::RevocationLists) => format!("has expired at {at}, and stays in use"),
    };
    Some(CertificateFault { kind: presented.kind, subject: presented.file.display().to_string(), message })
}

/// Hashes the contents of all files. An unreadable file contributes its error instead.
fn hash_contents(target: &dyn Reloadable) -> Hash {
    let mut hasher = Hasher::new();
    for path in target.files() {
        match read_bounded(path) {
            Ok(text) => hasher.update(&(text.len() as u64).to_le_bytes()).update(&text),
            Err(error) => hasher.update(error.to_string().as_bytes()),
        };
    }
    hasher.finalize()
}
