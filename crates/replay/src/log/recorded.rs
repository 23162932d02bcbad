//! The values that recordings of `tidegate record` have, if a request has them.

use hashbrown::HashSet;
use http::HeaderName;

use tidegate_rules::request::identity::IdentityValue;

/// The values of recordings among the logs.
#[derive(Clone, Debug, Default)]
pub struct RecordedValues {
    /// The header fields.
    pub(crate) fields: HashSet<HeaderName>,
    /// The values of verified credentials.
    pub(crate) identity: HashSet<IdentityValue>,
}
