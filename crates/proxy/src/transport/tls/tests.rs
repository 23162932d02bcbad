//! Tests for the reload of certificate files, and for its log messages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::ocsp::testing::response as ocsp_response;
use super::settings::{CertificateFiles, ClientAuth, FILE_CHECK_INTERVAL, ListenTls, TlsVersion};
use super::termination::Termination;
use super::watch::CertificateWatcher;
use crate::testing::logged_by;
use tidegate_limit::clock::unix_seconds;
use tidegate_metrics::Metrics;

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

    /// Writes a new certificate and its key. The certificate expires after `seconds`.
    fn renew(&self, cert: &str, key: &str, seconds: i64) {
        let (certificate, private) = signed(seconds);
        self.write(cert, &certificate);
        self.write(key, &private);
    }

    fn settings(&self) -> ListenTls {
        let files = CertificateFiles { cert: self.0.join("cert"), key: self.0.join("key"), ocsp: None };
        let check_interval = FILE_CHECK_INTERVAL;
        let min_version = TlsVersion::Tls12;
        ListenTls { certificates: vec![files], min_version, client_auth: None, max_handshake_rate: 0, check_interval }
    }

    fn watcher(&self, metrics: &Arc<Metrics>) -> CertificateWatcher {
        watcher(&self.settings(), metrics)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn watcher(settings: &ListenTls, metrics: &Arc<Metrics>) -> CertificateWatcher {
    let termination = Termination::new(settings, true).unwrap();
    CertificateWatcher::new(Arc::new(termination), "a test", settings.check_interval, Arc::clone(metrics))
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

/// Returns for how many days a certificate is valid, according to the metric.
fn days(metrics: &Metrics, file: &Path) -> i64 {
    let series = format!("tidegate_certificate_expiry_seconds{{certificate=\"{}\"}} ", file.display());
    let text = metrics.render();
    let at = text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or_else(|| panic!("{series}\n{text}"));
    (at.parse::<i64>().unwrap() - i64::try_from(unix_seconds()).unwrap() + DAY / 2) / DAY
}

fn count(log: &str, text: &str) -> usize {
    log.matches(text).count()
}

#[test]
fn replaced_certificate_is_reloaded_and_logged() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::of_gateway(&[])));
    folder.renew("cert", "key", 40 * DAY);
    let mut watcher = folder.watcher(&metrics);
    assert_eq!(days(&metrics, &folder.0.join("cert")), 40);
    let log = logged_by(|| {
        watcher.check();
        folder.renew("cert", "key", 90 * DAY);
        watcher.check();
        watcher.check();
    });
    assert_eq!(count(&log, "were reloaded"), 1, "{log}");
    assert_eq!(days(&metrics, &folder.0.join("cert")), 90);
}

#[test]
fn unusable_files_are_logged_once_and_not_loaded() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::of_gateway(&[])));
    folder.renew("cert", "key", 40 * DAY);
    let mut watcher = folder.watcher(&metrics);
    let log = logged_by(|| {
        folder.write("cert", "no certificate");
        (0..5).for_each(|_| watcher.check());
        fs::remove_file(folder.0.join("cert")).unwrap();
        (0..5).for_each(|_| watcher.check());
    });
    assert_eq!(count(&log, "keeping the previous ones"), 2, "{log}");
    assert!(log.contains("is not PEM") && log.contains("cannot be read"), "{log}");
    assert_eq!(days(&metrics, &folder.0.join("cert")), 40);
    let log = logged_by(|| {
        folder.renew("cert", "key", 90 * DAY);
        watcher.check();
    });
    assert_eq!(count(&log, "were reloaded"), 1, "{log}");
}

/// The certificate is replaced first, and the key a moment later.
#[test]
fn temporary_mismatch_of_certificate_and_key_is_not_logged() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::of_gateway(&[])));
    folder.renew("cert", "key", 40 * DAY);
    let mut watcher = folder.watcher(&metrics);
    let (certificate, key) = signed(90 * DAY);
    let log = logged_by(|| {
        folder.write("cert", &certificate);
        watcher.check();
        folder.write("key", &key);
        watcher.check();
    });
    assert_eq!((count(&log, "WARN"), count(&log, "were reloaded")), (0, 1), "{log}");
}

