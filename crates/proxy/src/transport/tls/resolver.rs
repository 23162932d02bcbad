//! Selects the certificate for a client by the server name in its handshake.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::server_certificate::ServerCertificate;

/// Certificates by their DNS names.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    /// The certificates of each name, in the order of the rule file. If their keys are of different kinds, a client
    /// gets the first one that it can verify.
    exact: HashMap<String, Vec<Arc<ServerCertificate>>>,
    /// The certificates for `*.example.com`, under the key `example.com`. The wildcard matches exactly one label.
    wildcard: HashMap<String, Vec<Arc<ServerCertificate>>>,
    /// All certificates with the names of the first one: for clients that send no server name, or an unknown one.
    default: Vec<Arc<ServerCertificate>>,
}

impl CertificateResolver {
    pub(super) fn new(certificates: &[Arc<ServerCertificate>]) -> Self {
        let mut resolver = Self { exact: HashMap::new(), wildcard: HashMap::new(), default: Vec::new() };
        let hosts_of_first = certificates.first().map(|first| hosts(first));
        for certificate in certificates {
            let hosts = hosts(certificate);
            if hosts_of_first.as_ref() == Some(&hosts) {
                resolver.default.push(Arc::clone(certificate));
            }
            for host in hosts {
                let (map, host) = match host.strip_prefix("*.") {
                    Some(parent) => (&mut resolver.wildcard, parent.to_owned()),
                    None => (&mut resolver.exact, host),
                };
                map.entry(host).or_default().push(Arc::clone(certificate));
            }
        }
        resolver
    }

    fn find(&self, server_name: Option<&str>) -> &[Arc<ServerCertificate>] {
        let found = server_name.and_then(|name| {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(&name).or_else(wildcard)
        });
        found.unwrap_or(&self.default)
    }
}

fn hosts(certificate: &ServerCertificate) -> Vec<String> {
    let parsed = certificate.presented().cert.first().and_then(|der| Certificate::parse(der));
    parsed.map(|parsed| parsed.hosts().collect()).unwrap_or_default()
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.find(hello.server_name());
        let can_be_verified = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let mut keys = candidates.iter().map(|certificate| certificate.presented());
        keys.clone().find(can_be_verified).or_else(|| keys.next()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use rustls::crypto::ring;

    use super::*;

    fn certificate(hosts: &[&str]) -> Arc<ServerCertificate> {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let signed = rcgen::CertificateParams::new(hosts).unwrap().self_signed(&key).unwrap();
        let key = key.serialize_der().try_into().unwrap();
        let key = CertifiedKey::from_der(vec![signed.der().clone()], key, &ring::default_provider()).unwrap();
        Arc::new(key.into())
    }

    #[test]
    fn exact_name_precedes_wildcard_and_first_is_default() {
        let certificates = [
            certificate(&["api.example"]),
            certificate(&["*.web.example", "web.example"]),
            certificate(&["special.web.example"]),
        ];
        let resolver = CertificateResolver::new(&certificates);
        let index = |server_name: Option<&str>| {
            let found = resolver.find(server_name);
            assert_eq!(found.len(), 1);
            certificates.iter().position(|one| Arc::ptr_eq(one, &found[0])).unwrap()
        };
        for (server_name, expected) in [
            ("api.example", 0),
            ("API.Example.", 0),
            ("web.example", 1),
            ("a.web.example", 1),
            ("special.web.example", 2),
            ("a.b.web.example", 0),
            ("other.example", 0),
            ("example", 0),
        ] {
            assert_eq!(index(Some(server_name)), expected, "{server_name}");
        }
        assert_eq!(index(None), 0);
    }

    #[test]
    fn certificates_with_the_same_names_keep_their_order() {
        let certificates = [certificate(&["a.example"]), certificate(&["a.example"]), certificate(&["b.example"])];
        let resolver = CertificateResolver::new(&certificates);
        for server_name in [Some("a.example"), Some("unknown"), None] {
            let found = resolver.find(server_name);
            assert!(found.len() == 2 && Arc::ptr_eq(&found[0], &certificates[0]), "{server_name:?}");
        }
    }
}
