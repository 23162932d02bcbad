//! The cost of a request by the usage that its response reports: `permits: { usage: ... }`.

use super::capacity::{Capacity, check_capacity};
use super::usage_source::usage_source;
use crate::check::prices::PriceFiles;
use crate::check::{Checked, convert, present_keys, reject_keys};
use crate::file::{Limit, Permits, Reserve as Bounds, Weights};
use crate::problem::{Location, Problems, quote};
use tidegate_rules::limits::budget::{Reserve, TokenRates, UsageCost};
use tidegate_rules::limits::usage_source::UsageSource;
use tidegate_usage::Weights as TokenWeights;

/// Converts the cost by usage of a limit.
pub(super) fn usage_cost(
    raw: &Limit,
    from: &Permits,
    (capacity, prices): (Capacity, &PriceFiles),
    problems: &mut Problems,
) -> Checked<UsageCost> {
    let keys = present_keys!(from, header json default max);
    let checked = reject_keys(&keys, "with `usage`: the response reports the cost", "leave it out", problems);
    let checked = check_limit(raw, problems).and(checked);
    let source = usage_source(&from.usage, problems);
    let rates = rates(from, source.as_ref().ok(), prices, problems);
    let reserve = source.as_ref().map_err(|reported| *reported).and_then(|source| reserve(from, source, problems));
    let slices = source.as_ref().map_err(|reported| *reported).and_then(|source| slices(from, source, problems));
    let max_input = from.max_input.optional(problems)?.copied();
    let max_input = max_input.map(|max| convert(max, from.max_input.location, problems)).transpose();
    let (on_lost, on_disconnect) = (from.on_lost.or_default(problems), from.on_disconnect.or_default(problems));
    checked?;
    let ((reserve, at), (slice, whole)) = (reserve?, slices?);
    let (source, rates, on_lost, on_disconnect) = (source?, rates?, on_lost?, on_disconnect?);
    let cost = UsageCost { source, rates, reserve, slice, whole, max_input: max_input?, on_lost, on_disconnect };
    let consequence = match reserve {
        Reserve::Output(_) => "a request without a bound of its output would never pass",
        Reserve::Total(_) => "no request would ever pass",
    };
    check_capacity(cost.least_bound().into(), capacity, "reserve", consequence, at, problems)?;
    Ok(cost)
}

/// Converts `reserve`, with the location of its number. Reports keys that have no effect with this `usage`.
fn reserve(from: &Permits, source: &UsageSource, problems: &mut Problems) -> Checked<(Reserve, Location)> {
    let unread = match source {
        UsageSource::Api(_) => Vec::new(),
        UsageSource::Members(_) => present_keys!(from, max_input),
        UsageSource::Header(_) | UsageSource::Bytes | UsageSource::Milliseconds => {
            present_keys!(from, max_input on_disconnect)
        }
    };
    let reason = format!("with this `usage`, {}", quote(&source.to_string()));
    let checked = reject_keys(&unread, &reason, "leave it out", problems);
    let is_api = source.api().is_some();
    let (key, message, help) = match is_api {
        true => (
            "output",
            "`usage` needs `reserve`: a request without a bound of its output gets this one",
            "for example `reserve: { output: 4096 }`",
        ),
        false => (
            "total",
            "`usage` needs `reserve`: the request does not have the most that its response reports",
            "for example `reserve: { total: 4096 }`",
        ),
    };
    let Some(raw) = from.reserve.optional(problems)? else {
        return Err(problems.add_missing(from.usage.location, "reserve", message.to_owned(), help));
    };
    let (number, others) = match is_api {
        true => (&raw.output, present_keys!(raw, total)),
        false => (&raw.total, present_keys!(raw, output slice whole)),
    };
    let checked = reject_keys(&others, &reason, "write the other key of `reserve`", problems).and(checked);
    let Some(reserved) = number.optional(problems)? else {
        let message = format!("`reserve` needs {}", quote(key));
        return Err(problems.add_missing(from.reserve.location, key, message, help));
    };
    let reserved = convert(*reserved, number.location, problems)?;
    checked?;
    Ok((if is_api { Reserve::Output(reserved) } else { Reserve::Total(reserved) }, number.location))
}

