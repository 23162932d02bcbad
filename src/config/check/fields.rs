//! Header fields to remove, and rules that read removed fields.

use http::HeaderName;

use super::matcher::header_name;
use super::{Checked, needed, part};
use crate::config::Purpose;
use crate::config::file::{self, File, Permits};
use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};
use crate::rules::{FieldRules, Pattern, Strip, Underscores};
use crate::sanitize::{hop_by_hop, name};

/// The word for all patterns of [`Strip::DEFAULT`].
const DEFAULT: &str = "default";

pub(super) fn fields(file: &File, root: &Node, problems: &mut Problems) -> Checked<FieldRules> {
    let node = root.at("requests");
    let Some(written) = part(&file.requests, root, "requests", problems)? else { return Ok(FieldRules::default()) };
    let underscores = part(&written.underscores, node, "underscores", problems);
    let strip = strip(written, node, problems);
    Ok(FieldRules { strip: strip?, underscores: underscores?.copied().unwrap_or_default() })
}

fn strip(written: &file::Requests, node: &Node, problems: &mut Problems) -> Checked<Strip> {
    let (strip, keep) = (part(&written.strip, node, "strip", problems), part(&written.keep, node, "keep", problems));
    let patterns = match strip? {
        None => defaults().collect(),
        Some(list) => patterns(list, node.at("strip"), problems)?,
    };
    let keep = keep?.into_iter().flatten().zip(node.at("keep").items());
    let kept: Vec<_> =
        keep.map(|(text, node)| kept_field(needed(text, node, problems)?, &patterns, node, problems)).collect();
    Ok(Strip::new(patterns, kept.into_iter().collect::<Checked<Vec<_>>>()?))
}

fn patterns(list: &[Option<String>], node: &Node, problems: &mut Problems) -> Checked<Vec<Pattern>> {
    let mut patterns = Vec::new();
    for (text, node) in list.iter().zip(node.items()) {
        match needed(text, node, problems).map(String::as_str) {
            Ok(DEFAULT) => patterns.extend(defaults().map(Ok)),
            Ok(text) => patterns.push(pattern(text, node.location, problems)),
            Err(reported) => patterns.push(Err(reported)),
        }
    }
    patterns.into_iter().collect()
}

fn kept_field(text: &str, patterns: &[Pattern], node: &Node, problems: &mut Problems) -> Checked<HeaderName> {
    let name = header_name(text, node.location, problems)?;
    if !patterns.iter().any(|pattern| pattern.matches(name.as_str())) {
        let message = format!("{} does not match `strip`", quote(text));
        return Err(problems.add(node.location, message, "remove it from `keep`"));
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
pub(super) struct FieldCheck<'f> {
    pub(super) fields: &'f FieldRules,
    pub(super) has_trusted_proxies: bool,
    pub(super) purpose: Purpose,
}

impl FieldCheck<'_> {
    /// Reports each field that a rule reads although it is always removed before.
    pub(super) fn check(&self, file: &File, root: &Node, problems: &mut Problems) {
        let routes = file.routes.iter().flatten().zip(root.at("routes").items());
        for (route, node) in routes.filter_map(|(route, node)| Some((route.as_ref()?, node))) {
            for entry in node.at("match").at("headers").entries() {
                self.check_name(&entry.key, entry.location, problems);
            }
            let limits = route.limits.iter().flatten().zip(node.at("limits").items());
            for (limit, node) in limits.filter_map(|(limit, node)| Some((limit.as_ref()?, node))) {
                self.check_limit(limit, node, problems);
            }
        }
    }

    fn check_limit(&self, limit: &file::Limit, node: &Node, problems: &mut Problems) {
        let clients = limit.client.iter().flatten().zip(node.at("client").items());
        for (client, node) in clients {
            if let Some(name) = client.as_deref().and_then(|client| client.strip_prefix("header:")) {
                self.check_name(name, node.location, problems);
            }
        }
        if let Some(Permits::Header(permits)) = &limit.permits
            && let Some(name) = &permits.header
        {
            self.check_name(name, node.at("permits").at("header").location, problems);
        }
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
