//! The name of a gateway, for operators.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes.
const MAX_LENGTH: usize = 64;

/// The name that operators see: `--name`, or the host name. At most 64 letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct GatewayName(String);

impl GatewayName {
    /// Returns the name of the host. Characters that no name contains become `-`.
    pub(crate) fn of_host() -> Self {
        let host = rustix::system::uname();
        let text = host.nodename().to_string_lossy();
        let name: String =
            text.chars().take(MAX_LENGTH).map(|letter| if is_allowed(letter) { letter } else { '-' }).collect();
        Self(if name.is_empty() { "gateway".to_owned() } else { name })
    }

    /// Returns the name as a text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GatewayName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for GatewayName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_name = (1..=MAX_LENGTH).contains(&text.len()) && text.chars().all(is_allowed);
        if is_name { Ok(Self(text)) } else { Err("a name has 1 to 64 letters, digits, `.`, `_` and `-`") }
    }
}

impl From<GatewayName> for String {
    fn from(name: GatewayName) -> Self {
        name.0
    }
}

fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_only_letters_digits_and_marks() {
        assert_eq!("edge-1.rome_a".parse::<GatewayName>().map(String::from), Ok("edge-1.rome_a".to_owned()));
        for invalid in ["", "a b", "caf\u{e9}", "a\u{1b}[m", &"a".repeat(65)] {
            assert!(invalid.parse::<GatewayName>().is_err(), "{invalid:?}");
        }
        let host = GatewayName::of_host();
        assert_eq!(host.as_str().parse(), Ok(host.clone()));
    }
}
