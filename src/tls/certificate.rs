//! What a certificate says of itself (RFC 5280): how long it is valid, and for which names.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::der::{Der, GENERALIZED_TIME, INTEGER, OCTETS, OID, SEQUENCE, UTC_TIME};
use super::subject;
use crate::facts::TlsPeer;

/// `subjectAltName`.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 0x01;
const MAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;

/// A certificate, as far as it is looked at here.
#[derive(Debug)]
pub(crate) struct Certificate<'d> {
    /// Seconds since the Unix epoch.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    subject: &'d [u8],
    /// The names that it is for, each with the tag of its kind.
    names: Vec<(u8, &'d [u8])>,
}

impl<'d> Certificate<'d> {
    /// Nothing if it is none.
    pub(crate) fn read(der: &'d [u8]) -> Option<Self> {
        let mut body = Der(der).enter(SEQUENCE)?.enter(SEQUENCE)?;
        _ = body.optional(VERSION);
        body.value(INTEGER)?; // its number
        body.value(SEQUENCE)?; // how it is signed
        body.value(SEQUENCE)?; // by whom
        let mut validity = body.enter(SEQUENCE)?;
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = body.value(SEQUENCE)?;
        body.value(SEQUENCE)?; // the key
        let extensions = body.find(|(tag, _)| *tag == EXTENSIONS).and_then(|(_, value)| Der(value).enter(SEQUENCE));
        let names = extensions.and_then(alternative_names).map(Iterator::collect).unwrap_or_default();
        Some(Self { not_before, not_after, subject, names })
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> TlsPeer {
        let named = self.names.iter().find(|(tag, _)| matches!(*tag, MAIL | DNS_NAME | URI));
        let san = named.and_then(|(tag, name)| {
            let name =
                std::str::from_utf8(name).ok().filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()))?;
            Some(if *tag == DNS_NAME { name.to_ascii_lowercase() } else { name.to_owned() })
        });
        TlsPeer { subject: subject::text(self.subject), san: san.filter(|san| !san.is_empty()) }
    }

    /// Its names of hosts, which may begin with `*.`, in lower case.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = String> {
        let hosts = self.names.iter().filter(|(tag, _)| *tag == DNS_NAME);
        hosts.filter_map(|(_, name)| Some(std::str::from_utf8(name).ok()?.to_ascii_lowercase()))
    }
}

fn alternative_names(mut extensions: Der<'_>) -> Option<Der<'_>> {
    extensions.find_map(|(_, value)| {
        let mut extension = Der(value);
        (extension.value(OID)? == ALTERNATIVE_NAMES).then_some(())?;
        _ = extension.optional(BOOLEAN);
        Der(extension.value(OCTETS)?).enter(SEQUENCE)
    })
}

/// Seconds since the Unix epoch (section 4.1.2.5).
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
    let parts: Vec<i8> = (0..5).map(|at| rest.get(2 * at..2 * at + 2)?.parse().ok()).collect::<Option<_>>()?;
    let [month, day, hour, minute, second] = parts[..] else { return None };
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    // The end of the year 9999 stands for "never", and is a little later than can be counted.
    Some(TimeZone::UTC.to_timestamp(moment).map_or(i64::MAX, jiff::Timestamp::as_second))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    #[test]
    fn a_certificate_tells_its_hosts_and_its_time() {
        let mut params =
            CertificateParams::new(vec!["API.example.com".into(), "192.0.2.1".into(), "*.web.example".into()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2001, 2, 3), date_time_ymd(2051, 2, 3));
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = Certificate::read(signed.der()).unwrap();
        assert_eq!(read.hosts().collect::<Vec<_>>(), ["api.example.com", "*.web.example"]);
        assert_eq!((read.not_before, read.not_after), (981_158_400, 2_558_995_200));
    }

    #[test]
    fn its_owner_has_the_subject_and_the_first_name_that_says_who_it_is() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "alice");
        let (address, mail) = ("192.0.2.1".parse().unwrap(), "alice@example.com".try_into().unwrap());
        params.subject_alt_names = vec![SanType::IpAddress(address), SanType::Rfc822Name(mail)];
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let owner = Certificate::read(signed.der()).unwrap().owner();
        assert_eq!(owner.subject.as_deref(), Some(r"CN=alice,O=Example\, Inc."));
        assert_eq!(owner.san.as_deref(), Some("alice@example.com"));

        let mut params = CertificateParams::new(vec!["Api.Example".into()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let owner = Certificate::read(signed.der()).unwrap().owner();
        assert_eq!(owner, TlsPeer { subject: None, san: Some("api.example".into()) });
    }

    #[test]
    fn what_is_cut_off_anywhere_is_no_certificate_or_one_with_fewer_names() {
        let signed = CertificateParams::new(vec!["a.example".into()]).unwrap();
        let signed = signed.self_signed(&KeyPair::generate().unwrap()).unwrap();
        for length in 0..signed.der().len() {
            assert!(Certificate::read(&signed.der()[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn times_are_read_in_both_of_their_forms() {
        assert_eq!(time((UTC_TIME, b"700101000000Z")), Some(0));
        assert_eq!(time((GENERALIZED_TIME, b"19700101000001Z")), Some(1));
        assert_eq!(time((GENERALIZED_TIME, b"99991231235959Z")), Some(i64::MAX));
        for bad in [&b"700101000000"[..], b"701301000000Z", b"Z", b"7001010000Z", b"\xff00101000000Z"] {
            assert_eq!(time((UTC_TIME, bad)), None, "{bad:?}");
        }
    }
}
