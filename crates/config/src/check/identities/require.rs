//! `require` of a route.

use super::service::service;
use super::{check_configured, issuers};
use crate::check::matching::identity::{of_kind, warn_of_issuers};
use crate::check::matching::route_context::RouteContext;
use crate::check::{Checked, all};
use crate::file::located::{Located, ValueOrMap};
use crate::file::{self, Require};
use crate::problem::Problems;
use tidegate_rules::request::identity::{Alternative, IdentityCondition, IdentityKind, IdentityKinds, Requirement};

/// Converts `require`.
pub(crate) fn require(route: &file::Route, context: RouteContext<'_>, problems: &mut Problems) -> Checked<Requirement> {
    let Some(items) = route.require.optional(problems)? else { return Ok(Requirement::default()) };
    all(items.iter().map(|item| alternative(item, context, problems))).map(Requirement::new)
}

fn alternative(
    raw: &Located<ValueOrMap<IdentityKind, Require>>,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Alternative> {
    let alternative = match raw.required(problems)? {
        ValueOrMap::Value(kind) => Alternative { kinds: IdentityKinds::from_iter([*kind]), ..Alternative::default() },
        ValueOrMap::Map(map) => of_map(map, raw, context, problems)?,
    };
    check_configured(alternative.kinds, context, raw, problems)?;
    Ok(alternative)
}

fn of_map<T>(
    map: &Require,
    raw: &Located<T>,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<Alternative> {
    let kinds = [(IdentityKind::Token, &map.jwt), (IdentityKind::Key, &map.keys), (IdentityKind::User, &map.basic)];
    let given = || kinds.into_iter().filter(|(_, conditions)| conditions.is_present());
    let service = service(map, context, problems)?;
    if given().next().is_none() && service.is_none() {
        let help = "for example `{ jwt: { role: admin } }`";
        return Err(raw.report("`require` has no credentials", help, problems));
    }
    let conditions = all(given().map(|(kind, raw)| of_kind(raw, kind, problems)))?;
    let conditions: Vec<IdentityCondition> = conditions.into_iter().flatten().collect();
    warn_of_issuers(&conditions, &issuers(context.file), map.jwt.key_location(), problems);
    Ok(Alternative { kinds: given().map(|(kind, _)| kind).collect(), conditions, service })
}
