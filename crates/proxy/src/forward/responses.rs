//! Maps the paths in responses of an upstream back, for routes with `rewrite`.

use std::sync::Arc;

use http::header::{CONTENT_LOCATION, HOST, LOCATION, SET_COOKIE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::upstream::Upstream;
use tidegate_rules::route::{HostRewrite, Rewrite};

/// How to map the paths of a response.
#[derive(Debug)]
pub(super) struct ResponseRewrite {
    rewrite: Arc<Rewrite>,
    /// The host that the upstream received, if it names the upstream.
    host: Option<Authority>,
}

impl ResponseRewrite {
    /// Creates the mapping for the response to a request with these fields. Returns `None` if responses stay unchanged.
    pub(super) fn new(rewrite: Arc<Rewrite>, sent: &HeaderMap) -> Option<Box<Self>> {
        if rewrite.responses == Some(false) {
            return None;
        }
        // By default, the upstream receives the host of the client.
        let is_of_upstream = rewrite.host != HostRewrite::Keep || rewrite.maps_all_responses();
        let host = sent.get(HOST).filter(|_| is_of_upstream).and_then(|host| host.to_str().ok()?.parse().ok());
        Some(Box::new(Self { rewrite, host }))
    }

    /// Changes the fields of a response.
    pub(super) fn apply(&self, fields: &mut HeaderMap, upstream: &Upstream) {
        map_values(fields, &LOCATION, |value| self.location(value, upstream));
        if self.rewrite.maps_all_responses() {
            map_values(fields, &CONTENT_LOCATION, |value| self.location(value, upstream));
            map_values(fields, &SET_COOKIE, |value| self.cookie(value));
        }
    }

    /// Returns the path of a reference to the upstream as clients have to request it. Returns `None` if the reference does
    /// not change.
    fn location(&self, reference: &str, upstream: &Upstream) -> Option<String> {
        let (authority, rest) = split_authority(reference);
        match authority {
            Some((authority, port)) => {
                let authority: Authority = authority.parse().ok().filter(|_| !authority.contains('@'))?;
                let is_host = |host: &Authority| {
                    let ports = [host, &authority].map(|one| one.port_u16().unwrap_or(port));
                    host.host().eq_ignore_ascii_case(authority.host()) && ports[0] == ports[1]
                };
                if !upstream.has_authority(&authority, port) && !self.host.as_ref().is_some_and(is_host) {
                    return None;
                }
            }
            None if self.rewrite.maps_all_responses() && rest.starts_with('/') => {}
            None => return None,
        }
        let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let path = self.rewrite.response_path(if path.is_empty() { "/" } else { path })?;
        // `//host` and `/\host` would lead to another host.
        let is_safe = !path.starts_with("//") && !path.starts_with("/\\");
        is_safe.then(|| path + query)
    }

    /// Returns a cookie with its path mapped. Returns `None` if the cookie does not change.
    fn cookie(&self, cookie: &str) -> Option<String> {
        let mut attributes = cookie.split_inclusive(';');
        let mut changed = attributes.next()?.to_owned();
        let mut is_changed = false;
        for attribute in attributes {
            let (text, end) = attribute.strip_suffix(';').map_or((attribute, ""), |text| (text, ";"));
            let path = text.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("path"));
            let mapped = path.and_then(|(_, path)| self.rewrite.response_path(path.trim()));
            match (path, mapped) {
                (Some((name, _)), Some(mapped)) => {
                    // A cookie for `/a/` is not sent to `/a`.
                    let mapped = if mapped.len() > 1 { mapped.trim_end_matches('/') } else { &mapped };
                    changed.extend([name, "=", mapped, end]);
                    is_changed = true;
                }
                _ => changed.push_str(attribute),
            }
        }
        is_changed.then_some(changed)
    }
}

/// Replaces the values for which `map` returns others.
fn map_values(fields: &mut HeaderMap, name: &HeaderName, map: impl Fn(&str) -> Option<String>) {
    for value in fields.iter_mut().filter(|(other, _)| *other == name).map(|(_, value)| value) {
        let mapped = value.to_str().ok().and_then(&map).and_then(|text| HeaderValue::try_from(text).ok());
        if let Some(mapped) = mapped {
            *value = mapped;
        }
    }
}

/// Splits a reference into its authority with the default port of its scheme, if it has one, and the rest.
fn split_authority(reference: &str) -> (Option<(&str, u16)>, &str) {
    let is_start = |start: &str| reference.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
    let starts = [("http://", 80), ("https://", 443), ("//", 80)];
    let Some((start, port)) = starts.into_iter().find(|(start, _)| is_start(start)) else { return (None, reference) };
    let rest = &reference[start.len()..];
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    (Some((authority, port)), rest)
}
