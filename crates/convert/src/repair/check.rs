//! The errors of a rule file in memory.

use std::sync::Arc;

use tidegate_config::{AnyIdentities, ConfigLoadError, RuleFile, WrittenRules};

/// An error of a rule file.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The line of the text, from 1. 0 if the error is in another file.
    pub(super) line: usize,
    pub(super) message: String,
}

/// Returns the errors of a rule file for the gateway. The files that it names are not read, except files of descriptors.
pub(super) fn faults(text: String) -> Vec<Fault> {
    let written = WrittenRules { name: "<rules>".into(), text, variables: Vec::new() };
    match RuleFile::Written(Arc::new(written)).check_without_referenced_files(&AnyIdentities) {
        Err(ConfigLoadError::Invalid { problems, .. }) => {
            let fault = |problem: &tidegate_config::Problem| Fault {
                line: if problem.file().is_none() { problem.line().unwrap_or(0) } else { 0 },
                message: problem.message().to_owned(),
            };
            problems.iter().map(fault).collect()
        }
        Ok(_) | Err(ConfigLoadError::Unreadable { .. }) => Vec::new(),
    }
}

impl Fault {
    /// Returns `true` if earlier routes match all requests of a route.
    pub(super) fn is_unreachable(&self) -> bool {
        self.message.starts_with("route `") && self.message.contains("` is unreachable: ")
    }
}
