//! Teams: the owners of included files.

use std::sync::Arc;

use serde::Serialize;

use crate::problem::Problem;
use tidegate_limit::text::words::words;
use tidegate_rules::json;
use tidegate_rules::route::HostPattern;

words! {
    /// The upstreams that the routes of a team may use.
    pub enum UpstreamUse, default Any {
        /// All upstreams.
        Any = "any",
        /// The upstreams in the file of the team.
        Own = "own",
    }
}

words! {
    /// The version of a team's file that is in use.
    pub enum TeamVersion, default Current {
        /// The version in the file.
        Current = "current",
        /// The last valid version, because the file is invalid.
        LastValid = "last_valid",
        /// No version, because the file is invalid and was never valid.
        None = "none",
    }
}

/// A team with its own file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Team {
    /// The name, which the names of its routes and upstreams start with.
    #[serde(serialize_with = "json::text")]
    pub name: Arc<str>,
    /// The path of its file.
    #[serde(serialize_with = "json::text")]
    pub file: Arc<str>,
    /// The hosts that its routes may match. Empty for all hosts.
    #[serde(serialize_with = "json::texts")]
    pub hosts: Vec<HostPattern>,
    /// The upstreams that its routes may use.
    pub upstreams: UpstreamUse,
    /// Whether each of its routes needs a limit.
    pub require_limits: bool,
    /// The version of the file that is in use.
    pub version: TeamVersion,
    /// The errors of the file. Empty for the current version.
    #[serde(skip)]
    pub problems: Vec<Problem>,
}

impl Team {
    /// Returns `true` if the file has errors.
    pub fn is_invalid(&self) -> bool {
        self.version != TeamVersion::Current
    }
}
