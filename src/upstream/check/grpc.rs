//! The messages of gRPC health checks (grpc.health.v1). Each has one field that matters, so they need no code generator.

use crate::http::grpc::{frame, only_message};
use crate::protobuf::{Fields, Message, Value};

/// The path of the call.
pub(super) const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;

/// Encodes a `HealthCheckRequest`, whose field 1 is the service.
pub(super) fn encode_request(service: &str) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, service);
    frame(&message.into_bytes())
}

/// Checks a `HealthCheckResponse`, whose field 1 is the status.
///
/// # Errors
/// The service is not `SERVING`, or the message is malformed.
pub(super) fn check_response(body: &[u8]) -> Result<(), &'static str> {
    const MALFORMED: &str = "the gRPC response is malformed";
    let message = only_message(body).map_err(|_| MALFORMED)?;
    match status(message).ok_or(MALFORMED)? {
        SERVING => Ok(()),
        2 => Err("the service is NOT_SERVING"),
        3 => Err("the service is SERVICE_UNKNOWN"),
        _ => Err("the status of the service is UNKNOWN"),
    }
}

/// Returns field 1 of a message; 0 if it is absent. Returns `None` if the message is malformed.
fn status(message: &[u8]) -> Option<u64> {
    let mut status = 0;
    for field in Fields::new(message) {
        if let (1, Value::Number(number)) = field.ok()? {
            status = number;
        }
    }
    Some(status)
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
