//! The cost of a request by the usage that its response reports: `permits: { usage: ... }`.

use super::capacity::{Capacity, check_capacity};
use crate::check::{Checked, convert, present_keys, reject_keys};
use crate::file::{Limit, Permits, Weights};
use crate::problem::{Problems, quote};
use tidegate_rules::limits::budget::UsageCost;
use tidegate_usage::Weights as TokenWeights;

/// Converts the cost by usage of a limit.
pub(super) fn usage_cost(
    raw: &Limit,
    from: &Permits,
    capacity: Capacity,
    problems: &mut Problems,
) -> Checked<UsageCost> {
    let keys = present_keys!(from, header json default max);
    let checked = reject_keys(&keys, "with `usage`: the response reports the cost", "leave it out", problems);
    let checked = check_limit(raw, problems).and(checked);
    let weights = weights(from, problems);
    let output = from.reserve.optional(problems);
    let Some(reserve) = output? else {
        let message = "`usage` needs `reserve`: a request without a bound of its output gets this one".to_owned();
        let help = "for example `reserve: { output: 4096 }`";
        return Err(problems.add_missing(from.usage.location, "reserve", message, help));
    };
    let output =
        reserve.output.required(problems).and_then(|output| convert(*output, reserve.output.location, problems));
    let max_input = from.max_input.optional(problems)?.copied();
    let max_input = max_input.map(|max| convert(max, from.max_input.location, problems)).transpose();
    let (on_lost, on_disconnect) = (from.on_lost.or_default(problems), from.on_disconnect.or_default(problems));
    checked?;
    let cost = UsageCost {
        api: *from.usage.required(problems)?,
        weights: weights?,
        output: output?,
        max_input: max_input?,
        on_lost: on_lost?,
        on_disconnect: on_disconnect?,
    };
    let (least, consequence) = (cost.least_bound().into(), "a request without a bound of its output would never pass");
    check_capacity(least, capacity, "reserve", consequence, reserve.output.location, problems)?;
    Ok(cost)
}

/// Reports the keys of `usage` in a limit without it.
pub(super) fn check_without_usage(from: &Permits, problems: &mut Problems) -> Checked<()> {
    let keys = present_keys!(from, weights reserve max_input on_lost on_disconnect);
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

fn weights(from: &Permits, problems: &mut Problems) -> Checked<TokenWeights> {
    let Some(Weights { input, cached_input, cache_write, output }) = from.weights.optional(problems)? else {
        return Ok(TokenWeights::default());
    };
    let [input, cached_input, cache_write, output] = [input, cached_input, cache_write, output]
        .map(|weight| weight.optional(problems).map(|weight| weight.copied().unwrap_or(1.0)));
    let weights = TokenWeights::new(input?, cached_input?, cache_write?, output?);
    weights.ok_or_else(|| problems.reported(from.weights.location))
}
