//! The plugin `rate-limiting`: requests in each second, minute, hour, day, month and year of the calendar, in UTC.

use std::num::NonZeroU32;
use std::time::Duration;

use super::model::Plugin;
use super::plan::{By, Plan, Window, of_replicas, reject};
use super::redis;
use crate::draft::{Algorithm, Draft, Interval};
use crate::fields::{Fields, setting};
use crate::header_fields;
use crate::report::{Report, Verdict};

pub(super) const NAME: &str = "rate-limiting";

/// The settings of periods that the rule file has as calendar units.
const PERIODS: [&str; 5] = ["second", "minute", "hour", "day", "month"];

/// A year without boundaries.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Reads a plugin, and reports its settings.
pub(super) fn read(plugin: &Plugin<'_>, replicas: NonZeroU32, draft: &mut Draft, report: &mut Report) -> Option<Plan> {
    let mut fields = plugin.settings();
    let (by, by_setting) = read_by(plugin, &mut fields, "limit_by", report);
    let mut plan = Plan::new(by, by_setting);
    let replicas = read_policy(plugin, &mut fields, &mut plan, replicas, draft, report);
    for period in PERIODS {
        read_window(plugin, &mut fields, period, replicas, &mut plan, report);
    }
    read_year(plugin, &mut fields, replicas, &mut plan, report);
    finish(plugin, fields, &mut plan, draft, report);
    Some(plan)
}

/// Reads what all limiting plugins have, and reports the rest.
pub(super) fn finish(
    plugin: &Plugin<'_>,
    mut fields: Fields<'_>,
    plan: &mut Plan,
    draft: &mut Draft,
    report: &mut Report,
) {
    plan.reject = reject(plugin, &mut fields, report);
    if let Some(entry) = fields.take("hide_client_headers") {
        plan.hides_headers = entry.value.flag() == Some(true);
        report.same(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), "`headers` of the routes");
    }
    if plan.by.uses_address() {
        draft.clients.ipv6_prefix = Some(128);
    }
    for entry in fields.rest() {
        let place = plugin.entity.place_of(entry);
        report.lost(&place, plugin.setting(&setting(entry)), "the rule file has no such key");
    }
}

/// Reads the part of a request that the plugin counts by, with its header field and path.
pub(super) fn read_by(
    plugin: &Plugin<'_>,
    fields: &mut Fields<'_>,
    key: &str,
    report: &mut Report,
) -> (By, (crate::report::Place, String)) {
    let (header, path) = (fields.take("header_name"), fields.take("path"));
    for entry in [header, path].into_iter().flatten() {
        report.same(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), "");
    }
    let (header, path) = (header.and_then(|entry| entry.value.text()), path.and_then(|entry| entry.value.text()));
    let entry = fields.take(key);
    let by = match entry.and_then(|entry| entry.value.text()).unwrap_or("consumer") {
        "ip" => By::Ip,
        "service" => By::Service,
        "credential" => By::Credential,
        "consumer-group" => By::Group,
        "header" => {
            header.filter(|name| header_fields::is_name(name)).map_or(By::Ip, |name| By::Header(name.to_owned()))
        }
        "path" => path.and_then(crate::matching::exact).map_or(By::Ip, By::Path),
        _ => By::Consumer,
    };
    let place = entry.map_or_else(|| plugin.entity.place(), |entry| plugin.entity.place_of(entry));
    let text = entry.map_or_else(|| format!("{key}: consumer (default)"), setting);
    (by, (place, plugin.setting(&text)))
}

/// Reads where the counters are. Returns the number of processes that count separately.
fn read_policy(
    plugin: &Plugin<'_>,
    fields: &mut Fields<'_>,
    plan: &mut Plan,
    replicas: NonZeroU32,
    draft: &mut Draft,
    report: &mut Report,
) -> NonZeroU32 {
    let policy = fields.take("policy");
    let tolerant = fields.take("fault_tolerant");
    let is_tolerant = tolerant.and_then(|entry| entry.value.flag()).unwrap_or(true);
    let word = policy.and_then(|entry| entry.value.text()).unwrap_or("local");
    let is_shared = matches!(word, "redis" | "cluster");
    if is_shared {
        plan.on_store_failure = Some(if is_tolerant { "allow" } else { "deny" });
    }
    if word == "redis" {
        redis::read(plugin, fields, draft, report);
    }
    redis::skip(fields);
    if let Some(entry) = tolerant {
        let reason = if is_shared { "`on_store_failure`" } else { "the counters are in memory" };
        report.same(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), reason);
    }
    if let Some(entry) = policy {
        let (verdict, reason) = policy_verdict(word, replicas);
        report.add(&plugin.entity.place_of(entry), verdict, plugin.setting(&setting(entry)), reason);
    }
    if let Some(entry) = fields.take("sync_rate") {
        let reason = "the rule file decides with the store's counter, not with one of some time ago";
        report.stricter(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), reason);
    }
    if is_shared { NonZeroU32::MIN } else { replicas }
}

fn policy_verdict(word: &str, replicas: NonZeroU32) -> (Verdict, &'static str) {
    match word {
        "redis" => (Verdict::Same, "`store`; concurrent requests cannot exceed the limit"),
        "cluster" if replicas.get() > 1 => {
            (Verdict::Lost, "the nodes share counters in the database of Kong: set `store` to a Redis")
        }
        "cluster" => (Verdict::Same, "one gateway counts in memory; for several, set `store` to a Redis"),
        _ if replicas.get() > 1 => (Verdict::Looser, "the rates are the sum of the nodes; set `store` to a Redis"),
        _ => (Verdict::Same, "one gateway counts in memory"),
    }
}

fn read_window(
    plugin: &Plugin<'_>,
    fields: &mut Fields<'_>,
    period: &'static str,
    replicas: NonZeroU32,
    plan: &mut Plan,
    report: &mut Report,
) {
    let Some(entry) = fields.take(period) else { return };
    let place = plugin.entity.place_of(entry);
    let Some(rate) = entry.value.float().and_then(rounded_up) else {
        return report.lost(&place, plugin.setting(&setting(entry)), "not a number above 0");
    };
    let (rate, verdict, reason) = of_replicas(rate, replicas);
    report.add(&place, verdict, plugin.setting(&setting(entry)), reason);
    let (interval, algorithm) = (Interval::Calendar(period), Algorithm::FixedWindow);
    plan.windows.push(Window { name: period.to_owned(), rate, interval, algorithm, place });
}

fn read_year(plugin: &Plugin<'_>, fields: &mut Fields<'_>, replicas: NonZeroU32, plan: &mut Plan, report: &mut Report) {
    let Some(entry) = fields.take("year") else { return };
    let place = plugin.entity.place_of(entry);
    let Some(rate) = entry.value.float().and_then(rounded_up) else {
        return report.lost(&place, plugin.setting(&setting(entry)), "not a number above 0");
    };
    let (rate, _, _) = of_replicas(rate, replicas);
    report.stricter(&place, plugin.setting(&setting(entry)), "in any 366 days, since the calendar has no year");
    let (interval, algorithm) = (Interval::Time(YEAR), Algorithm::TokenBucket);
    plan.windows.push(Window { name: "year".to_owned(), rate, interval, algorithm, place });
}

/// Returns the number of requests that a limit admits. Kong compares the limit with the number of requests before.
pub(super) fn rounded_up(limit: f64) -> Option<u64> {
    const MAX: f64 = 2_147_483_648.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and in range")]
    (limit > 0.0).then_some(limit.ceil().min(MAX) as u64)
}
