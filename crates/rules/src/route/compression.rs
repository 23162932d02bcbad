//! Which responses of a route are compressed, and with which coding.

use std::fmt;

use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;

use crate::json;
use tidegate_limit::text::words::words;

/// Compression of responses: `compression` in the rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compression {
    /// The codings in the order of preference; at least one.
    pub codings: Vec<Coding>,
    /// The media types of the responses that are compressed.
    #[serde(serialize_with = "json::texts")]
    pub types: Vec<MediaTypePattern>,
    /// The shortest body that is compressed, in bytes. A body of unknown length is compressed, too.
    #[serde(rename = "min_size_bytes")]
    pub min_size: u64,
}

words! {
    /// A content coding.
    pub enum Coding {
        /// Zstandard (RFC 8878), which needs less CPU time for smaller responses.
        Zstd = "zstd",
        /// gzip (RFC 1952), which all clients know.
        Gzip = "gzip",
    }
}

/// Media types: one type such as `application/json`, or a pattern such as `text/*` or `application/*+json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypePattern {
    /// The whole type, or the part before `*`, in lower case.
    start: Box<str>,
    /// The part after `*`.
    end: Option<Box<str>>,
}

/// The quality of a coding, in thousandths (RFC 9110 section 12.4.2).
type Quality = u16;

impl Compression {
    /// The types that are compressed if the rule file lists none.
    const DEFAULT_TYPES: [&str; 8] = [
        "text/*",
        "application/json",
        "application/*+json",
        "application/javascript",
        "application/xml",
        "application/*+xml",
        "application/wasm",
        "image/svg+xml",
    ];
    /// Returns the coding for the response to a request with these fields: of the codings that the client likes best, the
    /// first. Returns `None` if the client accepts none, or prefers a response without coding.
    pub fn coding_for(&self, fields: &HeaderMap) -> Option<Coding> {
        if !fields.contains_key(ACCEPT_ENCODING) || has_no_transform(fields) {
            return None;
        }
        let values = fields.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let accepted: Vec<_> = values.flat_map(|value| value.split(',')).filter_map(accepted).collect();
        let explicit = |name: &str| {
            let mut matching = accepted.iter().filter(|(accepted, _)| accepted.eq_ignore_ascii_case(name));
            matching.next().map(|(_, quality)| *quality)
        };
        let any = explicit("*");
        let quality = |coding: Coding| {
            let old_name = if coding == Coding::Gzip { explicit("x-gzip") } else { None };
            explicit(coding.name()).or(old_name).or(any).unwrap_or(0)
        };
        let mut best: Option<(Coding, Quality)> = None;
        for coding in &self.codings {
            let quality = quality(*coding);
            if quality > best.map_or(0, |(_, quality)| quality) {
                best = Some((*coding, quality));
            }
        }
        let unencoded = explicit("identity").unwrap_or(0);
        best.filter(|(_, quality)| *quality >= unencoded).map(|(coding, _)| coding)
    }

    /// Returns `true` if responses with these fields are compressed, unless their body is too short.
    pub fn has_type(&self, fields: &HeaderMap) -> bool {
        let text = fields.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = text.and_then(|text| text.split(';').next()).map(str::trim).unwrap_or_default();
        self.types.iter().any(|pattern| pattern.matches(media_type)) && !has_no_transform(fields)
    }
}

impl Default for Compression {
    /// Returns the defaults of the rule file.
    fn default() -> Self {
        let types = Self::DEFAULT_TYPES.iter().filter_map(|text| MediaTypePattern::parse(text)).collect();
        Self { codings: Coding::ALL.to_vec(), types, min_size: 1024 }
    }
}

