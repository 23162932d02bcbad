//! Test certificates, and a Redis with TLS.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, date_time_ymd,
};

use super::redis::{RedisServer, free_port};

/// A certificate authority and the folder of its certificates. Dropping it removes the folder.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = params(&name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let authority = Self { issuer, folder };
        authority.write("ca.pem", &authority.issuer.pem());
        authority
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Writes a file atomically.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join("new"), text).expect("written");
        fs::rename(self.folder.join("new"), self.folder.join(file)).expect("renamed");
    }

    /// Signs `NAME.pem`, with its key `NAME.key`, for these hosts.
    pub fn sign(&self, name: &str, hosts: &[&str]) {
        self.sign_params(name, &params(name, hosts));
    }

    /// Signs a certificate with changed parameters.
    pub fn sign_with(&self, name: &str, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) {
        let mut params = params(name, hosts);
        change(&mut params);
        self.sign_params(name, &params);
    }

    /// Signs a certificate that has expired.
    pub fn sign_expired(&self, name: &str, hosts: &[&str]) {
        let mut params = params(name, hosts);
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.sign_params(name, &params);
    }

    /// Writes a list that revokes certificates with these serial numbers. It expires at the start of `year`.
    pub fn revoke(&self, file: &str, serials: &[u64], year: i32) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.write(file, &list.signed_by(&self.issuer).expect("a list").pem().expect("PEM"));
    }

    fn sign_params(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.write(&format!("{name}.pem"), &certificate.pem());
    }

    /// Starts a Redis with this certificate on an additional TLS port, which is returned. `auth` is the setting
    /// `tls-auth-clients`. The test itself uses the port without TLS.
    pub fn redis(&self, certificate: &str, auth: &str) -> Option<(RedisServer, u16)> {
        let (settings, port) = (self.redis_arguments(certificate, auth)?, free_port());
        let (port_text, mut with) = (port.to_string(), vec!["--tls-port"]);
        with.push(&port_text);
        with.extend(settings.iter().map(String::as_str));
        Some((RedisServer::start_with(None, &with)?, port))
    }

    /// Returns the arguments of a `redis-server` with this certificate, except its port; `None` if it has no TLS.
    pub fn redis_arguments(&self, certificate: &str, auth: &str) -> Option<Vec<String>> {
        let files = [("cert-file", format!("{certificate}.pem")), ("key-file", format!("{certificate}.key"))];
        let files = files.into_iter().chain([("ca-cert-file", "ca.pem".to_owned())]);
        let files = files.flat_map(|(setting, file)| [format!("--tls-{setting}"), self.path(&file)]);
        has_tls().then(|| files.chain(["--tls-auth-clients".to_owned(), auth.to_owned()]).collect())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns an entry of `listen` with these certificates. `more` is appended to its `tls` mapping.
pub fn listener(authority: &Authority, names: &[&str], more: &str) -> String {
    let file = |name: &str, kind: &str| authority.path(&format!("{name}.{kind}"));
    let one = |name: &&str| format!("{{ cert: '{}', key: '{}' }}", file(name, "pem"), file(name, "key"));
    let certificates: Vec<_> = names.iter().map(one).collect();
    format!("{{ address: '127.0.0.1:0', tls: {{ certificates: [{}]{more} }} }}", certificates.join(", "))
}

/// Returns `true` if `redis-server` supports TLS. Panics if it does not and `REDIS_WITHOUT_TLS` is unset;
/// `tests/server` sets it, because the servers that it builds have no TLS.
#[expect(clippy::print_stdout, reason = "a skipped test must be visible")]
fn has_tls() -> bool {
    // A server with TLS exits because it has no certificate. A server without TLS fails with another message.
    let started = Command::new("redis-server").args(["--port", "0", "--tls-port", "1", "--save", ""]).output();
    let has_tls =
        started.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("tls-cert-file configured"));
    assert!(has_tls || std::env::var_os("REDIS_WITHOUT_TLS").is_some(), "this redis-server has no TLS");
    if !has_tls {
        println!("NOT TESTED: this redis-server has no TLS");
    }
    has_tls
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