/// Converts `slice` and `whole`.
fn slices(from: &Permits, source: &UsageSource, problems: &mut Problems) -> Checked<(Option<u32>, Vec<String>)> {
    let whole_bound = Ok((None, Vec::new()));
    let (Some(bounds), Some(api)) = (from.reserve.get(), source.api()) else { return whole_bound };
    let Bounds { slice, whole, .. } = bounds;
    let Some(tokens) = slice.optional(problems)? else {
        let keys = present_keys!(bounds, whole);
        reject_keys(&keys, "without `slice`", "add `slice`, for example `slice: 256`", problems)?;
        return whole_bound;
    };
    if !api.has_endable_streams() {
        let message = format!("the gateway cannot end the streams of {}", quote(api.name()));
        return Err(slice.report(message, "leave `slice` out: the whole bound is reserved", problems));
    }
    let Some(patterns) = whole.optional(problems)? else {
        let message = "`slice` needs `whole`: the models with output that their streams do not show".to_owned();
        let help = "for example `whole: [\"o1*\", \"o3*\"]`, or `[]`";
        return Err(problems.add_missing(slice.location, "whole", message, help));
    };
    let whole = patterns.iter().map(|pattern| pattern.required(problems).cloned()).collect::<Checked<_>>()?;
    Ok((Some(convert(*tokens, slice.location, problems)?), whole))
}

/// Reports the keys of `usage` in a limit without it.
pub(super) fn check_without_usage(from: &Permits, problems: &mut Problems) -> Checked<()> {
    let keys = present_keys!(from, weights prices reserve max_input on_lost on_disconnect);
    reject_keys(&keys, "without `usage`", "add `usage`, for example `usage: openai`", problems)
}

/// Reports keys of a limit that work only if the cost is known before the response.
fn check_limit(raw: &Limit, problems: &mut Problems) -> Checked<()> {
    let keys = present_keys!(raw, max_wait charge_on key adopt shards candidate);
    let checked = reject_keys(&keys, "with `usage`", "leave it out", problems);
    match raw.algorithm.get().filter(|name| name.has_time_slots()) {
        Some(name) => {
            let message =
                format!("{} assigns time slots, and a cost that is not known yet has none", quote(name.name()));
            Err(raw.algorithm.report(message, "use another algorithm", problems))
        }
        None => checked,
    }
}

/// Converts `weights` or `prices`.
fn rates(
    from: &Permits,
    source: Option<&UsageSource>,
    prices: &PriceFiles,
    problems: &mut Problems,
) -> Checked<TokenRates> {
    let Some(path) = from.prices.optional(problems)? else {
        return weights(from, source, problems).map(TokenRates::Weights);
    };
    let keys = present_keys!(from, weights);
    let checked = reject_keys(&keys, "with `prices`", "leave out one of them", problems);
    if let Some(source) = source.filter(|source| source.api().is_none()) {
        let message =
            format!("`prices` needs the model, and no API has requests with {}", quote(&format!("usage: {source}")));
        return Err(from.prices.report(message, "use `weights`, or the name of an API as `usage`", problems));
    }
    let prices = prices.get(path, from.prices.location, problems);
    checked?;
    Ok(TokenRates::Prices { path: path.as_str().into(), prices: prices? })
}

/// Converts `weights`. Reports kinds that responses do not report.
fn weights(from: &Permits, source: Option<&UsageSource>, problems: &mut Problems) -> Checked<TokenWeights> {
    let Some(raw) = from.weights.optional(problems)? else { return Ok(TokenWeights::default()) };
    let mut unused = Vec::new();
    if let Some(source) = source.filter(|source| source.api().is_none()) {
        unused = present_keys!(raw, cached_input cache_write);
        unused.extend(if source.has_input() { Vec::new() } else { present_keys!(raw, input) });
        unused.extend(if source.has_output() { Vec::new() } else { present_keys!(raw, output) });
    }
    let checked = reject_keys(&unused, "with this `usage`, which does not report it", "leave it out", problems);
    let Weights { input, cached_input, cache_write, output } = raw;
    let [input, cached_input, cache_write, output] = [input, cached_input, cache_write, output]
        .map(|weight| weight.optional(problems).map(|weight| weight.copied().unwrap_or(1.0)));
    let weights = TokenWeights::new(input?, cached_input?, cache_write?, output?);
    checked?;
    weights.ok_or_else(|| problems.reported(from.weights.location))
}
