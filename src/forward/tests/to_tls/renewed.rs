//! Files that change while requests are sent.

use super::*;
use crate::store::testing::logged_by;
use crate::tls::CertificateWatcher;

/// A gateway that shows what is in `me.pem` and `me.key`, and who looks after its files.
fn watched(origin: &Secure, authority: &Authority) -> (Gateway, CertificateWatcher) {
    let identity = Some(TlsIdentity { cert: authority.folder.join("me.pem"), key: authority.folder.join("me.key") });
    let tls = UpstreamTls { identity, ..authority.trusted() };
    let settings = secure(origin.address, tls.clone(), Protocol::Http1);
    let upstream = UpstreamSettings { tls: Some(tls), ..UpstreamSettings::new("api".into(), settings.targets.clone()) };
    let tls_configs = UpstreamTlsConfigs::read([&upstream]);
    let watch = tls_configs.watchers(&Arc::new(Metrics::new())).pop().unwrap();
    (Settings { tls_configs, ..settings }.start(), watch)
}

fn write_me(to: &Authority, from: &Authority) {
    let certificate = from.sign("gateway");
    to.write("me.pem", &certificate.0.pem());
    to.write("me.key", &certificate.1.serialize_pem());
}

#[tokio::test]
async fn files_that_change_are_used_by_new_connections_and_those_that_cannot_be_used_are_told() {
    let (old, new) = (Authority::new(), Authority::new());
    let origin = Secure::start(new.sign("localhost").server(&[], Some(&new)), once).await;
    write_me(&old, &old);
    let (gateway, mut watcher) = watched(&origin, &old);
    assert_eq!(hello(&gateway).await.0, 502);
    old.write("ca.pem", &new.issuer.pem());
    watcher.check();
    assert_eq!(hello(&gateway).await.0, 502, "the certificate that is shown is still the old one");
    write_me(&old, &new);
    let log = logged_by(|| watcher.check());
    assert!(log.contains("were reloaded") && log.contains("upstream api"), "{log}");
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
    old.write("me.pem", "no certificate");
    let log = logged_by(|| (0..5).for_each(|_| watcher.check()));
    assert_eq!(log.matches("keeping the previous ones").count(), 1, "{log}");
    assert!(log.contains("upstream api") && log.contains("is not PEM"), "{log}");
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
    assert!(origin.seen.lock().iter().all(|seen| seen.has_client));
}

#[tokio::test]
async fn files_that_could_not_be_read_at_first_are_used_when_they_can() {
    let authority = Authority::new();
    let origin = Secure::start(authority.sign("localhost").server(&[], Some(&authority)), once).await;
    let (gateway, mut watcher) = watched(&origin, &authority);
    assert_eq!(hello(&gateway).await, (502, "not sent".to_owned()));
    write_me(&authority, &authority);
    watcher.check();
    assert_eq!(hello(&gateway).await, (200, "ok".to_owned()));
}
