//! The options of a conversion.

use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::format::Format;

/// How to convert.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format of the files. `None` to find it by their content.
    pub format: Option<Format>,
    /// The number of processes that enforce the limits of the source separately. The rule file gets the sum of their
    /// rates, since limits of Tidegate apply to all gateways together.
    pub replicas: NonZeroU32,
    /// The folder at which relative paths of the source files start, if it is not the folder of the rule file.
    pub folder: Option<PathBuf>,
}

impl Default for Options {
    /// Any format, one replica, and files next to the rule file.
    fn default() -> Self {
        Self { format: None, replicas: NonZeroU32::MIN, folder: None }
    }
}
