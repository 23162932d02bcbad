//! Files that are replaced, whole or in part, and what is told of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{CertificateParams, KeyPair};

use super::settings::{CertificateFiles, ClientAuth, LOOK_EVERY, ListenTls, TlsVersion};
use super::termination::Termination;
use super::watch::Watch;
use crate::clock::unix_seconds;
use crate::metrics::Metrics;
use crate::store::testing::logged_by;

const DAY: i64 = 24 * 60 * 60;

/// A folder with the files of a listener.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-watch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    /// A new certificate in `cert` and `key`, valid for so long.
    fn renew(&self, cert: &str, key: &str, seconds: i64) {
        let (certificate, private) = signed(seconds);
        self.write(cert, &certificate);
        self.write(key, &private);
    }

    fn settings(&self) -> ListenTls {
        let files = CertificateFiles { cert: self.0.join("cert"), key: self.0.join("key"), ocsp: None };
        let look_every = LOOK_EVERY;
        ListenTls { certificates: vec![files], min_version: TlsVersion::Tls12, client_auth: None, look_every }
    }

    fn watch(&self, metrics: &Arc<Metrics>) -> Watch {
        watch(&self.settings(), metrics)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn watch(settings: &ListenTls, metrics: &Arc<Metrics>) -> Watch {
    let termination = Termination::new(settings, true).unwrap();
    Watch::new(Arc::new(termination), "a test", settings.look_every, Arc::clone(metrics))
}

fn signed(seconds: i64) -> (String, String) {
    let mut params = CertificateParams::new(vec!["a.example".into()]).unwrap();
    let end = std::time::UNIX_EPOCH
        + std::time::Duration::from_secs(unix_seconds())
        + std::time::Duration::from_secs(seconds.unsigned_abs());
    params.not_after = end.into();
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Days that the metric says a file is valid for.
fn days(metrics: &Metrics, file: &Path) -> i64 {
    let series = format!("tidegate_certificate_expiry_seconds{{certificate=\"{}\"}} ", file.display());
    let text = metrics.render();
    let at = text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or_else(|| panic!("{series}\n{text}"));
    (at.parse::<i64>().unwrap() - i64::try_from(unix_seconds()).unwrap() + DAY / 2) / DAY
}

fn times(log: &str, what: &str) -> usize {
    log.matches(what).count()
}

#[test]
fn a_certificate_that_is_replaced_is_taken_into_use_and_told() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    folder.renew("cert", "key", 40 * DAY);
    let mut watch = folder.watch(&metrics);
    assert_eq!(days(&metrics, &folder.0.join("cert")), 40);
    let log = logged_by(|| {
        watch.look();
        folder.renew("cert", "key", 90 * DAY);
        watch.look();
        watch.look();
    });
    assert_eq!(times(&log, "are in use"), 1, "{log}");
    assert_eq!(days(&metrics, &folder.0.join("cert")), 90);
}

#[test]
fn files_that_cannot_be_used_are_told_once_and_what_was_in_use_stays() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    folder.renew("cert", "key", 40 * DAY);
    let mut watch = folder.watch(&metrics);
    let log = logged_by(|| {
        folder.write("cert", "no certificate");
        (0..5).for_each(|_| watch.look());
        fs::remove_file(folder.0.join("cert")).unwrap();
        (0..5).for_each(|_| watch.look());
    });
    assert_eq!(times(&log, "what was in use stays so"), 2, "{log}");
    assert!(log.contains("is not PEM") && log.contains("cannot be read"), "{log}");
    assert_eq!(days(&metrics, &folder.0.join("cert")), 40);
    let log = logged_by(|| {
        folder.renew("cert", "key", 90 * DAY);
        watch.look();
    });
    assert_eq!(times(&log, "are in use"), 1, "{log}");
}

/// The certificate first, and the key a moment later.
#[test]
fn nothing_is_said_of_files_that_do_not_belong_together_for_a_moment() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    folder.renew("cert", "key", 40 * DAY);
    let mut watch = folder.watch(&metrics);
    let (certificate, key) = signed(90 * DAY);
    let log = logged_by(|| {
        folder.write("cert", &certificate);
        watch.look();
        folder.write("key", &key);
        watch.look();
    });
    assert_eq!((times(&log, "WARN"), times(&log, "are in use")), (0, 1), "{log}");
}

/// As Kubernetes replaces a mounted secret: `cert` leads to `..data/cert`, and `..data` to a folder with a date.
#[test]
fn links_that_lead_to_another_folder_are_followed() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    for (version, days) in [("..1", 40), ("..2", 90)] {
        fs::create_dir(folder.0.join(version)).unwrap();
        folder.renew(&format!("{version}/cert"), &format!("{version}/key"), days * DAY);
    }
    let data = folder.0.join("..data");
    symlink("..1", &data).unwrap();
    ["cert", "key"].iter().for_each(|file| symlink(format!("..data/{file}"), folder.0.join(file)).unwrap());
    let mut watch = folder.watch(&metrics);
    symlink("..2", folder.0.join("..new")).unwrap();
    fs::rename(folder.0.join("..new"), data).unwrap();
    watch.look();
    assert_eq!(days(&metrics, &folder.0.join("cert")), 90);
}

#[test]
fn a_certificate_that_ends_soon_is_warned_of_once() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    folder.renew("cert", "key", 13 * DAY);
    let log = logged_by(|| {
        let mut watch = folder.watch(&metrics);
        watch.look();
        watch.look();
    });
    assert_eq!(times(&log, "a certificate expires soon"), 1, "{log}");
    folder.renew("cert", "key", 15 * DAY);
    let log = logged_by(|| folder.watch(&metrics).look());
    assert_eq!(times(&log, "WARN"), 0, "{log}");
}

#[test]
fn sessions_of_before_are_known_unless_whom_to_trust_has_changed() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    folder.renew("cert", "key", 40 * DAY);
    folder.write("ca", &signed(40 * DAY).0);
    let client_auth = Some(ClientAuth { ca: folder.0.join("ca"), required: true });
    let settings = ListenTls { client_auth, ..folder.settings() };
    let termination = Arc::new(Termination::new(&settings, true).unwrap());
    let mut watch = Watch::new(Arc::clone(&termination) as _, "a test", settings.look_every, metrics);
    let ticket = termination.ticket(b"session").unwrap();
    folder.renew("cert", "key", 90 * DAY);
    watch.look();
    assert!(termination.knows(&ticket));
    folder.write("ca", &signed(50 * DAY).0);
    watch.look();
    assert!(!termination.knows(&ticket));
}
