//! Domains without a configuration of Envoy: a rate limit service that reads the same files.

use std::collections::HashSet;
use std::path::Path;

use super::domain::Domain;
use crate::draft::Draft;
use crate::draft::value::{Map, Value};
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::Input;

/// The addresses of envoyproxy/ratelimit.
const GRPC: &str = "0.0.0.0:8081";
const HTTP: &str = "0.0.0.0:8080";

/// Checks that each domain has a path.
///
/// # Errors
/// Fails for a domain of standard input.
pub(super) fn check_paths(domains: &[Domain]) -> Result<(), ConvertError> {
    match domains.iter().find(|domain| &*domain.place.file == "-") {
        Some(domain) => Err(ConvertError::syntax(
            &domain.place,
            "the rules name the file of a domain: give its path instead of `-`",
        )),
        None => Ok(()),
    }
}

/// Writes the service, and a finding for each limit.
pub(super) fn write(domains: &[Domain], input: &Input<'_>, draft: &mut Draft, report: &mut Report) {
    let mut known = HashSet::new();
    let files = domains.iter().map(|domain| &*domain.place.file).filter(|file| known.insert(*file));
    let files = files.map(|file| Value::Text(relative(Path::new(file), input)));
    draft.service = Map::of([("grpc", GRPC.into()), ("http", HTTP.into())]);
    draft.service.set_list("descriptors", files);
    draft.service.set("algorithm", "fixed_window");
    let mut names = HashSet::new();
    for domain in domains {
        let setting = format!("domain: {}", domain.name);
        if !names.insert(&domain.name) {
            draft.service.set("merge_domains", true);
        }
        let reason = "a call over one of its limits is charged to none of them; there, it is charged to the others";
        report.looser(&domain.place, setting, reason);
        domain.each_limit(&mut |rule, limit| rule.report(limit, "the service reads this file", report));
    }
}

/// Returns the path of a source file, as the rule file names it.
fn relative(path: &Path, input: &Input<'_>) -> String {
    let path = input.options.folder.as_ref().map_or_else(|| path.to_owned(), |folder| folder.join(path));
    path.display().to_string()
}
