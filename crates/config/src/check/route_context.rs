//! The parts of the configuration that routes depend on.

use super::matcher::MatchContext;
use crate::Purpose;
use crate::file::File;
use tidegate_rules::client::ClientFunction;
use tidegate_rules::settings::store::BucketNames;

/// The parts of the configuration that routes depend on.
#[derive(Clone, Copy)]
pub(super) struct RouteContext<'f> {
    pub(super) file: &'f File,
    pub(super) purpose: Purpose,
    pub(super) names: &'f BucketNames,
    pub(super) matching: MatchContext<'f>,
    /// Whether the program verifies credentials.
    pub(super) verifies_credentials: bool,
    /// Whether buckets are stored in this process.
    pub(super) in_memory: bool,
    /// The functions that identify clients.
    pub(super) functions: &'f [ClientFunction],
}
