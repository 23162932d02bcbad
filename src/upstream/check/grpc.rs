//! The messages of gRPC health checks (grpc.health.v1). Each has one field that matters, so they need no code generator.

/// The path of the call.
pub(super) const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;

/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Encodes a `HealthCheckRequest`, whose field 1 is the service.
pub(super) fn encode_request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(1 << 3 | 2);
        push_varint(&mut message, service.len());
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], &message].concat()
}

/// Checks a `HealthCheckResponse`, whose field 1 is the status.
///
/// # Errors
/// The service is not `SERVING`, or the message is malformed.
pub(super) fn check_response(body: &[u8]) -> Result<(), &'static str> {
    const MALFORMED: &str = "the gRPC response is malformed";
    let message = body.split_at_checked(PREFIX).filter(|(prefix, message)| {
        let length = prefix[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        prefix[0] == 0 && message.len() == length
    });
    let (_, message) = message.ok_or(MALFORMED)?;
    match status(message).ok_or(MALFORMED)? {
        SERVING => Ok(()),
        2 => Err("the service is NOT_SERVING"),
        3 => Err("the service is SERVICE_UNKNOWN"),
        _ => Err("the status of the service is UNKNOWN"),
    }
}

/// Returns field 1 of a message; 0 if it is absent.
fn status(mut message: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        match (key >> 3, key & 7) {
            (1, 0) => status = take_varint(&mut message)?,
            (_, 0) => _ = take_varint(&mut message)?,
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn push_varint(message: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        message.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    message.push(number.to_le_bytes()[0]);
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for position in 0..10 {
        let (first, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(first & 0x7f) << (7 * position);
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_contains_the_service() {
        assert_eq!(encode_request(""), [0, 0, 0, 0, 0]);
        assert_eq!(encode_request("a.B"), *b"\0\0\0\0\x05\x0a\x03a.B");
        let long = encode_request(&"x".repeat(300));
        assert_eq!(long[..8], *b"\0\0\0\x01\x2f\x0a\xac\x02");
    }

    #[test]
    fn only_serving_passes() {
        assert_eq!(check_response(b"\0\0\0\0\x02\x08\x01"), Ok(()));
        assert_eq!(check_response(b"\0\0\0\0\x05\x12\x01x\x08\x01"), Ok(()), "an unknown field is skipped");
        for (body, error) in [
            (&b"\0\0\0\0\0"[..], "UNKNOWN"),
            (b"\0\0\0\0\x02\x08\x02", "NOT_SERVING"),
            (b"\0\0\0\0\x02\x08\x03", "SERVICE_UNKNOWN"),
            (b"", "malformed"),
            (b"\x01\0\0\0\x02\x08\x01", "malformed"),
            (b"\0\0\0\0\x03\x08\x01", "malformed"),
            (b"\0\0\0\0\x01\x08", "malformed"),
            (b"\0\0\0\0\x02\x12\x09", "malformed"),
        ] {
            let result = check_response(body);
            assert!(result.is_err_and(|text| text.contains(error)), "{}: {result:?}", body.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn hostile_response_never_panics(body in prop::collection::vec(any::<u8>(), 0..64)) {
            _ = check_response(&body);
            _ = status(&body);
        }
    }
}