/// Returns `true` if `Cache-Control` forbids changes of the content (RFC 9111 sections 5.2.1.6 and 5.2.2.6).
fn has_no_transform(fields: &HeaderMap) -> bool {
    let values = fields.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes);
    let mut directives = values.flat_map(|value| value.split(|byte| *byte == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

/// Parses an item of `Accept-Encoding`. Returns `None` if it is malformed.
fn accepted(item: &str) -> Option<(&str, Quality)> {
    let mut parts = item.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    match parts.next() {
        None => Some((name, 1000)),
        Some(weight) => {
            let (key, value) = weight.split_once('=')?;
            Some((name, quality(value.trim()).filter(|_| key.trim().eq_ignore_ascii_case("q"))?))
        }
    }
}

/// Parses a quality: `0` or `1`, with up to three decimals.
fn quality(text: &str) -> Option<Quality> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{decimals:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

impl MediaTypePattern {
    /// Parses a media type in lower case, without parameters. The subtype may start with `*`. Returns `None` for other
    /// texts.
    pub fn parse(text: &str) -> Option<Self> {
        let is_token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$&^_.+-".contains(&byte);
        let (kind, subtype) = text.split_once('/')?;
        let rest = subtype.strip_prefix('*');
        let is_valid = !kind.is_empty() && kind.bytes().all(is_token) && rest.unwrap_or(subtype).bytes().all(is_token);
        match rest {
            _ if !is_valid => None,
            Some(end) => Some(Self { start: format!("{kind}/").into(), end: Some(end.into()) }),
            None if subtype.is_empty() => None,
            None => Some(Self { start: text.into(), end: None }),
        }
    }

    /// Returns `true` if a media type without parameters matches. Ignores case.
    pub fn matches(&self, media_type: &str) -> bool {
        let Some(end) = &self.end else { return media_type.eq_ignore_ascii_case(&self.start) };
        let rest =
            media_type.split_at_checked(self.start.len()).filter(|(start, _)| start.eq_ignore_ascii_case(&self.start));
        rest.is_some_and(|(_, rest)| {
            let split = rest.len().checked_sub(end.len()).and_then(|middle| rest.split_at_checked(middle));
            split.is_some_and(|(middle, last)| !middle.is_empty() && last.eq_ignore_ascii_case(end))
        })
    }
}

/// Writes the pattern as in the rule file.
impl fmt::Display for MediaTypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            None => f.write_str(&self.start),
            Some(end) => write!(f, "{}*{end}", self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compression(codings: &[Coding]) -> Compression {
        Compression { codings: codings.to_vec(), ..Compression::default() }
    }

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in pairs {
            fields.append(*name, value.parse().expect("a value"));
        }
        fields
    }

    #[test]
    fn coding_is_the_clients_choice_and_then_the_first() {
        use Coding::{Gzip, Zstd};
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip", Some(Gzip)),
            ("GZIP;Q=0.5", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("zstd;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("zstd;q=0.5, gzip;q=0.50", Some(Zstd)),
            ("*", Some(Zstd)),
            ("*;q=0.1, zstd;q=0", Some(Gzip)),
            ("gzip;q=0.5, identity;q=0.5", Some(Gzip)),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000, zstd;q=0", None),
            ("identity", None),
            ("br", None),
            ("", None),
            ("gzip;q=2, zstd;q=x, *;r=1", None),
        ] {
            let coding = compression(&[Zstd, Gzip]).coding_for(&fields(&[("accept-encoding", accept)]));
            assert_eq!(coding, expected, "{accept}");
        }
        let two_fields = fields(&[("accept-encoding", "br"), ("accept-encoding", "zstd, gzip")]);
        assert_eq!(compression(&[Gzip, Zstd]).coding_for(&two_fields), Some(Gzip));
        assert_eq!(compression(&[Zstd]).coding_for(&HeaderMap::new()), None);
        let no_transform = fields(&[("accept-encoding", "gzip"), ("cache-control", "no-cache, No-Transform")]);
        assert_eq!(compression(&[Gzip]).coding_for(&no_transform), None);
    }

    #[test]
    fn types_are_compared_without_case_and_parameters() {
        let has_type = |text: &str| compression(&[]).has_type(&fields(&[("content-type", text)]));
        for text in ["text/html", "Text/HTML; charset=utf-8", "application/problem+json", "application/json ;a=b"] {
            assert!(has_type(text), "{text}");
        }
        for text in ["", "text/", "image/png", "application/json5x", "application/+json", "application/grpc", "video/*"]
        {
            assert!(!has_type(text), "{text}");
        }
        assert!(!compression(&[]).has_type(&HeaderMap::new()));
        let no_transform = fields(&[("content-type", "text/html"), ("cache-control", "no-transform")]);
        assert!(!compression(&[]).has_type(&no_transform));
    }

    #[test]
    fn pattern_is_displayed_as_written() {
        for text in Compression::DEFAULT_TYPES {
            assert_eq!(MediaTypePattern::parse(text).map(|pattern| pattern.to_string()).as_deref(), Some(text));
        }
        for bad in ["", "text", "text/", "/html", "*/*", "text/h*", "Text/html", "text/html; a=b", "text/*/x"] {
            assert_eq!(MediaTypePattern::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn hostile_fields_never_panic(accept in "[ -~\u{80}-\u{ff}]{0,40}", media_type in "[ -~]{0,20}") {
            if let (Ok(accept), Ok(media_type)) = (HeaderValue::from_bytes(accept.as_bytes()), media_type.parse()) {
                let fields = HeaderMap::from_iter([(ACCEPT_ENCODING, accept), (CONTENT_TYPE, media_type)]);
                _ = (compression(Coding::ALL).coding_for(&fields), compression(&[]).has_type(&fields));
            }
        }
    }
}
