//! Reads when an OCSP response (RFC 6960) expires.

use super::certificate;
use tidegate_store::tls::pem::der::{Der, GENERALIZED_TIME, OCTET_STRING, OID, SEQUENCE};

const ENUMERATED: u8 = 0x0a;
/// The explicit tag of `responseBytes`, `version` and `nextUpdate`.
const TAG_0: u8 = 0xa0;

/// Returns the earliest `nextUpdate` of a response, in seconds since the Unix epoch; `None` if it has none.
pub(super) fn next_update(der: &[u8]) -> Option<i64> {
    let mut envelope = Der(der).enter(SEQUENCE)?;
    envelope.value(ENUMERATED)?; // responseStatus
    let mut response = envelope.enter(TAG_0)?.enter(SEQUENCE)?;
    response.value(OID)?; // responseType
    let mut data = Der(response.value(OCTET_STRING)?).enter(SEQUENCE)?.enter(SEQUENCE)?;
    _ = data.optional(TAG_0); // version
    data.next()?; // responderID
    data.value(GENERALIZED_TIME)?; // producedAt
    data.enter(SEQUENCE)?.filter_map(|(_, single)| next_update_of_single(Der(single))).min()
}

/// Returns the `nextUpdate` of a `SingleResponse`, the status of one certificate.
fn next_update_of_single(mut single: Der<'_>) -> Option<i64> {
    single.value(SEQUENCE)?; // certID
    single.next()?; // certStatus
    single.value(GENERALIZED_TIME)?; // thisUpdate
    certificate::time(Der(single.optional(TAG_0)?).next()?)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let value = parts.concat();
        let length = u16::try_from(value.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], &value].concat()
    }

    /// Builds a response with these `nextUpdate` fields. Its signature is not valid.
    pub(crate) fn response(next_updates: &[Option<&str>]) -> Vec<u8> {
        let time = |text: &str| der(GENERALIZED_TIME, &[text.as_bytes()]);
        let single = |next: &Option<&str>| {
            let next = next.map(|next| der(TAG_0, &[&time(next)])).unwrap_or_default();
            der(SEQUENCE, &[&der(SEQUENCE, &[]), &[0x80, 0], &time("20200101000000Z"), &next])
        };
        let singles: Vec<u8> = next_updates.iter().flat_map(single).collect();
        let data = der(SEQUENCE, &[&der(0xa2, &[]), &time("20200101000000Z"), &der(SEQUENCE, &[&singles])]);
        let basic = der(SEQUENCE, &[&data, &der(SEQUENCE, &[]), &[0x03, 1, 0]]);
        let bytes = der(SEQUENCE, &[&der(OID, &[b"+"]), &der(OCTET_STRING, &[&basic])]);
        der(SEQUENCE, &[&[ENUMERATED, 1, 0], &der(TAG_0, &[&bytes])])
    }
}

#[cfg(test)]
mod tests {
    use super::testing::response;
    use super::*;

    #[test]
    fn response_expires_at_its_earliest_next_update() {
        assert_eq!(next_update(&response(&[Some("19700101000102Z"), Some("19700101000001Z")])), Some(1));
        assert_eq!(next_update(&response(&[None, Some("19700101000102Z")])), Some(62));
        assert_eq!(next_update(&response(&[None])), None);
        assert_eq!(next_update(&[SEQUENCE, 3, ENUMERATED, 1, 6]), None, "a response without data");
    }

    #[test]
    fn truncated_response_has_no_next_update() {
        let whole = response(&[Some("20300101000000Z")]);
        for length in 0..whole.len() {
            assert_eq!(next_update(&whole[..length]), None, "{length}");
        }
    }
}
