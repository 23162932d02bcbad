//! The cost of a request, which must not exceed the capacity of a bucket.

use super::budget::{check_without_usage, usage_cost};
use super::capacity::{Capacity, check_capacity};
use crate::check::names::{header_name, pointer};
use crate::check::prices::PriceFiles;
use crate::check::{Checked, convert, present_keys, reject_keys};
use crate::file::located::ValueOrMap;
use crate::file::{Limit, Permits};
use crate::problem::{Location, Problems};
use tidegate_rules::limits::cost::{Cost, HeaderCost, JsonCost};

/// Converts `permits`.
pub(crate) fn cost(raw: &Limit, prices: &PriceFiles, problems: &mut Problems) -> Checked<Cost> {
    let (permits, at) = (raw.permits.optional(problems)?, raw.permits.location);
    let capacity = Capacity::new(raw);
    match permits {
        None => Ok(Cost::Fixed(1)),
        Some(ValueOrMap::Value(permits)) => {
            let checked = check_capacity(*permits, capacity, "permits", "no request would ever pass", at, problems);
            checked.and_then(|()| convert(*permits, at, problems)).map(Cost::Fixed)
        }
        Some(ValueOrMap::Map(from)) if from.usage.is_present() => {
            usage_cost(raw, from, (capacity, prices), problems).map(|cost| Cost::Usage(Box::new(cost)))
        }
        Some(ValueOrMap::Map(from)) => {
            let checked = check_without_usage(from, problems);
            sent_cost(from, at, capacity, problems).and_then(|cost| checked.map(|()| cost))
        }
    }
}

/// Converts a cost from a header field or from the body.
fn sent_cost(from: &Permits, at: Location, capacity: Capacity, problems: &mut Problems) -> Checked<Cost> {
    if from.json.is_present() {
        let keys = present_keys!(from, header);
        let checked = reject_keys(&keys, "with `json`: the body has the cost", "leave it out", problems);
        let text = from.json.required(problems);
        let place = text.and_then(|text| pointer(text, from.json.location, problems));
        let (default, max) = bounds(from, "a request without the value would never pass", capacity, problems)?;
        return checked.and(place).map(|pointer| Cost::Json(JsonCost { pointer, default, max }));
    }
    if !from.header.is_present() {
        let message = "`permits` needs `header`, `json` or `usage`".to_owned();
        return Err(problems.add_missing(at, "header", message, "for example `header: X-Cost`"));
    }
    let name = from.header.required(problems);
    let name = name.and_then(|name| header_name(name, from.header.location, problems));
    let (default, max) = bounds(from, "a request without the field would never pass", capacity, problems)?;
    Ok(Cost::Header(HeaderCost { name: name?, default, max }))
}

/// Converts `default` and `max`. `consequence` is of a default above the capacity.
fn bounds(
    from: &Permits,
    consequence: &str,
    capacity: Capacity,
    problems: &mut Problems,
) -> Checked<(u32, Option<u32>)> {
    let default = from.default.optional(problems).map(|default| default.copied().unwrap_or(1));
    let max = from.max.optional(problems).map(Option::<&u64>::copied);
    if let (Ok(default), Ok(Some(max))) = (default, max)
        && default > max
    {
        let message = format!("`default` is {default}, above the `max` of {max}");
        from.default.report(message, "raise `max`, or lower `default`", problems);
    }
    let (default, max) = (default?, max?);
    let (at_default, at_max) = (from.default.location, from.max.location);
    let checked = check_capacity(default, capacity, "default", consequence, at_default, problems);
    let never_granted = "some costs would never be granted";
    let checked_max = max.map(|max| check_capacity(max, capacity, "max", never_granted, at_max, problems));
    checked.and(checked_max.unwrap_or(Ok(())))?;
    let max = max.map(|max| convert(max, at_max, problems)).transpose()?;
    Ok((convert(default, at_default, problems)?, max))
}
