//! The bounds of response heads.

use super::settings::UpstreamSettings;

/// The bounds of response heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    /// The highest number of fields.
    pub(super) fields: usize,
    /// The most bytes of a head.
    pub(super) bytes: usize,
}

impl HeadLimits {
    /// Returns the bounds of an upstream.
    pub(super) fn new(settings: &UpstreamSettings) -> Self {
        Self { fields: settings.max_fields, bytes: settings.max_field_bytes }
    }
}
