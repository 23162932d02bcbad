//! The field `traceparent` of W3C Trace Context, which names the span of the peer.

use http::{HeaderMap, HeaderName};
use opentelemetry::trace::{SpanId, TraceId};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of version 00. Later versions may append more.
const LENGTH: usize = 55;

/// The span of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// Whether the peer samples the request.
    pub(super) is_sampled: bool,
}

impl TraceParent {
    /// Reads the field. Returns `None` if it is absent, invalid or ambiguous.
    pub(super) fn from_fields(fields: &HeaderMap) -> Option<Self> {
        let mut values = fields.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { Self::parse(value.to_str().ok()?) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let version = parts.next().and_then(|part| hex(part, 2))?;
        let is_end = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
        if version == 0xff || !is_end {
            return None;
        }
        let trace = TraceId::from(parts.next().and_then(|part| hex(part, 32))?);
        let span = SpanId::from(u64::try_from(parts.next().and_then(|part| hex(part, 16))?).ok()?);
        let flags = parts.next().and_then(|part| hex(part, 2))?;
        let is_valid = trace != TraceId::INVALID && span != SpanId::INVALID && parts.next().is_none();
        is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Parses exactly `length` lower-case hexadecimal digits.
fn hex(text: &str, length: usize) -> Option<u128> {
    let is_hex = text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn valid_fields_are_read() {
        let parent = TraceParent::parse(PARENT).expect("a parent");
        assert_eq!(parent.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span.to_string(), "b7ad6b7169203331");
        assert!(parent.is_sampled);
        for flags in ["00", "02"] {
            let parent = TraceParent::parse(&[&PARENT[..53], flags].concat()).expect("a parent");
            assert!(!parent.is_sampled, "{flags}");
        }
        assert_eq!(TraceParent::parse(&["cc", &PARENT[2..], "-more"].concat()), Some(parent));
    }

    #[test]
    fn invalid_fields_are_ignored() {
        let zeros = |from: usize, to: usize| [&PARENT[..from], &"0".repeat(to - from), &PARENT[to..]].concat();
        let bad = [
            String::new(),
            PARENT[1..].to_owned(),
            [PARENT, "-more"].concat(),
            [PARENT, " "].concat(),
            ["ff", &PARENT[2..]].concat(),
            ["cc", &PARENT[2..], "more"].concat(),
            PARENT.to_uppercase(),
            PARENT.replace("0af7", "+af7"),
            PARENT.replace("-b7", "b-7"),
            PARENT.replace("0af7", "-af7"),
            zeros(3, 35),
            zeros(36, 52),
        ];
        for bad in &bad {
            assert_eq!(TraceParent::parse(bad), None, "{bad:?}");
        }
        let mut fields = HeaderMap::new();
        assert_eq!(TraceParent::from_fields(&fields), None);
        fields.append(TRACEPARENT, HeaderValue::from_static(PARENT));
        assert!(TraceParent::from_fields(&fields).is_some());
        fields.append(TRACEPARENT, HeaderValue::from_static(PARENT));
        assert_eq!(TraceParent::from_fields(&fields), None);
    }
}
