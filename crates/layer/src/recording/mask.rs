//! Replaces a value by one that the rules read in the same way.
//!
//! Servers read some spellings differently, and the rules take that into account. So a replacement is tested: of several
//! spellings, the first is used from which the rules read the same as from the original.

use std::borrow::Cow;

use http::header::{COOKIE, HeaderMap, HeaderValue};
use http::{HeaderName, Method};

use super::inputs::{Input, Reading};
use super::key::Key;
use tidegate_rules::client::{ClientSource, spelling};
use tidegate_rules::request::facts::Facts;

/// The most lines or pairs of a request that are compared with the constants of conditions.
const MAX_PARTS: usize = 32;

/// The most digits of a cost.
const MAX_DIGITS: usize = 20;

/// Invalid base64 of JSON, which identifies no client in any field.
const MALFORMED: &str = "eyJ!";

/// The lines of a header field, the pairs of `Cookie`, or the pairs of the query.
pub(super) type Parts = Vec<String>;

impl Input {
    /// Returns the parts to record. Returns `None` if the rules would read all of them differently.
    pub(super) fn mask(&self, facts: &Facts<'_>, key: &Key) -> Option<Parts> {
        let read = self.read(facts);
        let replace = |value: Vec<u8>| self.replace(&value, key).into_bytes();
        let client = read.client.map(replace);
        let first = read.first.map(|first| first.map(replace));
        let expected = Reading { client, first, ..read };
        let mut candidates = self.candidates(&expected, facts, key);
        candidates.find(|parts| self.read_parts(parts) == expected)
    }

    /// Returns the text for a value. Costs and readable constants of the rules stay, also as parts of a value.
    fn replace(&self, value: &[u8], key: &Key) -> String {
        let is_cost = !self.costs.is_empty() && value.len() <= MAX_DIGITS && value.iter().all(u8::is_ascii_digit);
        match str::from_utf8(value) {
            Ok(text) if value.is_empty() || is_cost || self.is_readable(value) => text.to_owned(),
            _ => {
                let (text, pattern) =
                    (key.text(&self.name, value), self.patterns.iter().find(|pattern| pattern.matches(value)));
                pattern.and_then(|pattern| pattern.example(&text)).unwrap_or(text)
            }
        }
    }

    /// Returns the parts that can replace the value, the most likely ones first.
    fn candidates(&self, expected: &Reading, facts: &Facts<'_>, key: &Key) -> Box<dyn Iterator<Item = Parts>> {
        let text = match expected.first.as_ref().unwrap_or(&expected.client) {
            Ok(value) => String::from_utf8_lossy(value).into_owned(),
            Err(_) => key.text(&self.name, b""),
        };
        match &self.source {
            ClientSource::Header(name) => {
                let lines = facts.headers.get_all(name).iter().take(MAX_PARTS).map(|line| line.as_bytes().trim_ascii());
                let lines: Parts = lines.map(|line| self.replace(line, key)).collect();
                let first = if expected.client.is_ok() { vec![text] } else { lines.clone() };
                let others = [lines, vec![MALFORMED.to_owned()], Vec::new()];
                Box::new(std::iter::once(first).chain(others))
            }
            ClientSource::Cookie(name) => {
                let sent = facts
                    .headers
                    .get_all(COOKIE)
                    .iter()
                    .flat_map(|line| line.as_bytes().split(|byte| b";,".contains(byte)));
                let malformed = [MALFORMED.to_owned(), format!("\"{text}"), format!("{text}%")];
                let mut constants = self.constants(sent, str::to_owned);
                // Some servers decode values of cookies.
                let decoded = |constant: &String| match encoded(constant) {
                    encoded if encoded == *constant => respelled(constant),
                    encoded => encoded,
                };
                constants.extend(constants.clone().iter().map(decoded));
                Box::new(pairs([name.clone(), respelled(name)], &text, constants, malformed))
            }
            ClientSource::Query(name) => {
                let sent = facts.query.unwrap_or_default().as_bytes().split(|byte| b"&;".contains(byte));
                let malformed = [MALFORMED.to_owned(), format!("{text}%"), format!("{text};")];
                let (name, text) = (encoded(name), encoded(&text));
                let respelled = format!("+{name}");
                Box::new(pairs([name, respelled], &text, self.constants(sent, encoded), malformed))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Returns the values of sent pairs with which conditions compare.
    fn constants<'s>(&self, sent: impl Iterator<Item = &'s [u8]>, encode: impl Fn(&str) -> String) -> Vec<String> {
        let mut constants: Vec<String> = Vec::new();
        for pair in sent.take(MAX_PARTS) {
            let value = pair.splitn(2, |byte| *byte == b'=').last().unwrap_or_default().trim_ascii();
            for value in [Ok(Cow::Borrowed(value)), spelling::decode(value)].into_iter().flatten() {
                let text = str::from_utf8(&value).ok().filter(|_| self.is_readable(&value)).map(&encode);
                constants.extend(text.filter(|text| !constants.contains(text)));
            }
        }
        constants
    }

    /// Reads parts as a replay will.
    fn read_parts(&self, parts: &[String]) -> Reading {
        let (mut headers, mut query) = (HeaderMap::new(), None);
        let mut append = |name: &HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.append(name.clone(), value);
            }
        };
        match &self.source {
            ClientSource::Header(name) => parts.iter().for_each(|line| append(name, line)),
            ClientSource::Cookie(_) if !parts.is_empty() => append(&COOKIE, &parts.join("; ")),
            ClientSource::Query(_) if !parts.is_empty() => query = Some(parts.join("&")),
            _ => {}
        }
        self.read(&Facts {
            method: &Method::GET,
            host: "".into(),
            path: "/".into(),
            query: query.as_deref(),
            headers: &headers,
            peer: None,
            peer_is_client: true,
            peer_is_trusted: false,
            tls: None,
            extensions: None,
            identity: None,
            time: None,
            body: None,
        })
    }
}

/// Returns combinations of names and values: a missing, usual, empty, repeated or malformed value, with both names.
fn pairs(
    names: [String; 2],
    text: &str,
    constants: Vec<String>,
    malformed: [String; 3],
) -> impl Iterator<Item = Parts> + use<> {
    let other = format!("{text}x");
    let mut values = vec![vec![text.to_owned()]];
    values.extend(constants.iter().map(|constant| vec![constant.clone()]));
    values.push(vec![text.to_owned(), other.clone()]);
    values.extend(malformed.iter().map(|value| vec![value.clone()]));
    values.extend(malformed.into_iter().map(|value| vec![value, other.clone()]));
    values.push(vec![String::new()]);
    values.extend(constants.into_iter().map(|constant| vec![constant, other.clone()]));
    let named = names.into_iter().flat_map(move |name| {
        let with_name = move |values: Vec<String>| values.iter().map(|value| format!("{name}={value}")).collect();
        values.clone().into_iter().map(with_name)
    });
    std::iter::once(Vec::new()).chain(named)
}

/// Percent-encodes the first letter.
fn respelled(text: &str) -> String {
    let first = text.as_bytes().first().copied().unwrap_or(b' ');
    format!("%{first:02X}{}", text.get(1..).unwrap_or_default())
}

/// Percent-encodes a name or value of a query.
fn encoded(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}
