//! Makes a rule file valid: leaves out what it cannot have, with a finding for each part.
//!
//! The formats know the rule file well, but a text of a source can be anything: a header field that rules cannot read, a path
//! with an unusual character, a route below a wider one. So the checks of rule files themselves decide. The place of an
//! error in the text names the item, and the smallest part whose removal corrects the item is left out.

mod check;
mod item;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::check::{Fault, faults};
use self::item::{Owner, Owners};
use crate::draft::value::Map;
use crate::draft::{Draft, LimitUse, Listen, Route, Upstream};
use crate::report::{Place, Report};

/// The most rounds over all errors. Leaving out an item can show further errors, such as a missing name.
const MAX_ROUNDS: usize = 6;

/// The most checks of single items.
const MAX_CHECKS: usize = 2_000;

/// Leaves out all parts of the draft with errors. If some remain after a few rounds, they stay, and the caller reports them.
pub(crate) fn repair(draft: &mut Draft, report: &mut Report) {
    if draft.routes.is_empty() && !draft.service.is_empty() {
        // The check of a service would read the files of its domains.
        return;
    }
    let mut checks = 0;
    for _ in 0..MAX_ROUNDS {
        let text = draft.text("");
        let faults = faults(text.clone());
        if faults.is_empty() {
            return;
        }
        let owners = Owners::of(&text);
        let mut by_owner: BTreeMap<Owner, Fault> = BTreeMap::new();
        for fault in faults {
            by_owner.entry(owners.at(fault.line)).or_insert(fault);
        }
        // From the last item to the first, so that positions stay valid.
        for (owner, fault) in by_owner.into_iter().rev() {
            correct(draft, &owner, &fault, &mut checks, report);
        }
    }
}

/// Leaves out the parts of an item with errors, or the whole item.
fn correct(draft: &mut Draft, owner: &Owner, fault: &Fault, checks: &mut usize, report: &mut Report) {
    match *owner {
        Owner::Route(number) => correct_route(draft, number, fault, checks, report),
        Owner::Upstream(number) if number < draft.upstreams.len() => correct_upstream(draft, number, fault, report),
        Owner::Limit(number) if number < draft.limits.len() => {
            let limit = draft.limits.remove(number);
            let is_other = |used: &LimitUse| !matches!(used, LimitUse::Shared(name) if *name == limit.name);
            draft.routes.iter_mut().for_each(|route| route.limits.retain(is_other));
            lost(report, limit.place.as_ref(), &format!("limit {}", limit.name), fault);
        }
        Owner::Listener(number) if number < draft.listen.len() => correct_listener(draft, number, fault, report),
        Owner::Key(ref key) => {
            let before = draft.more.entries.len();
            draft.more.entries.retain(|(name, _)| name != key);
            if draft.more.entries.len() < before {
                lost(report, None, key, fault);
            }
        }
        Owner::Upstream(_) | Owner::Limit(_) | Owner::Listener(_) | Owner::Unknown => {}
    }
}

fn correct_upstream(draft: &mut Draft, number: usize, fault: &Fault, report: &mut Report) {
    let upstream = draft.upstreams[number].clone();
    let (name, place) = (&upstream.name, upstream.place.as_ref());
    let faults = |more: &Map| item::faults_of_upstream(Upstream { more: more.clone(), ..upstream.clone() });
    if let Some((more, keys)) = item::without_faulty_keys(&upstream.more, faults) {
        for key in keys {
            lost(report, place, &format!("{key} of the upstream {name}"), fault);
        }
        draft.upstreams[number].more = more;
        return;
    }
    draft.upstreams.remove(number);
    draft.routes.retain(|route| route.upstream.as_ref() != Some(name));
    lost(report, place, &format!("upstream {name} and its routes"), fault);
}

fn correct_listener(draft: &mut Draft, number: usize, fault: &Fault, report: &mut Report) {
    let listen = draft.listen[number].clone();
    let (address, place) = (&listen.address, listen.place.as_ref());
    let faults = |more: &Map| item::faults_of_listener(Listen { more: more.clone(), ..listen.clone() });
    if let Some((more, keys)) = item::without_faulty_keys(&listen.more, faults) {
        for key in keys {
            lost(report, place, &format!("{key} of the listener {address}"), fault);
        }
        draft.listen[number].more = more;
        return;
    }
    draft.listen.remove(number);
    lost(report, place, &format!("listener {address}"), fault);
}

fn correct_route(draft: &mut Draft, number: usize, fault: &Fault, checks: &mut usize, report: &mut Report) {
    let Some(route) = draft.routes.get(number).cloned() else { return };
    let (name, place) = (route.name.clone(), route.place.clone());
    if fault.is_unreachable() {
        draft.routes.remove(number);
        let place = place.unwrap_or_else(|| Place::start_of("-"));
        report.same(&place, format!("route {name}"), "left out: earlier routes match all of its requests");
        return;
    }
    match item::corrected(draft, route, checks, MAX_CHECKS) {
        Some((route, parts)) => {
            draft.routes[number] = route;
            for (place, part, fault) in parts {
                lost(report, place.as_ref(), &format!("{part} of the route {name}"), &fault);
            }
        }
        None => {
            let removed = draft.routes.remove(number);
            lost(report, place.as_ref(), &format!("route {name}"), fault);
            if removed.responds_with(403) {
                close_behind(draft, &removed, number);
            }
        }
    }
}

/// Closes the routes with the paths of a rejecting route that was left out.
fn close_behind(draft: &mut Draft, removed: &Route, number: usize) {
    let is_behind = |route: &&mut Route| {
        route.matches.paths == removed.matches.paths && route.matches.hosts == removed.matches.hosts
    };
    for route in draft.routes.iter_mut().skip(number).filter(is_behind) {
        route.close(format!("the route {}", removed.name));
    }
}

fn lost(report: &mut Report, place: Option<&Place>, setting: &str, fault: &Fault) {
    let place = place.cloned().unwrap_or_else(|| Place::start_of("-"));
    report.lost(&place, setting, format!("left out: {}", fault.message));
}
