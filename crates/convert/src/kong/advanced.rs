//! The plugin `rate-limiting-advanced`: pairs of `limit` and `window_size`, in fixed or sliding windows.

use std::num::NonZeroU32;
use std::time::Duration;

use super::limits::{finish, read_by, rounded_up};
use super::model::Plugin;
use super::plan::{Plan, Window, of_replicas};
use super::redis;
use crate::draft::{Algorithm, Draft, Interval};
use crate::fields::{Fields, setting};
use crate::report::{Report, Verdict};
use crate::tree::{Entry, Node};

pub(super) const NAME: &str = "rate-limiting-advanced";

/// The sizes of fixed windows that begin with a unit of the calendar, in seconds.
const UNITS: [(u64, &str); 4] = [(1, "second"), (60, "minute"), (3_600, "hour"), (86_400, "day")];

/// The longest interval of the rule file, in seconds.
const MAX_SECONDS: u64 = 366 * 86_400;

/// The most windows of a plugin.
const MAX_WINDOWS: usize = 16;

/// Reads a plugin, and reports its settings.
pub(super) fn read(plugin: &Plugin<'_>, replicas: NonZeroU32, draft: &mut Draft, report: &mut Report) -> Option<Plan> {
    let mut fields = plugin.settings();
    let (by, by_setting) = read_by(plugin, &mut fields, "identifier", report);
    let mut plan = Plan::new(by, by_setting);
    let replicas = read_strategy(plugin, &mut fields, &mut plan, replicas, draft, report);
    let kind = read_kind(plugin, &mut fields, report);
    let (limits, sizes) = (fields.take("limit"), fields.take("window_size"));
    read_windows(plugin, (limits, sizes), kind, replicas, &mut plan, report);
    fields.skip(&["dictionary_name", "retry_after_jitter_max", "namespace", "lock_dictionary_name"]);
    finish(plugin, fields, &mut plan, draft, report);
    Some(plan)
}

/// Whether windows slide, and then whether rejected requests count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fixed,
    Sliding { counts_rejected: bool },
}

fn read_kind(plugin: &Plugin<'_>, fields: &mut Fields<'_>, report: &mut Report) -> Kind {
    let penalty = fields.take("disable_penalty");
    let counts_rejected = penalty.and_then(|entry| entry.value.flag()) != Some(true);
    if let Some(entry) = penalty {
        let reason = "rejected requests never count";
        let verdict = if counts_rejected { Verdict::Looser } else { Verdict::Same };
        report.add(&plugin.entity.place_of(entry), verdict, plugin.setting(&setting(entry)), reason);
    }
    let kind = fields.take("window_type");
    let is_fixed = kind.and_then(|entry| entry.value.text()) == Some("fixed");
    if let Some(entry) = kind {
        report.same(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), "`algorithm`");
    }
    if is_fixed { Kind::Fixed } else { Kind::Sliding { counts_rejected } }
}

/// Reads where the counters are. Returns the number of processes that count separately.
fn read_strategy(
    plugin: &Plugin<'_>,
    fields: &mut Fields<'_>,
    plan: &mut Plan,
    replicas: NonZeroU32,
    draft: &mut Draft,
    report: &mut Report,
) -> NonZeroU32 {
    let (strategy, sync) = (fields.take("strategy"), fields.take("sync_rate"));
    let is_off = sync.and_then(|entry| entry.value.float()).is_some_and(|rate| rate < 0.0);
    let word = strategy.and_then(|entry| entry.value.text()).unwrap_or("local");
    if word == "redis" {
        redis::read(plugin, fields, draft, report);
        // The plugin counts in memory while Redis is unreachable, as the default of the rule file does.
        plan.on_store_failure = None;
    }
    redis::skip(fields);
    if let Some(entry) = strategy {
        let (verdict, reason) = match word {
            "redis" => (Verdict::Same, "`store`"),
            "cluster" if replicas.get() > 1 => (Verdict::Lost, "set `store` to a Redis that the gateways share"),
            _ if replicas.get() > 1 => (Verdict::Looser, "the rates are the sum of the nodes"),
            _ => (Verdict::Same, "one gateway counts in memory; for several, set `store` to a Redis"),
        };
        report.add(&plugin.entity.place_of(entry), verdict, plugin.setting(&setting(entry)), reason);
    }
    if let Some(entry) = sync {
        let reason = match is_off {
            true => "the counters are in memory",
            false => "the rule file decides with the store's counter, not with one of some time ago",
        };
        let verdict = if is_off { Verdict::Same } else { Verdict::Stricter };
        report.add(&plugin.entity.place_of(entry), verdict, plugin.setting(&setting(entry)), reason);
    }
    if word == "local" || is_off { replicas } else { NonZeroU32::MIN }
}

fn read_windows(
    plugin: &Plugin<'_>,
    (limits, sizes): (Option<&Entry>, Option<&Entry>),
    kind: Kind,
    replicas: NonZeroU32,
    plan: &mut Plan,
    report: &mut Report,
) {
    let Some(limits) = limits else { return };
    let place = plugin.entity.place_of(limits);
    let items = |entry: Option<&Entry>| -> Vec<Option<f64>> {
        entry.map_or(&[][..], |entry| entry.value.one_or_more()).iter().map(Node::float).collect()
    };
    let pairs: Vec<_> = items(Some(limits)).into_iter().zip(items(sizes)).take(MAX_WINDOWS).collect();
    let mut worst = (Verdict::Same, String::new());
    for (limit, size) in &pairs {
        let size = size.filter(|size| *size >= 1.0).and_then(rounded_up).filter(|size| *size <= MAX_SECONDS);
        let (Some(rate), Some(size)) = (limit.and_then(rounded_up), size) else {
            worst = (Verdict::Lost, "a limit or its window is not a number in range".to_owned());
            continue;
        };
        let (rate, verdict, reason) = of_replicas(rate, replicas);
        let (interval, algorithm, difference) = window(size, kind);
        let difference = difference.map_or((verdict, reason), |(verdict, reason)| (verdict, reason.to_owned()));
        worst = if difference.0 > worst.0 { difference } else { worst };
        plan.windows.push(Window { name: format!("{size}s"), rate, interval, algorithm, place: place.clone() });
    }
    if pairs.is_empty() {
        worst = (Verdict::Lost, "there is no `window_size` for it".to_owned());
    }
    report.add(&place, worst.0, plugin.setting(&setting(limits)), worst.1);
    if let Some(entry) = sizes {
        report.same(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), "`interval`");
    }
}

/// Returns a window of some seconds, with its difference from Kong's.
fn window(seconds: u64, kind: Kind) -> (Interval, Algorithm, Option<(Verdict, &'static str)>) {
    let time = Interval::Time(Duration::from_secs(seconds));
    let unit = UNITS.iter().find(|(length, _)| *length == seconds);
    match (kind, unit) {
        (Kind::Fixed, Some((_, unit))) => (Interval::Calendar(unit), Algorithm::FixedWindow, None),
        (Kind::Fixed, None) => {
            let reason = "in any window of this size, since the calendar has no such unit";
            (time, Algorithm::TokenBucket, Some((Verdict::Stricter, reason)))
        }
        (Kind::Sliding { counts_rejected }, _) => {
            let reason = match counts_rejected {
                true => "rejected requests do not count, and the window is exact instead of estimated",
                false => "the window is exact; Kong estimates it, so that some have more requests, others fewer",
            };
            (time, Algorithm::SlidingWindow, Some((Verdict::Looser, reason)))
        }
    }
}
