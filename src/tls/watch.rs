//! Files that are replaced while clients connect: certificates are renewed every few weeks, and nobody starts gateways for it.
//!
//! What the files hold is compared, not their times: those of Kubernetes are links to links, which are turned to another folder. A
//! certificate and its key are replaced one after the other, so that between two looks they may not belong together: a fault is
//! said when it is still there at the next look. Until files can be used, what could be is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blake3::{Hash, Hasher};

use super::certified::date;
use super::settings::ListenTls;
use super::termination::{Shown, Termination};
use crate::clock::unix_seconds;
use crate::metrics::Metrics;

/// How long before its end a certificate is warned of.
const SOON: i64 = 14 * 24 * 60 * 60;

/// Looks after the files of a listener.
#[derive(Debug)]
pub(crate) struct Watch {
    termination: Arc<Termination>,
    metrics: Arc<Metrics>,
    /// What all files held at the last look.
    seen: Hash,
    /// Whom clients' certificates are trusted from, in what is in use.
    trusted: Option<Hash>,
    fault: Option<Fault>,
    shown: Vec<(Shown, Life)>,
}

/// Why the files cannot be used.
#[derive(Debug)]
struct Fault {
    what: String,
    is_told: bool,
}

/// How much of its life a certificate has before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Long,
    Short,
    Over,
}

impl Watch {
    /// Looks after what has just been read.
    pub(crate) fn new(termination: Arc<Termination>, shown: Vec<Shown>, metrics: Arc<Metrics>) -> Self {
        let (seen, trusted) = (contents(termination.settings()), trusted(termination.settings()));
        let mut watch = Self { termination, metrics, seen, trusted, fault: None, shown: Vec::new() };
        watch.show(shown);
        watch
    }

    /// How long until the next look.
    pub(crate) fn pause(&self) -> Duration {
        self.termination.settings().look_every
    }

    /// Looks at the files, and takes them into use where they have changed. It reads them, and may take its time.
    pub(crate) fn look(&mut self) {
        // Before they are read to be used: what changes meanwhile is seen at the next look.
        let seen = contents(self.termination.settings());
        if self.fault.is_some() || seen != self.seen {
            self.seen = seen;
            self.reload();
        }
        self.warn();
    }

    fn reload(&mut self) {
        let trusted = trusted(self.termination.settings());
        match self.termination.reload(trusted != self.trusted) {
            Ok(shown) => {
                let files: Vec<_> = shown.iter().map(|one| one.file.display()).collect();
                tracing::info!(?files, "certificates have changed and are in use");
                (self.trusted, self.fault) = (trusted, None);
                self.show(shown);
            }
            Err(error) => self.note(error.to_string()),
        }
    }

    fn note(&mut self, what: String) {
        match &mut self.fault {
            Some(fault) if fault.what == what && fault.is_told => {}
            Some(fault) if fault.what == what => {
                tracing::warn!(fault = what, "certificates have changed and cannot be used; what was in use stays so");
                fault.is_told = true;
            }
            fault => *fault = Some(Fault { what, is_told: false }),
        }
    }

    fn show(&mut self, shown: Vec<Shown>) {
        for one in &shown {
            self.metrics.certificate_expires(&one.file.display().to_string(), one.not_after);
        }
        self.shown = shown.into_iter().map(|one| (one, Life::Long)).collect();
        self.warn();
    }

    /// Warns of what ends soon, once of each.
    fn warn(&mut self) {
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        for (Shown { file, not_after }, told) in &mut self.shown {
            let life = match not_after.saturating_sub(now) {
                ..0 => Life::Over,
                0..SOON => Life::Short,
                _ => Life::Long,
            };
            if life <= *told {
                continue;
            }
            let (certificate, on) = (file.display(), date(*not_after));
            match life {
                Life::Over => tracing::error!(%certificate, %on, "a certificate has expired: clients refuse it"),
                Life::Short | Life::Long => tracing::warn!(%certificate, %on, "a certificate expires soon"),
            }
            *told = life;
        }
    }
}

/// What all files hold.
fn contents(ListenTls { certificates, client_auth, .. }: &ListenTls) -> Hash {
    let mut hasher = Hasher::new();
    for files in certificates {
        [Some(&files.cert), Some(&files.key), files.ocsp.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|path| add(path, &mut hasher));
    }
    client_auth.iter().for_each(|auth| add(&auth.ca, &mut hasher));
    hasher.finalize()
}

fn trusted(tls: &ListenTls) -> Option<Hash> {
    let read = |path: &PathBuf| std::fs::read(path).ok().map(|text| blake3::hash(&text));
    tls.client_auth.as_ref().and_then(|auth| read(&auth.ca))
}

/// A file that cannot be read counts as one that holds something else.
fn add(path: &Path, hasher: &mut Hasher) {
    match std::fs::read(path) {
        Ok(text) => hasher.update(&(text.len() as u64).to_le_bytes()).update(&text),
        Err(error) => hasher.update(error.to_string().as_bytes()),
    };
}
