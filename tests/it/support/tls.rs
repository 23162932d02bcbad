//! Certificates of the tests' own, and a Redis that has one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

use super::redis::{RedisServer, free_port};

/// An authority, and a folder of what it signed; gone with its owner.
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

    /// Where a file of this name is.
    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Writes a file, at once for those who read it meanwhile.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join("new"), text).expect("written");
        fs::rename(self.folder.join("new"), self.folder.join(file)).expect("renamed");
    }

    /// Signs `NAME.pem`, with its key `NAME.key`, for these hosts.
    pub fn sign(&self, name: &str, hosts: &[&str]) {
        self.sign_params(name, &params(name, hosts));
    }

    /// The same, with these parameters besides.
    pub fn sign_with(&self, name: &str, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) {
        let mut params = params(name, hosts);
        change(&mut params);
        self.sign_params(name, &params);
    }

    /// The same, but it was over long ago.
    pub fn sign_expired(&self, name: &str, hosts: &[&str]) {
        let mut params = params(name, hosts);
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.sign_params(name, &params);
    }

    fn sign_params(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.write(&format!("{name}.pem"), &certificate.pem());
    }

    /// Starts a Redis that shows this certificate on a port of its own, which is returned; `auth` says whether it wants one of
    /// its clients. Tests look behind the scenes by its other port.
    pub fn redis(&self, certificate: &str, auth: &str) -> Option<(RedisServer, u16)> {
        let (settings, port) = (self.server_settings(certificate, auth)?, free_port());
        let (port_text, mut with) = (port.to_string(), vec!["--tls-port"]);
        with.push(&port_text);
        with.extend(settings.iter().map(String::as_str));
        Some((RedisServer::start_with(None, &with)?, port))
    }

    /// What a server is told that shows this certificate, but for its port; nothing if servers have no TLS here.
    pub fn server_settings(&self, certificate: &str, auth: &str) -> Option<Vec<String>> {
        let files = [("cert-file", format!("{certificate}.pem")), ("key-file", format!("{certificate}.key"))];
        let files = files.into_iter().chain([("ca-cert-file", "ca.pem".to_owned())]);
        let files = files.flat_map(|(setting, file)| [format!("--tls-{setting}"), self.path(&file)]);
        knows_tls().then(|| files.chain(["--tls-auth-clients".to_owned(), auth.to_owned()]).collect())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// An entry of `listen` with the certificates of these names, and what else there is to say of TLS.
pub fn listener(authority: &Authority, names: &[&str], more: &str) -> String {
    let file = |name: &str, kind: &str| authority.path(&format!("{name}.{kind}"));
    let one = |name: &&str| format!("{{ cert: '{}', key: '{}' }}", file(name, "pem"), file(name, "key"));
    let certificates: Vec<_> = names.iter().map(one).collect();
    format!("{{ address: '127.0.0.1:0', tls: {{ certificates: [{}]{more} }} }}", certificates.join(", "))
}

/// Servers that `tests/server` builds have no TLS; it says so. Of any other one it is demanded.
#[expect(clippy::print_stdout, reason = "what was not tested must be said")]
fn knows_tls() -> bool {
    // One that has TLS ends since it is given no certificate; one without says something else, or does not know the setting.
    let told = Command::new("redis-server").args(["--port", "0", "--tls-port", "1", "--save", ""]).output();
    let knows = told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("tls-cert-file configured"));
    assert!(knows || std::env::var_os("REDIS_WITHOUT_TLS").is_some(), "this redis-server has no TLS");
    if !knows {
        println!("NOT TESTED: this redis-server has no TLS");
    }
    knows
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
