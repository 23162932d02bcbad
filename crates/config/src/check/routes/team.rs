//! The routes of a team: their hosts, and their limits.

use crate::Team;
use crate::check::Checked;
use crate::file;
use crate::problem::{Problems, quote, quote_all};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::Matcher;

/// Reports hosts of a route that do not belong to its team.
pub(crate) fn check_hosts(
    matcher: Matcher,
    route: &file::Route,
    team: Option<&Team>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let Some(team) = team.filter(|team| !team.hosts.is_empty()) else { return Ok(matcher) };
    let raw = route.r#match.required(problems)?;
    let mut checked = Ok(());
    for (host, raw) in matcher.hosts.iter().zip(raw.host.items()) {
        if !team.hosts.iter().any(|own| own.covers(host)) {
            let message =
                format!("the host {} does not belong to team {}", quote(&host.to_string()), quote(&team.name));
            let hosts: Vec<_> = team.hosts.iter().map(ToString::to_string).collect();
            let help = format!("use {}", quote_all(hosts.iter().map(String::as_str)));
            checked = Err(raw.report(message, help, problems));
        }
    }
    checked.map(|()| matcher)
}

/// Reports a route without an enforced limit, if its team needs limits.
pub(crate) fn check_limits(limits: &[Limit], route: &file::Route, team: Option<&Team>, problems: &mut Problems) {
    if let Some(team) = team.filter(|team| team.require_limits && limits.iter().all(|limit| limit.shadow)) {
        let message = format!("a route of team {} needs a limit without `shadow`", quote(&team.name));
        problems.add(route.limits.location, message, "add `limits`, for example `limits: [{ name: total, ... }]`");
    }
}
