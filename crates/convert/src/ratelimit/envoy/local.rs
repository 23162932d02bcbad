//! Local rate limits: token buckets in each process of Envoy.

use std::time::Duration;

use super::filters::Filters;
use super::hosts::Host;
use super::route::effective;
use super::{At, Conversion};
use crate::draft::Limit;
use crate::ratelimit::actions::parts;
use crate::ratelimit::domain::{Rate, Rule, RuleLimit};
use crate::ratelimit::plan::{Charge, find, set_rate};
use crate::ratelimit::values::{duration, fraction};
use crate::tree::Node;

/// The key of the filter in the settings of a route.
const KEY: &str = "envoy.filters.http.local_ratelimit";

/// A bucket of Envoy.
struct Bucket {
    size: u64,
    fill: u64,
    interval: Duration,
}

impl<'a> Conversion<'a, '_> {
    /// Adds the local limits of a route, from the settings of the route, of its virtual host, or of the filter: the first that
    /// exists.
    pub(super) fn local_limits(&mut self, node: At<'a>, host: &Host<'a>, filters: &Filters<'a>, number: usize) {
        for filter in &filters.local {
            let own = [node, host.node].into_iter().find_map(|node| node.at(&["typed_per_filter_config", KEY]));
            self.local_limit(own.unwrap_or(*filter), node, host, number);
        }
    }

    fn local_limit(&mut self, config: At<'a>, node: At<'a>, host: &Host<'a>, number: usize) {
        let place = config.place();
        let is_first = self.local.insert((place.file.to_string(), place.line));
        let kept = self.report.findings.len();
        let enforced = self.local_settings(config);
        if let Some(shadow) = enforced {
            self.bucket_limit(config, shadow, number);
            self.descriptor_limits(config, shadow, node, host, number);
        }
        if !is_first {
            self.report.findings.truncate(kept);
        }
    }

    /// Reports the settings of a filter. Returns whether it is a shadow, or `None` if it is off.
    fn local_settings(&mut self, config: At<'a>) -> Option<bool> {
        let share = |key| config.get(key).map_or(Some(0.0), |node| fraction(node.node));
        for (key, value, place) in config.entries() {
            match key {
                "@type" | "stat_prefix" | "stage" | "descriptors" | "filter_enabled" | "filter_enforced" => {}
                "token_bucket" => {}
                "status" | "enable_x_ratelimit_headers" | "rate_limited_as_resource_exhausted" => {
                    self.report.same(&place, key, "responses of the route");
                }
                "local_rate_limit_per_downstream_connection" if value.node.flag() != Some(true) => {}
                "always_consume_default_token_bucket" if value.node.flag() == Some(false) => {
                    self.report.stricter(&place, key, "requests of a descriptor are charged to both buckets");
                }
                "always_consume_default_token_bucket" => {}
                _ => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
        for key in ["filter_enabled", "filter_enforced"] {
            if let (Some(at), Some(part)) = (config.get(key), share(key)) {
                match part > 0.0 && part < 1.0 {
                    true => self.report.stricter(&at.place(), key, "the limit applies to all requests"),
                    false => self.report.same(&at.place(), key, ""),
                }
            }
        }
        let (enabled, enforced) = (share("filter_enabled").unwrap_or(1.0), share("filter_enforced").unwrap_or(1.0));
        if enabled <= 0.0 {
            self.report.same(&config.place(), "local_ratelimit", "off: `filter_enabled` is 0 %");
            return None;
        }
        Some(enforced <= 0.0)
    }

    /// Adds the limit of all requests.
    fn bucket_limit(&mut self, config: At<'a>, shadow: bool, number: usize) {
        let Some(node) = config.get("token_bucket") else { return };
        let place = node.place();
        let Some(bucket) = Bucket::read(node) else {
            self.report.lost(&place, "token_bucket", "not a bucket with a size and an interval of at least 1 ms");
            return;
        };
        let mut limit = Limit { name: "local".to_owned(), shadow, place: Some(place.clone()), ..Limit::default() };
        if let Err(reason) = set_rate(&mut limit, bucket.rate(), self.replicas) {
            self.report.lost(&place, "token_bucket", reason);
            return;
        }
        self.plan.add_limit(format!("local {place}"), limit, number);
        let setting = format!("token_bucket: {} of {}", bucket.fill, bucket.size);
        match self.replicas {
            1 => self.report.same(&place, setting, "`gcra`, which fills evenly"),
            count => {
                let reason = format!("one bucket with the rate of {count} processes, for all of them together");
                self.report.looser(&place, setting, reason);
            }
        }
    }

    /// Adds the limits of descriptors, which the actions of a route make.
    fn descriptor_limits(&mut self, config: At<'a>, shadow: bool, node: At<'a>, host: &Host<'a>, number: usize) {
        let cluster = node.get("route").and_then(|action| action.text("cluster")).unwrap_or_default();
        let scope = format!("local {}", config.place());
        let charge = Charge { scope: &scope, on_store_failure: None, permits: 1, replicas: self.replicas, shadow };
        let rules: Vec<Rule> = config.items("descriptors").filter_map(rule).collect();
        for (descriptor, rule) in config.items("descriptors").zip(&rules) {
            let mut names = Vec::new();
            let mut lost = None;
            for entry in effective(node, host) {
                if !self.compare(1, &entry.place()) {
                    return;
                }
                let actions = entry.node.get("actions").map_or(&[][..], Node::items);
                let found = parts(actions, cluster).and_then(|parts| {
                    let found = find(std::slice::from_ref(rule), &parts).map_err(str::to_owned)?;
                    self.plan.add(&found, &charge, number).map_err(str::to_owned)
                });
                match found {
                    Ok(limits) => names.extend(limits),
                    Err(reason) => lost = Some(reason),
                }
            }
            let setting = format!("descriptor {}", rule.show());
            match lost {
                Some(reason) => self.report.lost(&descriptor.place(), setting, reason),
                None if names.is_empty() => {
                    self.report.same(&descriptor.place(), setting, "no action of the route makes it");
                }
                None => self.report.same(&descriptor.place(), setting, format!("limits {}", names.join(", "))),
            }
        }
    }
}

impl Bucket {
    fn rate(&self) -> Rate {
        Rate::Bucket { size: self.size, fill: self.fill, interval: self.interval }
    }

    /// Reads a bucket. `None` if it has no size, or its interval is too short or too long for a limit.
    fn read(node: At<'_>) -> Option<Self> {
        const MAX: u64 = 2_147_483_648 / 1_000;
        let number = |key: &str, default| node.get(key).map_or(default, |value| value.node.number());
        let (size, fill) = (number("max_tokens", None)?, number("tokens_per_fill", Some(1))?);
        let interval = duration(node.get("fill_interval")?.node)?;
        let range = Duration::from_millis(1)..=Duration::from_secs(366 * 86_400);
        let is_valid = range.contains(&interval) && (1..=MAX).contains(&size) && (1..=MAX).contains(&fill);
        is_valid.then_some(Self { size, fill, interval })
    }
}

/// Returns the entries of a descriptor as a rule with one rule below each, and the bucket at the end.
fn rule(descriptor: At<'_>) -> Option<Rule> {
    let bucket = descriptor.get("token_bucket");
    let (place, read) = (descriptor.place(), bucket.and_then(Bucket::read)?);
    let rate = read.rate();
    let place_of_limit = bucket.map_or_else(|| place.clone(), At::place);
    let mut limit = Some(RuleLimit { rate, name: None, shadow: false, combines: None, place: place_of_limit });
    let entries: Vec<_> = descriptor.items("entries").collect();
    entries.into_iter().rev().fold(None, |below: Option<Rule>, entry| {
        let text = |key| entry.text(key).filter(|text| !text.is_empty()).map(str::to_owned);
        Some(Rule {
            key: text("key").unwrap_or_default(),
            value: text("value"),
            limit: limit.take(),
            rules: below.into_iter().collect(),
            shares_bucket: false,
        })
    })
}
