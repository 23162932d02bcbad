//! The limits of a route.

use std::sync::Arc;

use super::matcher::header_name;
use super::names::duplicates;
use super::quota::quota;
use super::{Checked, candidate, cost, needed, number, part, redisson, spread};
use crate::client::{ClientSource, TlsName};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::config::suggest::nearest;
use crate::limit::{AlgorithmName, Limiter, Mode};
use crate::route::Route;
use crate::rule::{Limit, OnStoreFailure, WaitPolicy};

const CLIENT_HELP: &str = "a client is `ip`, `host`, `path`, `header:NAME`, `cookie:NAME`, `query:NAME`, `tls:subject`, `tls:san`, \
     `extension` in a layer, or a list of these";

const GATEWAY_CLIENT_HELP: &str = "for a gateway use `ip`, `header:NAME`, `cookie:NAME`, `query:NAME` or `tls:subject`";

pub(super) fn limits(route: &file::Route, node: &Node, prefix: &str, problems: &mut Problems) -> Checked<Vec<Limit>> {
    let written = part(&route.limits, node, "limits", problems)?.map(Vec::as_slice).unwrap_or_default();
    let nodes = if written.is_empty() { &[] } else { node.at("limits").items() };
    duplicates(written.iter().map(|limit| limit.as_ref()?.name.as_deref()).zip(nodes), "limit", problems);
    // If the name of the route has an error, the limits are only checked and not used.
    let group = format!("{{{prefix}tidegate:{}}}", route.name.as_deref().unwrap_or_default());
    let mut limits = Vec::with_capacity(written.len());
    for (written, node) in written.iter().zip(nodes) {
        let limit = needed(written, node, problems).and_then(|written| limit(written, node, &group, problems));
        let other_names = route.limits.iter().flatten().flatten().filter_map(|limit| limit.name.as_deref());
        let candidate = candidate::candidate(written.as_ref(), &limit, node, other_names, problems);
        limits.push(limit);
        limits.extend(candidate.transpose());
    }
    if limits.len() > Route::MAX_LIMITS {
        let (max, count) = (Route::MAX_LIMITS, limits.len());
        let message = format!("a route has at most {max} limits, candidates included, not {count}");
        return Err(problems.add(
            node.at("limits").location,
            message,
            "remove limits, or distribute them over several routes",
        ));
    }
    limits.into_iter().collect()
}

fn limit(written: &file::Limit, node: &Node, group: &str, problems: &mut Problems) -> Checked<Limit> {
    let permits = cost::cost(written, node, problems);
    let client = client(written, node, problems);
    let sharing = redisson::sharing(written, node, problems);
    let quota = sharing.and_then(|sharing| quota(written, sharing, node, problems));
    let wait_policy = wait_policy(written, node, problems);
    let on_missing_client = part(&written.on_missing_client, node, "on_missing_client", problems);
    let on_store_failure = on_store_failure(written, node, problems);
    let shadow = part(&written.shadow, node, "shadow", problems);
    let name = needed(&written.name, node, problems)?;
    let mode = redisson::mode(written, sharing?, node, problems)?;
    let quota = quota?;
    let spread = spread::spread(written, mode, &quota, node, problems);
    let key = written.key.clone().unwrap_or_else(|| format!("{group}:{name}"));
    Ok(Limit {
        name: name.clone(),
        limiter: Arc::new(spread?.apply(Limiter::new(key, mode, quota))),
        client: client?,
        permits: permits?,
        on_missing_client: on_missing_client?.copied().unwrap_or_default(),
        on_store_failure: on_store_failure?,
        wait_policy: wait_policy?,
        shadow: shadow?.copied().unwrap_or_default(),
    })
}

