//! Requests for permits, for the fuzzer.

use crate::service::{read_return_body, read_take_body};
pub use tidegate_layer::layer::take::{PermitRequest, Take};

/// Reads the body of `POST /v1/take`.
///
/// # Errors
/// The message of the error for the caller.
pub fn read_take(body: &[u8]) -> Result<Take, String> {
    read_take_body(body)
}

/// Reads the body of `POST /v1/return`. Returns the id.
///
/// # Errors
/// The message of the error for the caller.
pub fn read_return(body: &[u8]) -> Result<String, String> {
    read_return_body(body)
}
