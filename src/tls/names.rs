//! Which certificate a client is shown.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::certified::Certified;

/// Certificates by the names of hosts in them.
#[derive(Debug)]
pub(super) struct Names {
    /// Under each name, in the order of the rule file: where it has certificates with keys of different kinds, a client is
    /// shown the first that it can verify.
    exact: HashMap<String, Vec<Arc<Certified>>>,
    /// Under `example.com` those for `*.example.com`, which is any one label before it.
    wild: HashMap<String, Vec<Arc<Certified>>>,
    /// Those that have the names of the first: for clients that ask for no name, or for one that none has.
    default: Vec<Arc<Certified>>,
}

impl Names {
    pub(super) fn new(certificates: &[Arc<Certified>]) -> Self {
        let mut names = Self { exact: HashMap::new(), wild: HashMap::new(), default: Vec::new() };
        let of_first = certificates.first().map(|first| hosts(first));
        for certified in certificates {
            let hosts = hosts(certified);
            if of_first.as_ref() == Some(&hosts) {
                names.default.push(Arc::clone(certified));
            }
            for host in hosts {
                let (map, host) = match host.strip_prefix("*.") {
                    Some(parent) => (&mut names.wild, parent.to_owned()),
                    None => (&mut names.exact, host),
                };
                map.entry(host).or_default().push(Arc::clone(certified));
            }
        }
        names
    }

    fn of(&self, asked: Option<&str>) -> &[Arc<Certified>] {
        let named = asked.and_then(|asked| {
            let asked = asked.strip_suffix('.').unwrap_or(asked).to_ascii_lowercase();
            let wild = || self.wild.get(asked.split_once('.')?.1);
            self.exact.get(&asked).or_else(wild)
        });
        named.unwrap_or(&self.default)
    }
}

fn hosts(certified: &Certified) -> Vec<String> {
    let certificate = certified.presented().cert.first().and_then(|der| Certificate::read(der));
    certificate.map(|certificate| certificate.hosts().collect()).unwrap_or_default()
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fitting = self.of(hello.server_name());
        let verifiable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let mut presented = fitting.iter().map(|certified| certified.presented());
        presented.clone().find(verifiable).or_else(|| presented.next()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use rustls::crypto::ring;

    use super::*;

    fn certified(hosts: &[&str]) -> Arc<Certified> {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let signed = rcgen::CertificateParams::new(hosts).unwrap().self_signed(&key).unwrap();
        let key = key.serialize_der().try_into().unwrap();
        let key = CertifiedKey::from_der(vec![signed.der().clone()], key, &ring::default_provider()).unwrap();
        Arc::new(key.into())
    }

    #[test]
    fn an_exact_name_comes_before_a_wildcard_and_the_first_certificate_is_for_all_others() {
        let certificates = [
            certified(&["api.example"]),
            certified(&["*.web.example", "web.example"]),
            certified(&["special.web.example"]),
        ];
        let names = Names::new(&certificates);
        let number = |asked: Option<&str>| {
            let found = names.of(asked);
            assert_eq!(found.len(), 1);
            certificates.iter().position(|one| Arc::ptr_eq(one, &found[0])).unwrap()
        };
        for (asked, expected) in [
            ("api.example", 0),
            ("API.Example.", 0),
            ("web.example", 1),
            ("a.web.example", 1),
            ("special.web.example", 2),
            ("a.b.web.example", 0),
            ("other.example", 0),
            ("example", 0),
        ] {
            assert_eq!(number(Some(asked)), expected, "{asked}");
        }
        assert_eq!(number(None), 0);
    }

    #[test]
    fn certificates_with_the_same_names_are_kept_in_their_order() {
        let certificates = [certified(&["a.example"]), certified(&["a.example"]), certified(&["b.example"])];
        let names = Names::new(&certificates);
        for asked in [Some("a.example"), Some("nobody"), None] {
            let found = names.of(asked);
            assert!(found.len() == 2 && Arc::ptr_eq(&found[0], &certificates[0]), "{asked:?}");
        }
    }
}