/// Kubernetes replaces a mounted secret in this way: `cert` links to `..data/cert`, and `..data` to a dated folder.
#[test]
fn change_behind_symbolic_links_is_noticed() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::of_gateway(&[])));
    for (version, days) in [("..1", 40), ("..2", 90)] {
        fs::create_dir(folder.0.join(version)).unwrap();
        folder.renew(&format!("{version}/cert"), &format!("{version}/key"), days * DAY);
    }
    let data = folder.0.join("..data");
    symlink("..1", &data).unwrap();
    ["cert", "key"].iter().for_each(|file| symlink(format!("..data/{file}"), folder.0.join(file)).unwrap());
    let mut watcher = folder.watcher(&metrics);
    symlink("..2", folder.0.join("..new")).unwrap();
    fs::rename(folder.0.join("..new"), data).unwrap();
    watcher.check();
    assert_eq!(days(&metrics, &folder.0.join("cert")), 90);
}

#[test]
fn certificate_that_expires_soon_causes_one_warning() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::of_gateway(&[])));
    folder.renew("cert", "key", 13 * DAY);
    let log = logged_by(|| {
        let mut watcher = folder.watcher(&metrics);
        watcher.check();
        watcher.check();
    });
    assert_eq!(count(&log, "certificate expires soon"), 1, "{log}");
    folder.renew("cert", "key", 15 * DAY);
    let log = logged_by(|| folder.watcher(&metrics).check());
    assert_eq!(count(&log, "WARN"), 0, "{log}");
}

/// Returns the OCSP response that clients are sent.
async fn stapled(termination: &Arc<Termination>) -> Vec<u8> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let responses = Arc::new(OcspResponses::default());
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().dangerous();
    let config = config.with_custom_certificate_verifier(Arc::clone(&responses) as _).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let client = connector.connect(ServerName::try_from("a.example").unwrap(), stream);
    let (client, server) = tokio::join!(client, termination.accept(accepted));
    assert!(client.is_ok() && server.is_ok(), "{client:?} {server:?}");
    responses.0.lock().pop().expect("a certificate")
}

/// Accepts any certificate and records the OCSP responses.
#[derive(Debug, Default)]
struct OcspResponses(Mutex<Vec<Vec<u8>>>);

impl ServerCertVerifier for OcspResponses {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.lock().push(ocsp_response.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Regression test: an expired response was sent until its file was replaced.
#[tokio::test]
async fn expired_ocsp_response_is_not_sent() {
    let folder = Folder::new();
    folder.renew("cert", "key", 40 * DAY);
    let mut settings = folder.settings();
    settings.certificates[0].ocsp = Some(folder.0.join("ocsp"));
    let load = |seconds: i64| {
        let end = jiff::Timestamp::from_second(i64::try_from(unix_seconds()).unwrap() + seconds).unwrap();
        let response = ocsp_response(&[Some(&end.strftime("%Y%m%d%H%M%SZ").to_string())]);
        fs::write(folder.0.join("ocsp"), &response).unwrap();
        (Arc::new(Termination::new(&settings, true).unwrap()), response)
    };
    let (current, response) = load(DAY);
    assert_eq!(stapled(&current).await, response);
    let (expired, _) = load(-10);
    assert_eq!(stapled(&expired).await, b"");
    let (expiring, _) = load(1);
    crate::wire::soon(async { while !stapled(&expiring).await.is_empty() {} }).await;

    let log = logged_by(|| {
        let mut watcher = CertificateWatcher::new(expiring, "a test", FILE_CHECK_INTERVAL, Arc::default());
        watcher.check();
        watcher.check();
    });
    assert_eq!((count(&log, "OCSP response has expired"), count(&log, "WARN")), (1, 1), "{log}");
}

#[test]
fn reload_keeps_sessions_unless_the_client_ca_changes() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::of_gateway(&[])));
    folder.renew("cert", "key", 40 * DAY);
    folder.write("ca", &signed(40 * DAY).0);
    let client_auth = Some(ClientAuth { ca: folder.0.join("ca"), crl: None, required: false });
    let settings = ListenTls { client_auth, ..folder.settings() };
    let termination = Arc::new(Termination::new(&settings, true).unwrap());
    let mut watcher =
        CertificateWatcher::new(Arc::clone(&termination) as _, "a test", settings.check_interval, metrics);
    let ticket = termination.ticket(b"session").unwrap();
    folder.renew("cert", "key", 90 * DAY);
    watcher.check();
    assert!(termination.accepts_ticket(&ticket));
    folder.write("ca", &signed(50 * DAY).0);
    watcher.check();
    assert!(!termination.accepts_ticket(&ticket));
}
