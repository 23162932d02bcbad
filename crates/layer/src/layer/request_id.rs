//! `X-Request-Id`, which identifies a request in the logs of the gateway, its upstreams and its clients.

use std::cell::RefCell;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use tidegate_limit::random::random;
use tidegate_limit::text::hex;

/// The name of the field.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is kept, in bytes.
const MAX_LENGTH: usize = 128;
/// The length of a new id in bytes: 128 bits as hexadecimal digits.
const NEW_LENGTH: usize = 32;
/// The random bytes of the ids that are generated together. More ids would save little, and an id in use keeps the memory
/// of all.
const BLOCK: usize = 16 * NEW_LENGTH / 2;

thread_local! {
    /// Ids for the next requests of this thread, so that a request needs neither a system call nor an allocation.
    static NEXT_IDS: RefCell<Bytes> = const { RefCell::new(Bytes::new()) };
}

/// Returns the id of a request: the id that a trusted proxy sent, if it is valid, otherwise a new id.
pub(super) fn request_id(headers: &HeaderMap, is_trusted: bool) -> HeaderValue {
    let received = if is_trusted { received(headers) } else { None };
    received.cloned().unwrap_or_else(generate)
}

/// Returns the id in the fields. Returns `None` if it is invalid or ambiguous.
fn received(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(X_REQUEST_ID).iter();
    let value = values.next().filter(|value| is_valid(value.as_bytes()))?;
    values.next().is_none().then_some(value)
}

/// Returns `true` for visible ASCII of a bounded length.
fn is_valid(id: &[u8]) -> bool {
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

fn generate() -> HeaderValue {
    let id = NEXT_IDS.with_borrow_mut(|ids| {
        if ids.is_empty() {
            *ids = hex::encode(&random::<BLOCK>()).into();
        }
        ids.split_to(NEW_LENGTH)
    });
    // Hexadecimal digits are a valid value.
    HeaderValue::from_maybe_shared(id).unwrap_or(HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn fields(ids: &[&[u8]]) -> HeaderMap {
        ids.iter().map(|id| (X_REQUEST_ID, HeaderValue::from_bytes(id).unwrap())).collect()
    }

    #[test]
    fn only_trusted_valid_ids_are_kept() {
        for good in [&b"a"[..], b"req_1:2/3=\"\\~", &[b'x'; MAX_LENGTH]] {
            assert_eq!(request_id(&fields(&[good]), true), good);
            assert_ne!(request_id(&fields(&[good]), false), good);
        }
        for bad in [&b""[..], b"a b", b"a\tb", b"\xe4", &[b'x'; MAX_LENGTH + 1]] {
            let id = request_id(&fields(&[bad]), true);
            assert!(id != bad && id.len() == NEW_LENGTH, "{bad:?}");
        }
        assert_eq!(request_id(&fields(&[b"one", b"one"]), true).len(), NEW_LENGTH);
    }

    #[test]
    fn new_ids_are_unique_hexadecimal_digits() {
        let ids: HashSet<_> = (0..1000).map(|_| request_id(&HeaderMap::new(), true)).collect();
        assert_eq!(ids.len(), 1000);
        let is_hex = |id: &HeaderValue| id.len() == NEW_LENGTH && id.as_bytes().iter().all(u8::is_ascii_hexdigit);
        assert!(ids.iter().all(is_hex), "{ids:?}");
    }
}
