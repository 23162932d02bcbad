//! The calls of gRPC health checks.

use prost::Message;

use crate::http::grpc::{frame, only_message};
use crate::http::grpc_health::{HealthCheckRequest, HealthCheckResponse, NOT_SERVING, SERVICE_UNKNOWN, SERVING};

/// Encodes the question for a service.
pub(super) fn encode_request(service: &str) -> Vec<u8> {
    frame(&HealthCheckRequest { service: service.to_owned() })
}

/// Checks the response.
///
/// # Errors
/// The service is not `SERVING`, or the message is malformed.
pub(super) fn check_response(body: &[u8]) -> Result<(), &'static str> {
    match status(body).ok_or("the gRPC response is malformed")? {
        SERVING => Ok(()),
        NOT_SERVING => Err("the service is NOT_SERVING"),
        SERVICE_UNKNOWN => Err("the service is SERVICE_UNKNOWN"),
        _ => Err("the status of the service is UNKNOWN"),
    }
}

/// Returns the status in a response. Returns `None` if it is malformed.
fn status(body: &[u8]) -> Option<i32> {
    let response = HealthCheckResponse::decode(only_message(body).ok()?).ok()?;
    Some(response.status)
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
        }
    }
}
