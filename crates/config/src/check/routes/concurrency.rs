//! `concurrency` of a route.

use std::sync::Arc;

use crate::check::limits::sources;
use crate::check::matching::route_context::RouteContext;
use crate::check::{Checked, convert};
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Problems, quote};
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::concurrency::Concurrency;

/// Converts `concurrency`.
pub(crate) fn concurrency(
    route: &file::Route,
    RouteContext { names, functions, .. }: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Option<Box<Concurrency>>> {
    let Some(raw) = route.concurrency.optional(problems)? else { return Ok(None) };
    let client = raw.client.optional(problems)?;
    let client = client.map_or(Ok(ClientSource::Ip), |client| sources(client, functions, problems));
    if client.as_ref().is_ok_and(ClientSource::reads_body) {
        let message = "`concurrency` does not read bodies";
        return Err(raw.client.report(message, "use another client, such as `ip`", problems));
    }
    let max = bound(&raw.max, problems)?;
    let per_client = bound(&raw.per_client, problems)?;
    let queue = raw.queue.optional(problems).and_then(|_| raw.queue.number(0, problems))?;
    let max_wait = raw.max_wait.optional(problems)?.map_or(Concurrency::DEFAULT_MAX_WAIT, |wait| wait.duration());
    if max.is_none() && per_client.is_none() {
        let help = "for example `concurrency: { max: 100 }`";
        return Err(route.concurrency.report("`concurrency` needs `max` or `per_client`", help, problems));
    }
    if per_client.is_none() && raw.client.is_present() {
        let help = "add `per_client`, or leave `client` out";
        return Err(raw.client.report("`client` has no effect without `per_client`", help, problems));
    }
    if queue == 0 && raw.max_wait.is_present() {
        let help = "add `queue`, for example `queue: 50`";
        return Err(raw.max_wait.report("`max_wait` has no effect without `queue`", help, problems));
    }
    let named = route.limits.items().iter().find_map(|item| match item.get()? {
        ValueOrMap::Value(name) => (name == Concurrency::POLICY).then_some(item.location),
        ValueOrMap::Map(limit) => (limit.name.get()? == Concurrency::POLICY).then_some(limit.name.location),
    });
    if let Some(location) = named {
        let message = format!("{} is the name of the route's `concurrency` in responses", quote(Concurrency::POLICY));
        return Err(problems.add(location, message, "rename the limit"));
    }
    let name = route.name.get().map(String::as_str).unwrap_or_default();
    let name = Arc::from(format!("{}:@in_flight", names.tag(name)));
    Ok(Some(Box::new(Concurrency { name, max, per_client, client: client?, queue, max_wait })))
}

fn bound(raw: &Located<u64>, problems: &mut Problems) -> Checked<Option<u32>> {
    raw.optional(problems)?.map(|bound| convert(*bound, raw.location, problems)).transpose()
}
