//! Certificate files that change while the gateway runs.

use std::fs::{File, read_to_string, remove_file};

use super::*;

/// Returns the settings of a gateway whose client certificate is `me.pem` and `me.key`.
fn with_files(origin: &TlsOrigin, authority: &Authority) -> Settings {
    let more = format!(", cert: '{}', key: '{}'", authority.path("me.pem"), authority.path("me.key"));
    to(origin.address, &trusting(authority, &more), "http1")
}

/// Copies files of `from`.
fn copy(from: &Authority, to: &Authority, files: &[&str]) {
    for file in files {
        to.write(file, &read_to_string(from.path(file)).unwrap());
    }
}

/// Checks the certificate files `count` times, and returns the log.
fn log_of_checks(gateway: &mut Gateway, authority: &Authority, count: usize) -> String {
    let log = Arc::new(File::create(authority.path("log")).unwrap());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
    tracing::subscriber::with_default(subscriber, || (0..count).for_each(|_| gateway.local.check_certificates()));
    read_to_string(authority.path("log")).unwrap()
}

#[tokio::test]
async fn changed_files_are_used_and_bad_files_are_logged() {
    let (old, new) = (Authority::new(), Authority::new());
    let origin = TlsOrigin::start(server_for(&new, "localhost", &[], Some(&new)), respond_once).await;
    old.sign("me", &["gateway"]);
    let mut gateway = with_files(&origin, &old).start();
    assert_eq!(hello(&gateway).await.0, 502);
    copy(&new, &old, &["ca.pem"]);
    gateway.local.check_certificates();
    assert_eq!(hello(&gateway).await.0, 502, "the gateway still presents the old certificate");
    new.sign("me", &["gateway"]);
    copy(&new, &old, &["me.pem", "me.key"]);
    let log = log_of_checks(&mut gateway, &old, 1);
    assert!(log.contains("were reloaded") && log.contains("upstream api"), "{log}");
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
    old.write("me.pem", "no certificate");
    let log = log_of_checks(&mut gateway, &old, 5);
    assert_eq!(log.matches("keeping the previous ones").count(), 1, "{log}");
    assert!(log.contains("upstream api") && log.contains("is not PEM"), "{log}");
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
    assert!(origin.handshakes.lock().iter().all(|handshake| handshake.has_client_certificate));
}

#[tokio::test]
async fn missing_files_are_used_once_they_exist() {
    let authority = Authority::new();
    let origin = TlsOrigin::start(server_for(&authority, "localhost", &[], Some(&authority)), respond_once).await;
    authority.sign("me", &["gateway"]);
    let config = with_files(&origin, &authority).config();
    remove_file(authority.path("me.pem")).unwrap();
    let mut gateway = Gateway::new(&config);
    assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    authority.sign("me", &["gateway"]);
    gateway.local.check_certificates();
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
}
