//! The parts of the configuration that routes depend on.

use super::matcher::MatchContext;
use crate::Purpose;
use crate::check::prices::PriceFiles;
use crate::file::File;
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::client::ClientFunction;
use tidegate_rules::settings::store::BucketNames;

/// The parts of the configuration that routes depend on.
#[derive(Clone, Copy)]
pub(crate) struct RouteContext<'f> {
    pub(crate) file: &'f File,
    pub(crate) purpose: Purpose,
    pub(crate) names: &'f BucketNames,
    pub(crate) matching: MatchContext<'f>,
    pub(crate) files: ReferencedFiles<'f>,
    /// Whether the program verifies credentials.
    pub(crate) verifies_credentials: bool,
    /// Whether buckets are stored in this process.
    pub(crate) in_memory: bool,
    /// The functions that identify clients.
    pub(crate) functions: &'f [ClientFunction],
    /// The files of `prices`.
    pub(crate) prices: &'f PriceFiles,
}