/// Converts `on_store_failure`. A limit with `adopt` has no rate to enforce locally while the store is unreachable.
fn on_store_failure(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<OnStoreFailure> {
    let adopts = written.adopt == Some(true);
    match part(&written.on_store_failure, node, "on_store_failure", problems)? {
        None if adopts => Ok(OnStoreFailure::Allow),
        Some(OnStoreFailure::Local) if adopts => {
            let message = "`local` needs a rate, and a limit with `adopt` has none while the store is unreachable";
            Err(problems.add(node.at("on_store_failure").location, message, "use `allow` or `deny`"))
        }
        written => Ok(written.copied().unwrap_or_default()),
    }
}

/// Converts `max_wait` and `queue`.
fn wait_policy(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<Option<WaitPolicy>> {
    if matches!(written.algorithm, Some(AlgorithmName::LeakyBucket)) {
        return Ok(None); // its requests wait for time slots, which the algorithm assigns
    }
    let max_wait = part(&written.max_wait, node, "max_wait", problems);
    let (queue, at) = (part(&written.queue, node, "queue", problems), node.at("queue"));
    let Some(max_wait) = max_wait? else {
        return match queue? {
            None => Ok(None),
            Some(_) => Err(problems.add(at.location, "`queue` has no effect without `max_wait`", "add `max_wait`")),
        };
    };
    let queue = number(queue?.copied(), WaitPolicy::DEFAULT_QUEUE, at, problems)?;
    Ok(Some(WaitPolicy { max_wait: max_wait.duration(), queue }))
}

/// Rejects `client: extension` in the gateway, where no code could set the key.
pub(super) fn reject_extension(route: &file::Route, node: &Node, problems: &mut Problems) -> Checked<()> {
    let written = route.limits.iter().flatten().map(Option::as_ref);
    let mut checked = Ok(());
    for (limit, node) in written.zip(node.at("limits").items()) {
        let sources = limit.and_then(|limit| limit.client.as_ref()).into_iter().flatten();
        for (_, node) in
            sources.zip(node.at("client").items()).filter(|(source, _)| source.as_deref() == Some("extension"))
        {
            let message = "`extension` works only in a layer, where the program sets the key of each request";
            checked = Err(problems.add(node.location, message.to_owned(), GATEWAY_CLIENT_HELP));
        }
    }
    checked
}

/// Converts `client`, which PER_CLIENT requires and OVERALL rejects.
fn client(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<ClientSource> {
    let sources = part(&written.client, node, "client", problems);
    if let Some(Mode::Overall) = written.mode {
        let needs_client = |key: &str| ["client", "on_missing_client"].contains(&key);
        for entry in node.entries().iter().filter(|entry| needs_client(&entry.key)) {
            let message = format!("{} has no effect on an OVERALL limit", quote(&entry.key));
            problems.add(entry.location, message, "leave it out, or use `mode: PER_CLIENT`");
        }
    }
    let Some(sources) = sources? else {
        return match written.mode {
            Some(Mode::PerClient) => {
                let message = "a PER_CLIENT limit needs `client`".to_owned();
                Err(problems.add_missing(node.location, "client", message, "for example `client: ip`"))
            }
            Some(Mode::Overall) | None => Ok(ClientSource::Ip),
        };
    };
    let mut checked = Vec::with_capacity(sources.len());
    for (text, node) in sources.iter().zip(node.at("client").items()) {
        checked.push(needed(text, node, problems).and_then(|text| source(text, node, problems)));
    }
    let mut sources = checked.into_iter().collect::<Checked<Vec<_>>>()?;
    Ok(match sources.len() {
        1 => sources.remove(0),
        _ => ClientSource::All(sources),
    })
}

fn source(text: &str, node: &Node, problems: &mut Problems) -> Checked<ClientSource> {
    let is_valid = |name: &str, excluded: &[char]| {
        let valid = |letter: char| letter.is_ascii_graphic() && !excluded.contains(&letter);
        !name.is_empty() && name.chars().all(valid)
    };
    match text.split_once(':') {
        None if text == "ip" => return Ok(ClientSource::Ip),
        None if text == "host" => return Ok(ClientSource::Host),
        None if text == "path" => return Ok(ClientSource::Path),
        None if text == "extension" => return Ok(ClientSource::Extension),
        // `host` also handles absolute targets and `:authority`.
        Some(("header", name)) if name.eq_ignore_ascii_case("host") => return Ok(ClientSource::Host),
        Some(("header", name)) => return header_name(name, node.location, problems).map(ClientSource::Header),
        Some(("cookie", name)) if is_valid(name, &['=', ';', ',', '"']) => {
            return Ok(ClientSource::Cookie(name.to_owned()));
        }
        Some(("query", name)) if is_valid(name, &['=', '&', '#']) => return Ok(ClientSource::Query(name.to_owned())),
        Some(("tls", "subject")) => return Ok(ClientSource::Tls(TlsName::Subject)),
        Some(("tls", "san")) => return Ok(ClientSource::Tls(TlsName::San)),
        Some(("jwt", _)) => {
            return Err(problems.add(
                node.location,
                format!("{}: `jwt` is not supported yet", quote(text)),
                CLIENT_HELP,
            ));
        }
        _ => {}
    }
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let help = match nearest(kind, ["ip", "host", "path", "header", "cookie", "query", "tls", "extension"]) {
        Some(near) if near != kind => {
            format!("did you mean {}?", quote(&name.map_or(near.to_owned(), |name| format!("{near}:{name}"))))
        }
        _ => CLIENT_HELP.to_owned(),
    };
    Err(problems.add(node.location, format!("{} is not a client source", quote(text)), help))
}
