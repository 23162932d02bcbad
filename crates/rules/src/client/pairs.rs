//! The `name=value` pairs of a query or of cookies.
//!
//! A second separator splits pairs only for some origins: a semicolon in a query, a comma in cookies (RFC 2965).

use http::{HeaderMap, header};

/// A pair for origins that know the second separator.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'f> {
    /// The name, as the client sent it.
    pub name: &'f [u8],
    /// The value, as the client sent it.
    pub value: &'f [u8],
    /// The pair for other origins.
    pub whole: &'f [u8],
    /// Whether both begin at the same place.
    pub is_first: bool,
    /// Whether an origin could split the value once more.
    pub is_split: bool,
}

/// Returns the pairs of a query (`application/x-www-form-urlencoded`).
pub fn parameters(query: &str) -> impl Iterator<Item = Pair<'_>> {
    pairs(query.as_bytes(), b'&', b';')
}

/// Returns the pairs of the `Cookie` fields (RFC 6265 section 5.4).
pub fn cookies(headers: &HeaderMap) -> impl Iterator<Item = Pair<'_>> {
    headers.get_all(header::COOKIE).iter().flat_map(|field| pairs(field.as_bytes(), b';', b','))
}

impl<'f> Pair<'f> {
    /// Returns the value for other origins, if it differs.
    pub fn other_value(&self) -> Option<&'f [u8]> {
        (self.is_first && self.is_split).then(|| split(self.whole).1)
    }
}

fn pairs(text: &[u8], separator: u8, second: u8) -> impl Iterator<Item = Pair<'_>> {
    text.split(move |byte| *byte == separator).flat_map(move |whole| {
        whole.split(move |byte| *byte == second).enumerate().map(move |(index, part)| {
            let (name, value) = split(part);
            Pair { name, value, whole, is_first: index == 0, is_split: part.len() < whole.len() }
        })
    })
}

/// Splits a pair at its first `=`. Without one, the value is empty.
fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
    (&pair[..equals], pair.get(equals + 1..).unwrap_or_default())
}
