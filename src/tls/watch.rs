//! Files that are replaced while connections are opened: certificates are renewed every few weeks, and nobody starts gateways for it.
//!
//! What the files hold is compared, not their times: those of Kubernetes are links to links, which are turned to another folder. A
//! certificate and its key are replaced one after the other, so that between two looks they may not belong together: a fault is
//! said when it is still there at the next look. Until files can be used, what could be is.

use std::sync::Arc;
use std::time::Duration;

use blake3::{Hash, Hasher};

use super::certified::date;
use super::renewal::{Kind, Renewable, Shown};
use crate::clock::unix_seconds;
use crate::metrics::Metrics;

/// How long before its end a certificate is warned of.
const SOON: i64 = 14 * 24 * 60 * 60;

/// Looks after files that belong together.
#[derive(Debug)]
pub(crate) struct Watch {
    of: Arc<dyn Renewable>,
    look_every: Duration,
    metrics: Arc<Metrics>,
    /// Whose they are, as operators are told.
    user: String,
    /// What all files held at the last look.
    seen: Hash,
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
    /// Looks after what has just been read. `user` tells operators whose it is.
    pub(crate) fn new(of: Arc<dyn Renewable>, user: &str, look_every: Duration, metrics: Arc<Metrics>) -> Self {
        let (seen, user) = (contents(&*of), user.to_owned());
        let mut watch = Self { of, look_every, metrics, user, seen, fault: None, shown: Vec::new() };
        watch.show();
        watch
    }

    /// How long until the next look.
    pub(crate) fn pause(&self) -> Duration {
        self.look_every
    }

    /// Looks at the files, and takes them into use where they have changed. It reads them, and may take its time.
    pub(crate) fn look(&mut self) {
        // Before they are read to be used: what changes meanwhile is seen at the next look.
        let seen = contents(&*self.of);
        if self.fault.is_some() || seen != self.seen {
            self.seen = seen;
            self.renew();
        }
        self.warn();
    }

    fn renew(&mut self) {
        match self.of.renew() {
            Ok(()) => {
                let files: Vec<_> = self.of.files().into_iter().map(|file| file.display().to_string()).collect();
                tracing::info!(user = self.user, ?files, "certificates have changed and are in use");
                self.fault = None;
                self.show();
            }
            Err(error) => self.note(error.to_string()),
        }
    }

    fn note(&mut self, what: String) {
        match &mut self.fault {
            Some(fault) if fault.what == what && fault.is_told => {}
            Some(fault) if fault.what == what => {
                let user = &self.user;
                tracing::warn!(
                    user,
                    fault = what,
                    "certificates have changed and cannot be used; what was in use stays so"
                );
                fault.is_told = true;
            }
            fault => *fault = Some(Fault { what, is_told: false }),
        }
    }

    fn show(&mut self) {
        let shown = self.of.shown();
        for one in shown.iter().filter(|one| one.kind == Kind::Certificate) {
            self.metrics.certificate_expires(&one.file.display().to_string(), one.not_after);
        }
        self.shown = shown.into_iter().map(|one| (one, Life::Long)).collect();
        self.warn();
    }

    /// Warns of what ends soon, once of each.
    fn warn(&mut self) {
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        for (Shown { kind, file, not_after }, told) in &mut self.shown {
            let life = match not_after.saturating_sub(now) {
                ..0 => Life::Over,
                // An OCSP response lives for a few days.
                0..SOON if *kind == Kind::Certificate => Life::Short,
                _ => Life::Long,
            };
            if life <= *told {
                continue;
            }
            let (certificate, on) = (file.display(), date(*not_after));
            match life {
                Life::Over if *kind == Kind::OcspResponse => {
                    let ocsp = file.display();
                    tracing::warn!(%ocsp, %on, "OCSP response has expired and is no longer sent to clients");
                }
                Life::Over => {
                    tracing::error!(%certificate, %on, "a certificate has expired: whoever is shown it refuses it");
                }
                Life::Short | Life::Long => tracing::warn!(%certificate, %on, "a certificate expires soon"),
            }
            *told = life;
        }
    }
}

/// What all files hold. One that cannot be read counts as one that holds something else.
fn contents(of: &dyn Renewable) -> Hash {
    let mut hasher = Hasher::new();
    for path in of.files() {
        match super::read_bounded(path) {
            Ok(text) => hasher.update(&(text.len() as u64).to_le_bytes()).update(&text),
            Err(error) => hasher.update(error.to_string().as_bytes()),
        };
    }
    hasher.finalize()
}
