//! The `rate_limit` of a descriptor.

use super::LongUnits;
use super::map::Map;
use super::metadata::read_metadata;
use crate::problem::{Checked, Problems, quote};
use crate::yaml::node::Node;
use tidegate_limit::MAX_RATE;
use tidegate_service::{Rate, RuleLimit, Unit};

const KEYS: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];

/// Reads the limit of a descriptor. Reports all errors. Adds a unit that is longer than a day to `long_units`.
pub(super) fn read_limit(
    descriptor: Map<'_>,
    long_units: &mut LongUnits,
    problems: &mut Problems,
) -> Checked<Option<RuleLimit>> {
    let shadow = descriptor.bool("shadow_mode", problems);
    let (quota_mode, metadata) = (descriptor.bool("quota_mode", problems), read_metadata(descriptor, problems));
    let Some(node) = descriptor.get("rate_limit") else { return shadow.map(|_| None) };
    let map = Map::read(node, "`rate_limit`", &KEYS, problems)?;
    let rate = read_rate(map, long_units, problems);
    let name = map.text("name", problems).map(|name| name.map(|(name, _)| name.to_owned()));
    // First all entries, so that all errors are reported.
    let replaces: Vec<_> =
        map.list("replaces", problems).iter().map(|node| read_replaced(node, &name, problems)).collect();
    Ok(Some(RuleLimit {
        name: name?,
        replaces: replaces.into_iter().collect::<Checked<_>>()?,
        shadow: shadow?,
        quota_mode: quota_mode?,
        metadata: metadata?,
        location: problems.limit_location(node.location),
        ..RuleLimit::new(rate?)
    }))
}

fn read_rate(map: Map<'_>, long_units: &mut LongUnits, problems: &mut Problems) -> Checked<Rate> {
    let (unlimited, number) = (map.bool("unlimited", problems), map.number("requests_per_unit", problems));
    let unit = map.text("unit", problems)?;
    let known = unit.and_then(|(word, _)| Unit::from_name(&word.to_ascii_lowercase()));
    if unlimited? {
        return match (known, unit) {
            (Some(_), Some((_, location))) => {
                Err(problems.add(location, "`unlimited` has no `unit`", "remove `unit` or `unlimited`"))
            }
            _ => Ok(Rate::Unlimited),
        };
    }
    let words = "use `second`, `minute`, `hour`, `day`, `week`, `month` or `year`";
    let (unit, location) = match (known, unit) {
        (Some(known), Some((_, location))) => (known, location),
        (_, Some((word, location))) => {
            return Err(problems.add(location, format!("{} is not a unit", quote(word)), words));
        }
        (_, None) => return Err(problems.add(map.location(), "`unit` is missing", words)),
    };
    if unit.millis() > Unit::DAY.millis() {
        long_units.push((unit, location));
    }
    let requests_per_unit = number?.unwrap_or_else(|| {
        let help = "write the number of requests, or `requests_per_unit: 0` to reject all";
        problems.warn(map.location(), "without `requests_per_unit`, the limit rejects all requests", help);
        0
    });
    if let (true, Some(node)) = (requests_per_unit > MAX_RATE, map.get("requests_per_unit")) {
        let message = format!("`requests_per_unit` is above the largest rate: {MAX_RATE} requests pass");
        problems.warn(node.location, &message, "write `unlimited: true` to let all requests pass");
    }
    Ok(Rate::Limited { requests_per_unit, unit })
}

/// Reads an entry of `replaces`. `own` is the name of the limit.
fn read_replaced(node: &Node, own: &Checked<Option<String>>, problems: &mut Problems) -> Checked<String> {
    let map = Map::read(node, "an entry of `replaces`", &["name"], problems)?;
    match map.text("name", problems)? {
        None => Err(problems.add(map.location(), "an entry of `replaces` has no `name`", "name a limit")),
        Some((name, location)) if own.as_ref().is_ok_and(|own| own.as_deref() == Some(name)) => {
            Err(problems.add(location, "a limit cannot replace itself", "name another limit"))
        }
        Some((name, _)) => Ok(name.to_owned()),
    }
}
