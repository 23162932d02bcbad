//! Rules that read a field of `pass`, which the authorization service sets later.

use super::field_reads;
use crate::check::limits::raw_limits::limits_of;
use crate::file::{self, File};
use crate::problem::{Problems, quote};
use tidegate_rules::request::identity::Requirement;

/// Reports each rule of a route that reads a field of `pass`. The service is asked last, so the rule would read the field
/// as the client sent it, which the author of the file does not expect.
pub(super) fn check(route: &file::Route, requirement: &Requirement, file: &File, problems: &mut Problems) {
    if requirement.passed_fields().next().is_none() {
        return;
    }
    let limits = limits_of(file, route).flat_map(field_reads::of_limit);
    for read in field_reads::of_route(route).into_iter().chain(limits) {
        if !requirement.passed_fields().any(|passed| passed.as_str().eq_ignore_ascii_case(read.name)) {
            continue;
        }
        let route = route.name.get().map_or_else(|| "the route".to_owned(), |name| format!("route {}", quote(name)));
        let message = format!(
            "{} is in `pass` of {route}, but the service is asked after this rule: it would read the client's field",
            quote(read.name)
        );
        let help = "read an address or verified credentials here, or remove the field from `pass`";
        problems.add(read.location, message, help);
    }
}
