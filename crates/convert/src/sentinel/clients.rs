//! The parameters by which rules count.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::law::whole;
use super::rules::{Kind, Rule};
use crate::draft::value::{Map, Value};
use crate::draft::{Draft, Limit, Match, Mode, Tier};
use crate::matching;
use crate::report::Report;
use crate::tree::Node;

/// The most exceptions of a rule.
const MAX_TIERS: usize = 200;

/// The most exceptions of all rules.
const MAX_ALL_TIERS: usize = 2_000;

/// Sets the clients of the limit of a rule for `factor` processes, and reports the parameters. A rule without a parameter
/// counts all requests together.
pub(super) fn set(rule: &Rule<'_>, limit: &mut Limit, factor: u32, draft: &mut Draft, report: &mut Report) {
    match rule.kind() {
        Kind::Param => set_argument(rule, limit, factor, draft, report),
        Kind::Gateway => {
            if let Some(item) = rule.node.get("paramItem").filter(|item| !item.entries().is_empty()) {
                set_item(rule, item, limit, draft, report);
            }
        }
        _ => {}
    }
}

/// An argument of a Java method. The rule file reads a header field instead.
fn set_argument(rule: &Rule<'_>, limit: &mut Limit, factor: u32, draft: &mut Draft, report: &mut Report) {
    let index = rule.number("paramIdx").unwrap_or(0);
    let field = format!("x-param-{index}");
    let reason = format!("an argument of a Java method: `client` reads the field `{field}` instead, replace it");
    report.lost(&rule.place_of("paramIdx"), rule.setting("paramIdx"), reason);
    set_client(limit, &format!("header:{field}"));
    set_tiers(rule, &field, limit, factor, draft, report);
}

/// Converts the exceptions to tiers. Their names are the values of the field.
fn set_tiers(rule: &Rule<'_>, field: &str, limit: &mut Limit, factor: u32, draft: &mut Draft, report: &mut Report) {
    let items = rule.node.get("paramFlowItemList").map_or(&[][..], Node::items);
    let (Some(rate), Some(interval), false) = (limit.rate, limit.interval, items.is_empty()) else { return };
    let place = rule.place_of("paramFlowItemList");
    let mut has_tiers = false;
    for item in items.iter().take(MAX_TIERS) {
        let base =
            Tier { name: String::new(), rate, interval, burst: limit.burst, place: Some(rule.text.place(item.line)) };
        match tier(item, factor, base, draft) {
            Some(tier) => {
                _ = draft.tier_name(&tier.name);
                draft.tiers.push(tier);
                has_tiers = true;
            }
            None => {
                let object = item.get("object").and_then(Node::text).unwrap_or_default();
                let reason = "its value is no name of a tier, has the tier of another rule, or its count is 0";
                let shown = format!("{}: exception {object}", rule.resource());
                report.lost(&rule.text.place(item.line), shown, reason);
            }
        }
    }
    if !has_tiers {
        return;
    }
    let default = draft.tier_name(&format!("{}-others", rule.resource()));
    draft.tiers.push(Tier { name: default.clone(), rate, interval, burst: limit.burst, place: Some(rule.place()) });
    (limit.rate, limit.interval, limit.burst) = (None, None, None);
    let tier = Map::of([("by", format!("header:{field}").into()), ("default", default.into())]);
    limit.more.set("tier", tier);
    if draft.clients.trusted_proxies.is_empty() {
        draft.clients.trusted_proxies.push(IpNet::from(IpAddr::from(Ipv4Addr::LOCALHOST)));
    }
    let reason = "`tiers`: list the proxies that set the field in `clients.trusted_proxies`";
    report.same(&place, format!("{}: paramFlowItemList", rule.resource()), reason);
}

/// Returns the tier of an exception. Its name is the value.
fn tier(item: &Node, factor: u32, base: Tier, draft: &Draft) -> Option<Tier> {
    let name = item.get("object").and_then(Node::text)?;
    let count = item.get("count").and_then(Node::float)? * f64::from(factor);
    let rate = Some(whole(count)).filter(|rate| *rate > 0)?;
    let is_known = draft.tiers.iter().any(|tier| tier.name == name);
    if is_known || draft.tiers.len() >= MAX_ALL_TIERS || crate::draft::valid_name(name) != name {
        return None;
    }
    // Burst and rate keep their difference.
    let burst = base.burst.map(|burst| burst.saturating_sub(base.rate) + rate);
    Some(Tier { name: name.to_owned(), rate, burst, ..base })
}

/// A part of a request.
fn set_item(rule: &Rule<'_>, item: &Node, limit: &mut Limit, draft: &mut Draft, report: &mut Report) {
    let place = rule.place_of("paramItem");
    let name = item.get("fieldName").and_then(Node::text).unwrap_or_default();
    let is_name = !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let shown = format!("{}: paramItem {name}", rule.resource());
    let source = match item.get("parseStrategy").and_then(Node::number) {
        Some(0) => {
            draft.clients.ipv6_prefix = Some(128);
            Some("ip".to_owned())
        }
        Some(1) => Some("host".to_owned()),
        Some(2) if is_name => Some(format!("header:{}", name.to_ascii_lowercase())),
        Some(3) if is_name => Some(format!("query:{name}")),
        Some(4) if is_name => Some(format!("cookie:{name}")),
        _ => None,
    };
    let Some(source) = source else {
        return report.lost(&place, shown, "one bucket for all requests: the parameter has no form in the rule file");
    };
    set_client(limit, &source);
    match pattern(item, &source) {
        Some(Some(when)) => {
            limit.when = when;
            report.same(&place, shown, "`client` and `when`");
        }
        Some(None) => report.same(&place, shown, "`client`"),
        None => report.lost(&place, shown, "the pattern has no form in the rule file: all values are limited"),
    }
}

fn set_client(limit: &mut Limit, source: &str) {
    limit.mode = Mode::PerClient;
    limit.client = vec![source.to_owned()];
    // A missing parameter is not limited.
    limit.on_missing_client = (!matches!(source, "ip" | "host")).then_some("skip");
}

/// Returns the condition that a value matches the pattern of an item. `Some(None)` without a pattern.
fn pattern(item: &Node, source: &str) -> Option<Option<Match>> {
    let Some(pattern) = item.get("pattern").and_then(Node::text).filter(|pattern| !pattern.is_empty()) else {
        return Some(None);
    };
    let value: Value = match item.get("matchStrategy").and_then(Node::number).unwrap_or(0) {
        0 => Value::List(vec![pattern.into()]),
        1 => Map::of([("prefix", pattern.into())]).into(),
        2 => matching::whole(pattern)?,
        3 => Map::of([("contains", pattern.into())]).into(),
        _ => return None,
    };
    let mut when = Match::default();
    match (source.split_once(':'), value) {
        (Some(("header", name)), value) => when.headers.set(name, value),
        (Some(("query", name)), value) => when.query.set(name, value),
        (Some(("cookie", name)), value) => when.cookies.set(name, value),
        (None, Value::List(_)) if source == "ip" => when.clients = vec![pattern.parse::<IpAddr>().ok()?.into()],
        (None, Value::List(_)) => when.hosts = vec![matching::host(pattern)?],
        _ => return None,
    }
    Some(Some(when))
}
