//! Spellings of other products that would match no request, or other requests than intended.
//!
//! A limit with such a condition is silently absent. If a literal text could be meant, the check warns; otherwise the
//! value is an error, and the functions here find its help.

mod paths;
mod values;

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;

pub(crate) use self::paths::{host_help, of_path, path_help, segment_help};
pub(crate) use self::values::{of_claim, of_item, of_part, of_tested_claim, of_value};
use crate::problem::{Location, Problems, quote, quote_all};

/// A value that is probably not intended: the message of a warning, and the right spelling.
pub(crate) struct Spelling {
    message: String,
    help: Cow<'static, str>,
}

impl Spelling {
    fn new(message: impl Into<String>, help: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), help: help.into() }
    }

    /// Adds the warning.
    pub(crate) fn warn(self, location: Location, problems: &mut Problems) {
        problems.warn(location, &self.message, self.help);
    }
}

/// Returns the right spelling of a method. Returns `None` for methods that clients can send.
pub(super) fn method_help(text: &str) -> Option<Cow<'static, str>> {
    const COMMON: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    if ["*", "any", "all"].iter().any(|all| text.eq_ignore_ascii_case(all)) {
        return Some("to match all methods, leave `methods` out".into());
    }
    if let Some(excluded) = text.strip_prefix('!') {
        return Some(format!("to exclude a method, write `not: {{ methods: {excluded} }}`").into());
    }
    let parts: Vec<_> = text.split(['|', ',', ' ']).map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.len() > 1 && parts.iter().all(|part| part.len() > 2) {
        return Some(format!("write a list: `[{}]`", parts.join(", ")).into());
    }
    let similar = COMMON.into_iter().find(|common| {
        *common != text
            && (common.eq_ignore_ascii_case(text) || (text.len() > 2 && strsim::osa_distance(common, text) == 1))
    });
    if let Some(common) = similar {
        return Some(format!("did you mean {}?", quote(common)).into());
    }
    if text.contains(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '-' | '_')) {
        return Some(
            format!("write a method or a list of methods without patterns, such as {}", quote_all(["GET", "POST"]))
                .into(),
        );
    }
    None
}

/// Returns the right spelling of a single address that is probably a network.
pub(crate) fn of_address(text: &str, network: &IpNet) -> Option<Spelling> {
    if text.contains('/') {
        return None;
    }
    let help = match network.addr() {
        address if address.is_unspecified() => {
            let all = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            format!("for all addresses, write {}", quote(all))
        }
        IpAddr::V4(address) if address.octets()[3] == 0 => {
            let bytes = address.octets().iter().rposition(|byte| *byte != 0).unwrap_or_default() + 1;
            let (network, single) = (format!("{text}/{}", 8 * bytes), format!("{text}/32"));
            format!(
                "for a network, write its length, such as {}; for the address, write {}",
                quote(&network),
                quote(&single)
            )
        }
        _ => return None,
    };
    Some(Spelling::new(format!("{} is a single address, which hardly any client has", quote(text)), help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_probably_networks_are_warned_about() {
        for (text, expected) in [
            ("0.0.0.0", Some("for all addresses, write `0.0.0.0/0`")),
            ("::", Some("for all addresses, write `::/0`")),
            (
                "10.0.0.0",
                Some("for a network, write its length, such as `10.0.0.0/8`; for the address, write `10.0.0.0/32`"),
            ),
            (
                "192.168.7.0",
                Some(
                    "for a network, write its length, such as `192.168.7.0/24`; for the address, write `192.168.7.0/32`",
                ),
            ),
            ("10.0.0.1", None),
            ("::1", None),
        ] {
            let network = text.parse::<IpAddr>().expect("an address").into();
            assert_eq!(of_address(text, &network).map(|spelling| spelling.help).as_deref(), expected, "{text}");
        }
        assert!(of_address("10.0.0.0/32", &"10.0.0.0/32".parse().expect("a network")).is_none());
    }

    #[test]
    fn methods_of_no_request_have_a_help() {
        for text in ["GET", "PURGE", "PROPFIND", "M-SEARCH", "BASELINE-CONTROL", "X_1"] {
            assert_eq!(method_help(text), None, "{text}");
        }
        for (text, help) in [
            ("*", "to match all methods, leave `methods` out"),
            ("ANY", "to match all methods, leave `methods` out"),
            ("GET|POST", "write a list: `[GET, POST]`"),
            ("GET, POST", "write a list: `[GET, POST]`"),
            ("!GET", "to exclude a method, write `not: { methods: GET }`"),
            ("^GET$", "write a method or a list of methods without patterns, such as `GET`, `POST`"),
            ("get", "did you mean `GET`?"),
        ] {
            assert_eq!(method_help(text).as_deref(), Some(help), "{text}");
        }
    }
}
