//! Reads the cost of a response while it is forwarded.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use tidegate_rules::limits::usage_source::UsageSource;
use tidegate_usage::{Usage, UsageReader};

/// Reads the cost of one response. A number that is not of tokens counts as output.
#[derive(Clone, Debug)]
pub enum ResponseReader {
    /// The usage in the body. Boxed, since all others are small.
    Usage(Box<UsageReader>),
    /// The number in a header field. `None` if the response has no valid one.
    Number(Option<u64>),
    /// The bytes of the body so far.
    Bytes(u64),
    /// The time since the request was forwarded.
    Duration(Instant),
}

impl ResponseReader {
    /// Creates a reader of a response with these header fields. Its request was forwarded at `sent_at`.
    pub(super) fn new(source: &UsageSource, headers: &HeaderMap, sent_at: Instant) -> Self {
        let content_type = || headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        match source {
            UsageSource::Api(api) => Self::Usage(Box::new(UsageReader::new(&api.format(), content_type()))),
            UsageSource::Members(members) => Self::Usage(Box::new(UsageReader::new(members.format(), content_type()))),
            UsageSource::Header(name) => Self::Number(largest(headers, name)),
            UsageSource::Bytes => Self::Bytes(0),
            UsageSource::Milliseconds => Self::Duration(sent_at),
        }
    }

    /// Reads the next piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Usage(reader) => reader.push(piece),
            Self::Bytes(bytes) => *bytes = bytes.saturating_add(piece.len() as u64),
            Self::Number(_) | Self::Duration(_) => {}
        }
    }

    /// Ends the body.
    pub fn end(&mut self) {
        if let Self::Usage(reader) = self {
            reader.end();
        }
    }

    /// Returns `true` if the body has server-sent events with a usage.
    pub fn reads_events(&self) -> bool {
        matches!(self, Self::Usage(reader) if reader.reads_events())
    }

    /// Returns `true` if the cost depends on the content of the body, which a content coding hides.
    pub fn reads_content(&self) -> bool {
        matches!(self, Self::Usage(_))
    }

    /// Returns `true` if the head of the response has the cost.
    pub fn reads_head(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    /// Returns the usage that the response has reported so far.
    pub fn usage(&self) -> Option<Usage> {
        match self {
            Self::Usage(reader) => reader.usage(),
            other => other.usage_of_part(),
        }
    }

    /// Returns the input that the response has reported so far, without the output.
    pub fn input(&self) -> Option<Usage> {
        if let Self::Usage(reader) = self { reader.input() } else { None }
    }

    /// Returns the usage of a response that ends before its time. Returns `None` if the rest of the body would have reported it.
    pub fn usage_of_part(&self) -> Option<Usage> {
        let output = match self {
            Self::Usage(_) => return None,
            Self::Number(number) => (*number)?,
            Self::Bytes(bytes) => *bytes,
            Self::Duration(sent_at) => u64::try_from(sent_at.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        Some(Usage { output, ..Usage::default() })
    }
}

/// Returns the largest value of a header field. Returns `None` if a value is not a whole number.
fn largest(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let values = headers.get_all(name).iter().map(|value| parse(value.as_bytes().trim_ascii()));
    values.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Parses a whole number. A number that is too large becomes the largest one.
fn parse(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).map(|number| number.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const COST: HeaderName = HeaderName::from_static("x-cost");

    fn read(source: &UsageSource, values: &[&'static str], body: &[&[u8]]) -> ResponseReader {
        let mut headers = HeaderMap::new();
        values.iter().for_each(|value| _ = headers.append(COST, HeaderValue::from_static(value)));
        let mut reader = ResponseReader::new(source, &headers, Instant::now());
        body.iter().for_each(|piece| reader.push(piece));
        reader.end();
        reader
    }

    #[test]
    fn header_field_is_the_cost() {
        let cost =
            |values: &[&'static str]| read(&UsageSource::Header(COST), values, &[]).usage().map(|usage| usage.output);
        assert_eq!(cost(&[" 12 "]), Some(12));
        assert_eq!(cost(&["3", "12"]), Some(12));
        assert_eq!(cost(&["99999999999999999999999"]), Some(u64::MAX));
        for absent in [&[][..], &["-1"], &["1.5"], &["1,2"], &[""], &["12", "many"]] {
            assert_eq!(cost(absent), None, "{absent:?}");
        }
    }

    #[test]
    fn bytes_are_known_at_every_moment() {
        let reader = read(&UsageSource::Bytes, &[], &[b"abc", b"", b"defg"]);
        assert_eq!(reader.usage_of_part().map(|usage| usage.output), Some(7));
        assert_eq!(reader.usage(), reader.usage_of_part());
    }

    #[test]
    fn usage_of_a_body_is_unknown_before_its_end() {
        let source = UsageSource::Api(tidegate_usage::Api::Anthropic);
        let reader = read(&source, &[], &[br#"{"usage":{"input_tokens":1,"output_tokens":2}}"#]);
        assert_eq!(reader.usage().map(|usage| usage.total()), Some(3));
        assert_eq!(reader.usage_of_part(), None);
    }
}
