//! Reads the validity, the subject and the names of a certificate (RFC 5280).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::subject;
use tidegate_rules::request::facts::TlsPeer;
use tidegate_store::tls::pem::der::{Der, GENERALIZED_TIME, INTEGER, OCTET_STRING, OID, SEQUENCE, UTC_TIME};

/// Object identifier of `subjectAltName`.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 0x01;
const EMAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;

/// The fields of a certificate that the gateway uses.
#[derive(Debug)]
pub(crate) struct Certificate<'d> {
    /// Seconds since the Unix epoch.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    subject: &'d [u8],
    /// Its alternative names, each with the tag of its kind.
    names: Vec<(u8, &'d [u8])>,
}

impl<'d> Certificate<'d> {
    /// Parses a certificate. Returns `None` if `der` is not a certificate.
    pub(crate) fn parse(der: &'d [u8]) -> Option<Self> {
        let mut body = Der(der).enter(SEQUENCE)?.enter(SEQUENCE)?;
        _ = body.optional(VERSION);
        body.value(INTEGER)?; // serialNumber
        body.value(SEQUENCE)?; // signature
        body.value(SEQUENCE)?; // issuer
        let mut validity = body.enter(SEQUENCE)?;
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = body.value(SEQUENCE)?;
        body.value(SEQUENCE)?; // subjectPublicKeyInfo
        let extensions = body.find(|(tag, _)| *tag == EXTENSIONS).and_then(|(_, value)| Der(value).enter(SEQUENCE));
        let names = extensions.and_then(alternative_names).map(Iterator::collect).unwrap_or_default();
        Some(Self { not_before, not_after, subject, names })
    }

    /// Returns the identity of its owner: the subject and the first email address, DNS name or URI.
    pub(crate) fn owner(&self) -> TlsPeer {
        let first = self.names.iter().find(|(tag, _)| matches!(*tag, EMAIL | DNS_NAME | URI));
        let san = first.and_then(|(tag, name)| {
            let name =
                std::str::from_utf8(name).ok().filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()))?;
            Some(if *tag == DNS_NAME { name.to_ascii_lowercase() } else { name.to_owned() })
        });
        TlsPeer::new(subject::format_name(self.subject), san.filter(|san| !san.is_empty()))
    }

    /// Returns its DNS names in lower case. A name may begin with `*.`.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = String> {
        let hosts = self.names.iter().filter(|(tag, _)| *tag == DNS_NAME);
        hosts.filter_map(|(_, name)| Some(std::str::from_utf8(name).ok()?.to_ascii_lowercase()))
    }
}

fn alternative_names(mut extensions: Der<'_>) -> Option<Der<'_>> {
    extensions.find_map(|(_, value)| {
        let mut extension = Der(value);
        (extension.value(OID)? == SUBJECT_ALT_NAME).then_some(())?;
        _ = extension.optional(BOOLEAN);
        Der(extension.value(OCTET_STRING)?).enter(SEQUENCE)
    })
}

/// Parses a time (section 4.1.2.5) into seconds since the Unix epoch.
pub(super) fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let fields: Vec<i8> = (0..5).map(|at| rest.get(2 * at..2 * at + 2)?.parse().ok()).collect::<Option<_>>()?;
    let [month, day, hour, minute, second] = fields[..] else { return None };
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    // The last second of the year 9999 means "never expires", and is just above the largest timestamp.
    Some(TimeZone::UTC.to_timestamp(time).map_or(i64::MAX, jiff::Timestamp::as_second))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    #[test]
    fn hosts_and_validity_of_a_certificate_are_parsed() {
        let mut params =
            CertificateParams::new(vec!["API.example.com".into(), "192.0.2.1".into(), "*.web.example".into()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2001, 2, 3), date_time_ymd(2051, 2, 3));
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let parsed = Certificate::parse(signed.der()).unwrap();
        assert_eq!(parsed.hosts().collect::<Vec<_>>(), ["api.example.com", "*.web.example"]);
        assert_eq!((parsed.not_before, parsed.not_after), (981_158_400, 2_558_995_200));
    }

    #[test]
    fn owner_has_the_subject_and_the_first_identifying_name() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "alice");
        let (address, mail) = ("192.0.2.1".parse().unwrap(), "alice@example.com".try_into().unwrap());
        params.subject_alt_names = vec![SanType::IpAddress(address), SanType::Rfc822Name(mail)];
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let owner = Certificate::parse(signed.der()).unwrap().owner();
        assert_eq!(owner.subject.as_deref(), Some(r"CN=alice,O=Example\, Inc."));
        assert_eq!(owner.san.as_deref(), Some("alice@example.com"));

        let mut params = CertificateParams::new(vec!["Api.Example".into()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let owner = Certificate::parse(signed.der()).unwrap().owner();
        assert_eq!(owner, TlsPeer::new(None, Some("api.example".into())));
    }

    #[test]
    fn truncated_certificate_is_rejected() {
        let signed = CertificateParams::new(vec!["a.example".into()]).unwrap();
        let signed = signed.self_signed(&KeyPair::generate().unwrap()).unwrap();
        for length in 0..signed.der().len() {
            assert!(Certificate::parse(&signed.der()[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn utc_time_and_generalized_time_are_parsed() {
        assert_eq!(time((UTC_TIME, b"700101000000Z")), Some(0));
        assert_eq!(time((GENERALIZED_TIME, b"19700101000001Z")), Some(1));
        assert_eq!(time((GENERALIZED_TIME, b"99991231235959Z")), Some(i64::MAX));
        for bad in [&b"700101000000"[..], b"701301000000Z", b"Z", b"7001010000Z", b"\xff00101000000Z"] {
            assert_eq!(time((UTC_TIME, bad)), None, "{bad:?}");
        }
    }
}
