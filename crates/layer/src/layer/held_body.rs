//! The body of a request that limits read.

use std::sync::Arc;

use bytes::Bytes;

use crate::metering::{Metering, PeekBody};
use tidegate_usage::Request;

/// The body, its changes and the reservations of its request.
#[derive(Default)]
pub(super) struct HeldBody {
    /// `None` if the request has no body.
    pub(super) peek: Option<Arc<dyn PeekBody>>,
    /// The body with changes, if it has any.
    pub(super) changed: Option<Bytes>,
    /// The event with the usage is not for the client.
    pub(super) removes_usage: bool,
    /// The model of a request to a language model.
    pub(super) model: Option<Box<str>>,
    /// The request, if its output may be reserved in slices.
    pub(super) stream: Option<Request>,
    pub(super) metering: Option<Arc<Metering>>,
}
