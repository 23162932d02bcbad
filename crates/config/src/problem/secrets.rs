//! Texts that come from files. They are masked wherever the configuration is shown.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use ipnet::IpNet;

/// Texts of the configuration that come from files, in lowercase: parts of the configuration are shown in lowercase.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The longest text first, so that no part of it remains.
    texts: Vec<String>,
}

/// The replacement for a secret.
const MASK: &str = "***";

/// Shorter texts are masked only where they are the whole value, since they are parts of many words.
const MIN_PART: usize = 4;

/// The members of JSON whose texts are names or fixed words. Names cannot come from files, so a secret in a name is a
/// coincidence.
const PUBLIC: [&str; 7] = ["route", "limit", "name", "mode", "kind", "algorithm", "upstream"];

impl Secrets {
    pub(crate) fn add(&mut self, text: &str) {
        let text = text.trim().to_ascii_lowercase();
        if !text.is_empty() && !self.texts.contains(&text) {
            let place = self.texts.partition_point(|other| other.len() >= text.len());
            self.texts.insert(place, text);
        }
    }

    /// Replaces the secrets in a text.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // Lowercase ASCII letters have the same positions.
        let mut lowercase = text.to_ascii_lowercase();
        if self.texts.iter().any(|secret| secret == lowercase.trim()) {
            return MASK.into();
        }
        let mut masked = Cow::Borrowed(text);
        for secret in self.texts.iter().filter(|secret| secret.len() >= MIN_PART) {
            let (mut replaced, mut end) = (String::new(), 0);
            for (start, found) in lowercase.match_indices(secret.as_str()) {
                replaced.push_str(&masked[end..start]);
                replaced.push_str(MASK);
                end = start + found.len();
            }
            if end > 0 {
                replaced.push_str(&masked[end..]);
                lowercase = replaced.to_ascii_lowercase();
                masked = replaced.into();
            }
        }
        masked
    }

    /// Returns a function that returns `true` for texts with a secret, and for networks that a file spells differently.
    pub fn detector(&self) -> impl Fn(&str) -> bool {
        let address = |text: &str| text.parse::<std::net::IpAddr>().ok().map(IpNet::from);
        let network =
            |text: &String| text.parse().ok().or_else(|| address(text)).map(|network: IpNet| network.to_string());
        let networks: HashSet<String> = self.texts.iter().filter_map(network).collect();
        move |text| self.mask(text) != text || networks.contains(text)
    }

    /// Replaces the secrets in the texts of a JSON document, except in names and fixed words. Keys stay: they are no
    /// values of the rule file.
    pub fn mask_json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            _ if self.texts.is_empty() => {}
            Value::String(text) => *text = self.mask(text).into_owned(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(entries) => {
                let is_public = |key: &str, entry: &Value| entry.is_string() && PUBLIC.contains(&key);
                let masked = entries.iter_mut().filter(|(key, entry)| !is_public(key, entry));
                masked.for_each(|(_, entry)| self.mask_json(entry));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.texts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(texts: &[&str]) -> Secrets {
        let mut secrets = Secrets::default();
        texts.iter().for_each(|text| secrets.add(text));
        secrets
    }

    #[test]
    fn secret_is_masked_in_any_case_and_place() {
        let secrets = secrets(&["Hunter2\n", "abc", "hunter2-long", "***hunter"]);
        for (text, masked) in [
            ("HUNTER2", "***"),
            (" abc ", "***"),
            ("abcd", "abcd"),
            ("é hunter2, hunter2-LONG.", "é ***, ***."),
            ("", ""),
        ] {
            assert_eq!(secrets.mask(text), masked, "{text}");
        }
        assert_eq!(format!("{secrets:?}"), "Secrets(4)");
    }

    #[test]
    fn networks_are_secret_in_any_spelling() {
        let secrets = secrets(&["2001:0DB8:0:0::/48", "::1", "192.0.2.0/24"]);
        let is_secret = secrets.detector();
        for secret in ["2001:db8::/48", "::1/128", "192.0.2.0/24"] {
            assert!(is_secret(secret), "{secret}");
        }
        assert!(!is_secret("2001:db8::/47") && !is_secret("::/0"));
    }

    #[test]
    fn long_text_is_masked() {
        let count = 500_000;
        assert!(secrets(&["Hunter2"]).mask(&"hunter2 ".repeat(count)) == "*** ".repeat(count));
    }

    #[test]
    fn texts_of_json_are_masked() {
        let mut json = serde_json::json!({ "hunter2": ["x hunter2", 5, null, { "a": "hunter2" }] });
        secrets(&["hunter2"]).mask_json(&mut json);
        assert_eq!(json, serde_json::json!({ "hunter2": ["x ***", 5, null, { "a": "***" }] }));
        assert_eq!(secrets(&[]).mask("x"), "x");
    }

    #[test]
    fn names_in_json_are_not_masked() {
        let mut json = serde_json::json!({ "name": "shop", "route": { "name": "shop-1", "host": "shop.example" } });
        secrets(&["shop"]).mask_json(&mut json);
        let expected = serde_json::json!({ "name": "shop", "route": { "name": "shop-1", "host": "***.example" } });
        assert_eq!(json, expected);
    }
}
