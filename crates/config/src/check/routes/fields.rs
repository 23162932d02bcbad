//! Header fields to remove, and rules that read removed fields.

use http::HeaderName;

use crate::Purpose;
use crate::check::limits::raw_limits::{own_limits, rate_sources};
use crate::check::names::header_name;
use crate::check::{Checked, all};
use crate::file::located::{Located, ValueOrMap};
use crate::file::{self, File};
use crate::problem::{Location, Problems, quote};
use tidegate_rules::request::sanitize::{hop_by_hop, name};
use tidegate_rules::rules::{FieldRules, Pattern, Strip, Underscores};

/// The word for all patterns of [`Strip::DEFAULT`].
const DEFAULT: &str = "default";

pub(crate) fn fields(file: &File, problems: &mut Problems) -> Checked<FieldRules> {
    let Some(raw) = file.requests.optional(problems)? else { return Ok(FieldRules::default()) };
    Ok(FieldRules { strip: strip(raw, problems)?, underscores: raw.underscores.or_default(problems)? })
}

fn strip(raw: &file::Requests, problems: &mut Problems) -> Checked<Strip> {
    let keep = raw.keep.optional(problems);
    let patterns = match raw.strip.optional(problems)? {
        None => defaults().collect(),
        Some(list) => patterns(list, problems)?,
    };
    let kept = all(keep?.into_iter().flatten().map(|name| kept_field(name, &patterns, problems)))?;
    Ok(Strip::new(patterns, kept))
}

fn patterns(list: &[Located<String>], problems: &mut Problems) -> Checked<Vec<Pattern>> {
    let mut patterns = Vec::new();
    for raw in list {
        match raw.required(problems).map(String::as_str) {
            Ok(DEFAULT) => patterns.extend(defaults().map(Ok)),
            Ok(text) => patterns.push(pattern(text, raw.location, problems)),
            Err(reported) => patterns.push(Err(reported)),
        }
    }
    all(patterns.into_iter())
}

fn kept_field(raw: &Located<String>, patterns: &[Pattern], problems: &mut Problems) -> Checked<HeaderName> {
    let text = raw.required(problems)?;
    let name = header_name(text, raw.location, problems)?;
    if !patterns.iter().any(|pattern| pattern.matches(name.as_str())) {
        let message = format!("{} does not match `strip`", quote(text));
        return Err(raw.report(message, "remove it from `keep`", problems));
    }
    Ok(name)
}

fn defaults() -> impl Iterator<Item = Pattern> {
    Strip::DEFAULT.into_iter().filter_map(|text| Pattern::parse(text).ok())
}

fn pattern(text: &str, location: Location, problems: &mut Problems) -> Checked<Pattern> {
    Pattern::parse(text).map_err(|error| {
        let help = "use `X-Name`, `X-Prefix-*`, or `default` for the default list";
        problems.add(location, format!("{} {error}", quote(text)), help)
    })
}

/// Finds rules that read header fields which are always removed.
#[derive(Clone, Copy)]
pub(crate) struct FieldCheck<'f> {
    pub(crate) fields: &'f FieldRules,
    pub(crate) has_trusted_proxies: bool,
    pub(crate) purpose: Purpose,
}

impl FieldCheck<'_> {
    /// Reports each field that a route or its own limits read although it is always removed before.
    pub(super) fn check_route(&self, route: &file::Route, problems: &mut Problems) {
        if let Some(raw) = route.r#match.get() {
            self.check_match(raw, problems);
        }
        own_limits(route).for_each(|limit| self.check_limit(limit, problems));
    }

    /// Reports each field that a limit reads although it is always removed before.
    pub(super) fn check_limit(&self, limit: &file::Limit, problems: &mut Problems) {
        if let Some(when) = limit.when.get() {
            self.check_match(&when.matcher, problems);
        }
        for by in rate_sources(limit) {
            self.check_trusted(by, problems);
        }
        for client in limit.client.items() {
            if let Some(name) = client.get().and_then(|client| client.strip_prefix("header:")) {
                self.check_name(name, client.location, problems);
            }
        }
        if let Some(ValueOrMap::Map(permits)) = limit.permits.get()
            && let Some(name) = permits.header.get()
        {
            self.check_name(name, permits.header.location, problems);
        }
    }

    fn check_match(&self, raw: &file::Match, problems: &mut Problems) {
        for (name, value) in raw.headers.get().into_iter().flatten() {
            self.check_name(name, value.key_location(), problems);
        }
        raw.not.items().iter().filter_map(Located::get).for_each(|not| self.check_match(not, problems));
    }

    /// Checks a value that is accepted only from trusted proxies, if it is a field.
    fn check_trusted(&self, by: &Located<String>, problems: &mut Problems) {
        let Some(name) = by.get().and_then(|by| by.strip_prefix("header:")) else { return };
        if self.has_trusted_proxies {
            return self.check_name(name, by.location, problems);
        }
        let message = format!("{} is accepted only from trusted proxies, and none are configured", quote(name));
        by.report(message, "list the proxies that set it in `clients: { trusted_proxies: [...] }`", problems);
    }

    fn check_name(&self, text: &str, location: Location, problems: &mut Problems) {
        let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else { return };
        let (fault, help) = if hop_by_hop::is_hop_by_hop(&name) && self.purpose == Purpose::Gateway {
            ("is a hop-by-hop field", "use another field: the gateway removes hop-by-hop fields")
        } else if name::has_unusual_chars(name.as_str()) && self.fields.underscores != Underscores::Keep {
            (
                "has a character other than letters, digits and `-`",
                "rename it, or add `requests: { underscores: keep }`",
            )
        } else if !self.has_trusted_proxies && self.fields.strip.has(name.as_str()) {
            let help = "list the proxies that set it in `clients: { trusted_proxies: [...] }`, or accept it from every \
                        client with `requests: { keep: [...] }`";
            ("is accepted only from trusted proxies, and none are configured", help)
        } else {
            return;
        };
        problems.add(location, format!("{} {fault}: no rule can read it", quote(text)), help);
    }
}
