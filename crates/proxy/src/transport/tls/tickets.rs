//! Session tickets of a listener with client certificates: a session is not resumed after a certificate has expired.
//!
//! rustls verifies a client's certificate only in a full handshake, and its tickets outlive the certificate. Therefore
//! each ticket of the gateway starts with the time at which the first certificate of the client's chain expires.

use std::sync::Arc;

use rustls::server::ProducesTickets;

use super::certificate::Certificate;
use tidegate_limit::clock::unix_seconds;

/// Session tickets that expire with the client's certificates.
#[derive(Debug)]
pub(super) struct BoundTickets {
    tickets: Arc<dyn ProducesTickets>,
    /// Whether every client must present a certificate.
    required: bool,
}

impl BoundTickets {
    pub(super) fn new(tickets: Arc<dyn ProducesTickets>, required: bool) -> Self {
        Self { tickets, required }
    }
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let expiry = match expiry(session) {
            Some(expiry) => expiry,
            // The session has a certificate, but rustls encodes it in an unknown way.
            None if self.required => return None,
            None => i64::MAX,
        };
        self.tickets.encrypt(&[&expiry.to_be_bytes(), session].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let plain = self.tickets.decrypt(ticket)?;
        let (expiry, session) = plain.split_first_chunk()?;
        let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        (now <= i64::from_be_bytes(*expiry)).then(|| session.to_vec())
    }
}

/// Returns the earliest expiry of the certificates in an encoded session, in seconds since the Unix epoch.
///
/// As in a handshake, each certificate follows its length of three bytes (RFC 8446 section 4.4.2).
fn expiry(mut session: &[u8]) -> Option<i64> {
    let mut earliest = None;
    while let Some((length, rest)) = session.split_first_chunk::<3>() {
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let found = rest.split_at_checked(length).and_then(|(der, rest)| Some((Certificate::parse(der)?, rest)));
        session = match found {
            Some((certificate, rest)) => {
                earliest = Some(earliest.map_or(certificate.not_after, |at: i64| at.min(certificate.not_after)));
                rest
            }
            None => &session[1..],
        };
    }
    earliest
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use rustls::crypto::ring;

    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".into()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    /// Encodes a session with a server name, a secret and these certificates.
    fn session(certificates: &[Vec<u8>]) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_be_bytes()[1..].to_vec();
        let chain: Vec<u8> = certificates.iter().flat_map(|der| [length(der), der.clone()].concat()).collect();
        [b"\x01\x09a.example\x30\x82\x01\x00".to_vec(), vec![7; 48], vec![1], length(&chain), chain, vec![0; 14]]
            .concat()
    }

    fn is_resumed(required: bool, session: &[u8]) -> Option<bool> {
        let tickets = BoundTickets::new(ring::Ticketer::new().unwrap(), required);
        let ticket = tickets.encrypt(session)?;
        Some(tickets.decrypt(&ticket).inspect(|plain| assert_eq!(plain, session)).is_some())
    }

    #[test]
    fn ticket_expires_with_the_first_certificate_of_the_chain() {
        assert_eq!(is_resumed(true, &session(&[certificate(2100), certificate(2101)])), Some(true));
        assert_eq!(is_resumed(true, &session(&[certificate(2001), certificate(2101)])), Some(false));
        assert_eq!(is_resumed(true, &session(&[certificate(2100), certificate(2001)])), Some(false));
    }

    #[test]
    fn required_certificate_is_needed_for_a_ticket() {
        assert_eq!(is_resumed(true, &session(&[])), None);
        assert_eq!(is_resumed(false, &session(&[])), Some(true));
        assert_eq!(is_resumed(false, &session(&[certificate(2001)])), Some(false));
    }
}
