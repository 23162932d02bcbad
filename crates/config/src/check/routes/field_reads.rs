//! The header fields of requests that a route or a limit reads, as the rule file names them.

use crate::check::limits::raw_limits::rate_sources;
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::Location;

/// A key of the rule file that reads a header field of requests.
#[derive(Clone, Copy)]
pub(super) struct FieldRead<'f> {
    /// The name of the field, which can be invalid.
    pub(super) name: &'f str,
    pub(super) location: Location,
    /// Whether the value counts only if a trusted proxy sent it.
    pub(super) needs_trusted_proxy: bool,
}

/// Returns the fields that a route reads, apart from its limits.
pub(super) fn of_route(route: &file::Route) -> Vec<FieldRead<'_>> {
    let mut reads = Vec::new();
    if let Some(conditions) = route.r#match.get() {
        of_match(conditions, &mut reads);
    }
    if let Some(concurrency) = route.concurrency.get() {
        reads.extend(of_client(concurrency.client.items()));
    }
    reads
}

/// Returns the fields that a limit reads.
pub(super) fn of_limit(limit: &file::Limit) -> Vec<FieldRead<'_>> {
    let mut reads = Vec::new();
    if let Some(when) = limit.when.get() {
        of_match(&when.matcher, &mut reads);
    }
    let trusted = |source| Some(FieldRead { needs_trusted_proxy: true, ..of_source(source)? });
    reads.extend(rate_sources(limit).filter_map(trusted));
    reads.extend(of_client(limit.client.items()));
    if let Some(ValueOrMap::Map(permits)) = limit.permits.get()
        && let Some(name) = permits.header.get()
    {
        reads.push(read(name, permits.header.location));
    }
    reads
}

fn of_match<'f>(conditions: &'f file::Match, reads: &mut Vec<FieldRead<'f>>) {
    let headers = conditions.headers.get().into_iter().flatten();
    reads.extend(headers.map(|(name, value)| read(name, value.key_location())));
    let cookies = conditions.cookies.get().into_iter().flatten();
    reads.extend(cookies.map(|(_, value)| read(COOKIE, value.key_location())));
    conditions.not.items().iter().filter_map(Located::get).for_each(|not| of_match(not, reads));
}

fn of_client(sources: &[Located<String>]) -> impl Iterator<Item = FieldRead<'_>> {
    sources.iter().filter_map(of_source)
}

/// Returns the field of `header:NAME` or `cookie:NAME`.
fn of_source(source: &Located<String>) -> Option<FieldRead<'_>> {
    let text = source.get()?;
    let name = if text.starts_with("cookie:") { COOKIE } else { text.strip_prefix("header:")? };
    Some(read(name, source.location))
}

fn read(name: &str, location: Location) -> FieldRead<'_> {
    FieldRead { name, location, needs_trusted_proxy: false }
}

/// The field that contains all cookies.
const COOKIE: &str = "cookie";
