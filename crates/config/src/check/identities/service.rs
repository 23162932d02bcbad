//! `service` of `require`: an authorization service, and the upstream with the connections to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use crate::Purpose;
use crate::check::matching::route_context::RouteContext;
use crate::check::names::{Message, changed_field};
use crate::check::upstreams::authority;
use crate::check::{Checked, all, present_keys, reject_keys};
use crate::file::Require;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_rules::request::identity::{ServiceCheck, ServiceUrl};
use tidegate_rules::route::Routes;
use tidegate_rules::settings::files::ConfiguredFile;
use tidegate_rules::settings::upstream::{Target, Timeouts, UpstreamSettings, UpstreamTls};

/// The highest number of fields that a service receives, and that it passes.
const MAX_FIELDS: usize = 20;

/// The most connections to a service, and the most questions that wait for one, of all workers.
const MAX_CONNECTIONS: usize = 256;

/// The fields that describe the request to the service.
const FORWARDED: [&str; 2] = ["x-forwarded-method", "x-forwarded-uri"];

/// Converts `service`, and the keys that belong to it.
pub(super) fn service(
    map: &Require,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Option<Arc<ServiceCheck>>> {
    let Some(text) = map.service.optional(problems)? else { return reject_alone(map, problems).map(|()| None) };
    if context.purpose == Purpose::Layer {
        let message = "a layer cannot ask a service";
        let help = "remove `service`, and ask the service in your program";
        return Err(map.service.report(message, help, problems));
    }
    let target = target(text, &map.service, problems);
    let ca = authorities(map, context, problems);
    let headers = match map.headers.is_present() {
        true => fields(&map.headers, problems),
        false => Ok(ServiceCheck::DEFAULT_HEADERS.to_vec()),
    };
    let pass = fields(&map.pass, problems);
    let cache = map.cache.optional(problems).map(|life| life.map(|life| life.duration()));
    let timeout = map.timeout.duration(ServiceCheck::DEFAULT_TIMEOUT);
    let on_failure = map.on_failure.or_default(problems);
    let ((url, target), ca) = (target?, ca?);
    // Services with other authorities need other connections.
    let upstream = ca.as_ref().map_or_else(|| target.to_string(), |ca| format!("{target} ({})", ca.display()));
    let (upstream, headers, pass, cache, on_failure) = (upstream.into(), headers?, pass?, cache?, on_failure?);
    Ok(Some(Arc::new(ServiceCheck { url, upstream, ca, headers, pass, cache, timeout, on_failure })))
}

/// Rejects keys that need `service`.
fn reject_alone(map: &Require, problems: &mut Problems) -> Checked<()> {
    let keys = present_keys!(map, headers pass cache timeout on_failure ca);
    let help = "add `service: http://HOST:PORT/PATH`, or leave the key out";
    reject_keys(&keys, "without `service`", help, problems)
}

fn target(text: &str, raw: &Located<String>, problems: &mut Problems) -> Checked<(ServiceUrl, Target)> {
    let help = "write `http://HOST:PORT/PATH`, or the same with `https`";
    let Some(url) = ServiceUrl::parse(text) else {
        let message = format!("{} is not an `http` or `https` URL without credentials or fragment", quote(text));
        return Err(raw.report(message, help, problems));
    };
    match authority(url.authority().map_or("", |authority| authority.as_str())) {
        Ok(authority) if url.is_https() => Ok((url, Target::Https(authority))),
        Ok(authority) => Ok((url, Target::Http(authority))),
        Err(fault) => Err(raw.report(format!("{} {fault}", quote(text)), help, problems)),
    }
}

fn fields(raw: &Located<Vec<Located<String>>>, problems: &mut Problems) -> Checked<Vec<HeaderName>> {
    let Some(items) = raw.optional(problems)? else { return Ok(Vec::new()) };
    if items.len() > MAX_FIELDS {
        let message = format!("more than {MAX_FIELDS} fields");
        return Err(raw.report(message, "list only fields that the service or the upstream reads", problems));
    }
    let names = all(items.iter().map(|raw| {
        let name = changed_field(raw.required(problems)?, raw.location, Message::Request, problems)?;
        match FORWARDED.contains(&name.as_str()) {
            false => Ok(name),
            true => {
                let message = format!("{} must not be listed", quote(name.as_str()));
                Err(raw.report(message, "leave it out: the gateway sets it for each request", problems))
            }
        }
    }))?;
    match (1..names.len()).find(|position| names[..*position].contains(&names[*position])) {
        None => Ok(names),
        Some(second) => {
            let message = format!("{} is listed twice", quote(names[second].as_str()));
            Err(items[second].report(message, "list it once", problems))
        }
    }
}

/// Checks and returns the file of the authorities that sign the certificate of the service.
fn authorities(map: &Require, context: RouteContext<'_>, problems: &mut Problems) -> Checked<Option<PathBuf>> {
    let Some(path) = map.ca.optional(problems)?.map(|path| context.files.path(path)) else { return Ok(None) };
    if !map.service.get().and_then(|text| ServiceUrl::parse(text)).is_some_and(|url| url.is_https()) {
        let help = "leave `ca` out, or use an `https` URL";
        return Err(map.ca.report("`ca` has no effect without an `https` URL in `service`", help, problems));
    }
    let file = ConfiguredFile { key: "ca", path: &path };
    if context.files.are_checked()
        && let Err(bad) = context.files.checks().authorities(file)
    {
        return Err(map.ca.report(bad.to_string(), bad.help, problems));
    }
    Ok(Some(path))
}

/// Adds the upstreams with the connections to the services of routes. Their names are URLs, so no upstream of the file has
/// them.
pub(crate) fn add_upstreams(routes: &Routes, upstreams: &mut BTreeMap<Arc<str>, UpstreamSettings>) {
    for check in routes.iter().flat_map(|route| route.require.services()) {
        let Some(authority) = check.url.authority().cloned() else { continue };
        let longest = upstreams.get(&check.upstream).map_or(Duration::ZERO, |upstream| upstream.timeouts.response);
        let target = if check.url.is_https() { Target::Https(authority) } else { Target::Http(authority) };
        let tls = UpstreamTls { ca: check.ca.clone(), ..UpstreamTls::default() };
        let settings = UpstreamSettings {
            tls: check.url.is_https().then_some(tls),
            // A target that does not respond fails as soon as no question waits for it.
            timeouts: Timeouts { response: check.timeout.max(longest), ..Timeouts::default() },
            max_connections: MAX_CONNECTIONS,
            queue: MAX_CONNECTIONS,
            ..UpstreamSettings::new(Arc::clone(&check.upstream), vec![target])
        };
        upstreams.insert(Arc::clone(&check.upstream), settings);
    }
}
