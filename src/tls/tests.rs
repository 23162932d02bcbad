//! Files that are replaced, whole or in part, and what is told of it.

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
        let min_version = TlsVersion::Tls12;
        ListenTls { certificates: vec![files], min_version, client_auth: None, max_handshake_rate: 0, look_every }
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

/// Accepts any certificate, and keeps the OCSP responses.
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
async fn ocsp_response_is_not_sent_after_its_end() {
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
        let mut watch = Watch::new(expiring, "a test", LOOK_EVERY, Arc::default());
        watch.look();
        watch.look();
    });
    assert_eq!((times(&log, "OCSP response has expired"), times(&log, "WARN")), (1, 1), "{log}");
}

#[test]
fn sessions_of_before_are_known_unless_whom_to_trust_has_changed() {
    let (folder, metrics) = (Folder::new(), Arc::new(Metrics::new()));
    folder.renew("cert", "key", 40 * DAY);
    folder.write("ca", &signed(40 * DAY).0);
    let client_auth = Some(ClientAuth { ca: folder.0.join("ca"), required: false });
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
