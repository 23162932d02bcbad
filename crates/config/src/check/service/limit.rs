//! A limit of a domain in the rule file.

use crate::check::limits::quota::{RateKeys, quota_of};
use crate::check::limits::rate_key;
use crate::check::{Checked, all};
use crate::descriptors::MAX_TEXT;
use crate::file;
use crate::file::located::Located;
use crate::problem::{Location, Problems, quote};
use tidegate_limit::{Mode, Quota};
use tidegate_service::{Call, Rate, RuleLimit, Window};

/// The text that matches every value.
const ANY: &str = "*";

/// A limit, and the descriptors that it counts.
pub(super) struct CheckedLimit {
    /// The key and the value of each entry. `None` matches every value.
    pub(super) entries: Vec<(String, Option<String>)>,
    pub(super) limit: RuleLimit,
    /// The location of `match`.
    pub(super) location: Location,
}

/// Converts a limit. `window` is the algorithm of its domain.
pub(super) fn limit(
    located: &Located<file::DomainLimit>,
    window: Checked<Window>,
    problems: &mut Problems,
) -> Checked<CheckedLimit> {
    let raw = located.required(problems)?;
    let entries = entries(raw, problems);
    let mode = raw.keys.mode.required(problems).copied();
    let quota = quota(raw, window, located.location, problems);
    let (shadow, on_store_failure) =
        (raw.keys.shadow.or_default(problems), raw.keys.on_store_failure.or_default(problems));
    let quota_mode = raw.quota_mode.or_default(problems);
    let (name, entries, mode) = (raw.keys.name.required(problems)?, entries?, mode?);
    let has_client = entries.iter().any(|(_, value)| value.as_ref().is_none_or(|value| value.contains(ANY)));
    if mode == Mode::PerClient && !has_client {
        let message = "a PER_CLIENT limit needs a `*` in `match`";
        let help = "write `\"*\"` for the value of the client, or use `mode: OVERALL`";
        return Err(raw.keys.mode.report(message, help, problems));
    }
    let limit = RuleLimit {
        name: Some(name.clone()),
        limit_name: Some(name.clone()),
        mode: Some(mode),
        shadow: shadow?,
        quota_mode: quota_mode?,
        on_store_failure: on_store_failure?,
        location: problems.limit_location(located.location),
        ..RuleLimit::new(Rate::Quota(quota?))
    };
    Ok(CheckedLimit { entries, limit, location: raw.entries.key_location() })
}

/// Converts `match`.
fn entries(raw: &file::DomainLimit, problems: &mut Problems) -> Checked<Vec<(String, Option<String>)>> {
    let entries = raw.entries.required(problems)?;
    if !(1..=Call::MAX_ENTRIES).contains(&entries.len()) {
        let message = format!("`match` has 1 to {} keys, not {}", Call::MAX_ENTRIES, entries.len());
        return Err(raw.entries.report(message, "write the keys and values of a descriptor", problems));
    }
    all(entries.iter().map(|(key, value)| {
        let text = value.required(problems)?;
        if key.contains(ANY) {
            let message = format!("{} has a `*`, which stands for any characters only in a value", quote(key));
            return Err(problems.add(value.key_location(), message, "write the whole key"));
        }
        if key.is_empty() || key.len().max(text.len()) > MAX_TEXT {
            let message = format!("a key or value has 1 to {MAX_TEXT} bytes");
            return Err(problems.add(value.key_location(), message, "use `*` for the rest of a long value"));
        }
        Ok((key.clone(), Some(text.clone()).filter(|text| text != ANY)))
    }))
}

fn quota(
    raw: &file::DomainLimit,
    window: Checked<Window>,
    location: Location,
    problems: &mut Problems,
) -> Checked<Quota> {
    let keys = &raw.keys;
    let algorithm = match keys.algorithm.optional(problems)? {
        Some(algorithm) => *algorithm,
        None => window?.algorithm(),
    };
    if algorithm.has_time_slots() {
        let name = quote(algorithm.name());
        let message = format!("{name} makes requests wait, but calls are answered immediately");
        return Err(keys.algorithm.report(message, "use `gcra`, which also distributes permits evenly", problems));
    }
    let rate = rate_key::fixed(&keys.rate, problems)?;
    quota_of(keys, algorithm, RateKeys { rate, interval: &keys.interval, burst: &keys.burst }, location, problems)
}
