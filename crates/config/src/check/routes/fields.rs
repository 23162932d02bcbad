//! Header fields to remove, and rules that read removed fields.

use http::HeaderName;

use super::field_reads::{self, FieldRead};
use crate::Purpose;
use crate::check::limits::raw_limits::own_limits;
use crate::check::names::header_name;
use crate::check::{Checked, all};
use crate::file::located::Located;
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
        let reads = field_reads::of_route(route).into_iter();
        reads.chain(own_limits(route).flat_map(field_reads::of_limit)).for_each(|read| self.check(read, problems));
    }

    /// Reports each field that a limit reads although it is always removed before.
    pub(super) fn check_limit(&self, limit: &file::Limit, problems: &mut Problems) {
        field_reads::of_limit(limit).into_iter().for_each(|read| self.check(read, problems));
    }

    fn check(&self, read: FieldRead<'_>, problems: &mut Problems) {
        if !read.needs_trusted_proxy || self.has_trusted_proxies {
            return self.check_name(read.name, read.location, problems);
        }
        let message = format!("{} is accepted only from trusted proxies, and none are configured", quote(read.name));
        let help = "list the proxies that set it in `clients: { trusted_proxies: [...] }`";
        problems.add(read.location, message, help);
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
