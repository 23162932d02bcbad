//! Reads the user and the password of a request (RFC 7617).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::AUTHORIZATION;

use super::password::MAX_PASSWORD;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::IdentityFault;

/// The longest name of a user, in bytes.
pub(super) const MAX_USER: usize = 255;

/// The user and the password that a request contains.
pub(super) struct SentPassword {
    pub(super) user: String,
    pub(super) password: Vec<u8>,
}

impl SentPassword {
    /// Reads the field `Authorization`. Returns `None` if the request has none, or another scheme.
    ///
    /// # Errors
    /// Servers may read the field in different ways, or no user of the file can have this name or this password.
    pub(super) fn read(facts: &Facts<'_>) -> Result<Option<Self>, IdentityFault> {
        let mut values = facts.headers.get_all(AUTHORIZATION).iter().map(|value| value.as_bytes().trim_ascii());
        let Some(value) = values.next() else { return Ok(None) };
        if values.any(|other| other != value) {
            return Err(IdentityFault::MalformedPassword);
        }
        let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
        let (scheme, text) = value.split_at(end);
        match scheme.eq_ignore_ascii_case(b"basic") {
            true => Self::decode(text.trim_ascii()).map(Some),
            false => Ok(None),
        }
    }

    fn decode(text: &[u8]) -> Result<Self, IdentityFault> {
        let decoded = BASE64_STANDARD.decode(text).map_err(|_| IdentityFault::MalformedPassword)?;
        if decoded.iter().any(u8::is_ascii_control) {
            return Err(IdentityFault::MalformedPassword); // RFC 7617 section 2
        }
        let colon = decoded.iter().position(|byte| *byte == b':').ok_or(IdentityFault::MalformedPassword)?;
        let (user, password) = (&decoded[..colon], &decoded[colon + 1..]);
        if user.len() > MAX_USER || password.len() > MAX_PASSWORD {
            return Err(IdentityFault::WrongPassword);
        }
        let user = str::from_utf8(user).map_err(|_| IdentityFault::MalformedPassword)?;
        Ok(Self { user: user.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, Uri};
    use tidegate_rules::rules::{HostRequirement, Requests};

    use super::*;

    /// Returns the user and the password, or the fault.
    fn read(values: &[&str]) -> Result<Option<(String, Vec<u8>)>, IdentityFault> {
        let fields = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).expect("a value")));
        let (headers, uri) = (HeaderMap::from_iter(fields), Uri::from_static("/"));
        let facts = Facts::read(
            &Method::GET,
            &uri,
            HostRequirement::Optional,
            &headers,
            None::<std::net::IpAddr>,
            &Requests::default(),
        );
        let sent = SentPassword::read(&facts.expect("facts"))?;
        Ok(sent.map(|SentPassword { user, password }| (user, password)))
    }

    #[test]
    fn passwords_are_read_in_one_way() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        let ann = |password: &str| Ok(Some(("ann".to_owned(), password.as_bytes().to_vec())));
        assert_eq!(read(&[&basic("ann:a:b ")]), ann("a:b "));
        assert_eq!(read(&[&basic("ann:").replace("Basic ", "bASIC \t ")]), ann(""));
        assert_eq!(read(&[&basic("ann:x"), &basic("ann:x")]), ann("x"));
        assert_eq!(read(&[&basic(&format!("ann:{}", "x".repeat(72)))]), ann(&"x".repeat(72)));
        assert_eq!((read(&[]), read(&["Bearer a"]), read(&["Basicx"])), (Ok(None), Ok(None), Ok(None)));
        for malformed in [
            &[&*basic("ann:x"), &basic("ben:x")][..],
            &["Bearer a", &basic("ann:x")],
            &[&basic("ann")],
            &[&basic("ann:x\0y")],
            &[&basic("ann:x\n")],
            &["Basic"],
            &["Basic ann:x"],
            &["Basic YW5uOng"], // without its padding
            &["Basic YW5u Ong="],
        ] {
            assert_eq!(read(malformed), Err(IdentityFault::MalformedPassword), "{malformed:?}");
        }
        for wrong in [format!("ann:{}", "x".repeat(73)), format!("{}:x", "a".repeat(256))] {
            assert_eq!(read(&[&basic(&wrong)]), Err(IdentityFault::WrongPassword));
        }
    }
}
