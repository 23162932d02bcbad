//! Upstreams and their targets.

pub(crate) mod balance;
pub(crate) mod health;
pub(crate) mod percent;
pub(crate) mod retry;
pub(crate) mod upstream_tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::uri::Authority;

use self::retry::retry;
use crate::check::{Checked, all};
use crate::file::located::Located;
use crate::file::{self, File};
use crate::problem::{Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use crate::values::listen::socket_path;
use tidegate_rules::route::HostPattern;
use tidegate_rules::settings::upstream::{Service, Target, Timeouts, UpstreamSettings};

type Upstreams = BTreeMap<Arc<str>, UpstreamSettings>;

const TARGET_HELP: &str = "a target is `http://host`, `http://host:port`, the same with `https://`, \
     `srv://_service._proto.name`, `srv+https://_service._proto.name`, `unix:/path`, or `builtin:echo`";

pub(crate) fn upstreams(file: &File, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<Upstreams> {
    let Some(raw) = file.upstreams.optional(problems)? else { return Ok(Upstreams::new()) };
    let mut upstreams = Ok(Upstreams::new());
    for (name, located) in raw {
        match located.required(problems).and_then(|raw| upstream(name, raw, files, problems)) {
            Ok(upstream) => drop(upstreams.as_mut().map(|all| all.insert(Arc::clone(&upstream.name), upstream))),
            Err(reported) => upstreams = Err(reported),
        }
    }
    upstreams
}

fn upstream(
    name: &str,
    raw: &file::Upstream,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<UpstreamSettings> {
    let listed = raw.targets.required(problems)?;
    let targets = all(listed.iter().map(|raw| weighted_target(raw.required(problems)?, problems)))?;
    let (targets, weights): (Vec<_>, Vec<_>) = targets.into_iter().unzip();
    reject_repeated(listed, &targets, problems)?;
    let tls = upstream_tls::tls(&raw.tls, &targets, files, problems)?;
    let health = health::health(&raw.health, problems)?;
    let (balance, eject) = (balance::balance(&raw.balance, problems), balance::eject(&raw.eject, problems));
    let default = UpstreamSettings::new(Arc::from(name), targets);
    Ok(UpstreamSettings {
        tls,
        health,
        weights,
        balance: balance?,
        eject: eject?,
        slow_start: raw.slow_start.optional(problems)?.map(|time| time.duration()),
        protocol: raw.protocol.get().copied().unwrap_or_default(),
        timeouts: timeouts(&raw.timeouts, problems)?,
        retry: retry(&raw.retry, problems)?,
        max_connections: raw.max_connections.number(default.max_connections, problems)?,
        queue: raw.queue.number(default.queue, problems)?,
        queue_timeout: raw.queue_timeout.duration(default.queue_timeout),
        max_fields: raw.max_fields.number(default.max_fields, problems)?,
        max_field_bytes: raw.max_field_bytes.size(default.max_field_bytes, problems)?,
        ..default
    })
}

/// Rejects a target that is listed twice, because both entries would share one state, such as the health.
fn reject_repeated(listed: &[Located<file::Target>], targets: &[Target], problems: &mut Problems) -> Checked<()> {
    let mut result = Ok(());
    for (position, (raw, target)) in listed.iter().zip(targets).enumerate() {
        if targets[..position].contains(target) {
            let message = format!("{} is listed twice", quote(&target.to_string()));
            result = Err(raw.report(message, "list it once, with a higher `weight`", problems));
        }
    }
    result
}

fn timeouts(raw: &Located<file::Timeouts>, problems: &mut Problems) -> Checked<Timeouts> {
    let default = Timeouts::default();
    let Some(raw) = raw.optional(problems)? else { return Ok(default) };
    Ok(Timeouts {
        connect: raw.connect.duration(default.connect),
        response: raw.response.duration(default.response),
        idle: raw.idle.duration(default.idle),
        total: raw.total.get().map(|total| total.duration()),
    })
}

fn weighted_target(raw: &file::Target, problems: &mut Problems) -> Checked<(Target, u32)> {
    let weight = raw.weight.number(1, problems);
    Ok((target(&raw.url, problems)?, weight?))
}

fn target(raw: &Located<String>, problems: &mut Problems) -> Checked<Target> {
    let url = raw.required(problems)?.as_str();
    let (message, help) = match url.split_once(':') {
        Some(("builtin", "echo")) => return Ok(Target::Echo),
        Some(("builtin", _)) => (format!("{} is not built in", quote(url)), "use `builtin:echo`"),
        Some((scheme @ ("http" | "https"), rest)) if rest.starts_with("//") => match authority(&rest[2..]) {
            Ok(authority) if scheme == "https" => return Ok(Target::Https(authority)),
            Ok(authority) => return Ok(Target::Http(authority)),
            Err(fault) => (format!("{} {fault}", quote(url)), TARGET_HELP),
        },
        Some((scheme @ ("srv" | "srv+https"), rest)) if rest.starts_with("//") => match service(&rest[2..]) {
            Ok(name) => return Ok(Target::Service(Service { name, is_tls: scheme == "srv+https" })),
            Err(fault) => (format!("{} {fault}", quote(url)), TARGET_HELP),
        },
        Some(("unix", path)) => match socket_path(path) {
            Ok(path) => return Ok(Target::Unix(path)),
            Err(fault) => (format!("{} {fault}", quote(url)), TARGET_HELP),
        },
        _ => (format!("{} is not a target", quote(url)), TARGET_HELP),
    };
    Err(raw.report(message, help, problems))
}

/// Parses the authority of a target. Requests keep their path and query, so a target must have neither.
pub(crate) fn authority(rest: &str) -> Result<Authority, &'static str> {
    let text = rest.strip_suffix('/').unwrap_or(rest);
    if text.contains('@') {
        return Err("must not have a user or a password");
    }
    if text.contains(['/', '?', '#']) {
        return Err("must not have a path or a query: requests keep theirs");
    }
    let host_end = if text.starts_with('[') { text.find(']').map_or(text.len(), |end| end + 1) } else { text.len() };
    let (host, port) = match text.rfind(':').filter(|colon| *colon >= host_end || !text.starts_with('[')) {
        Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
        None => (text, None),
    };
    if !matches!(HostPattern::parse(host), Ok(HostPattern::Exact(_))) {
        return Err("has no valid host");
    }
    if port.is_some_and(|port| !port.parse().is_ok_and(|port: u16| port > 0)) {
        return Err("has a port that is not a number from 1 to 65535");
    }
    text.parse().map_err(|_| "has no valid host")
}

/// Parses the name of a service. Its port is in the SRV records.
fn service(rest: &str) -> Result<Authority, &'static str> {
    let name = authority(rest)?;
    let labels: Vec<_> = name.host().splitn(3, '.').collect();
    let is_service = matches!(labels[..], [service, proto, _] if [service, proto].iter().all(|label| label.len() > 1 && label.starts_with('_')));
    match name.port() {
        Some(_) => Err("must not have a port: SRV records have ports"),
        None if !is_service => Err("is not a name of SRV records, such as `_http._tcp.api.internal`"),
        None => Ok(name),
    }
}
