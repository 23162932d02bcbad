//! A limit of a route, or a shared limit.

pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod candidate;
pub(crate) mod capacity;
pub(crate) mod charge_on;
pub(crate) mod cost;
pub(crate) mod quota;
pub(crate) mod rate_key;
pub(crate) mod rates;
pub(crate) mod raw_limits;
pub(crate) mod redisson;
pub(crate) mod route_limits;
pub(crate) mod schedule;
pub(crate) mod shared_limits;
pub(crate) mod spread;
pub(crate) mod usage_source;
pub(crate) mod windows;

use std::sync::Arc;

use self::charge_on::charge_on;
use self::quota::quota;
use self::raw_limits::{limits_of, rate_sources};
use crate::check::identities::check_configured;
use crate::check::matching::route_context::RouteContext;
use crate::check::matching::{conditions::body_values, matcher, spelling};
use crate::check::names::pointer;
use crate::check::request_value::request_value;
use crate::check::{Checked, all, present_keys, reject_keys};
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::suggest::nearest;
use crate::problem::{Location, Problems, quote};
use tidegate_limit::{Mode, Quota};
use tidegate_rules::charge::Limiter;
use tidegate_rules::client::{ClientFunction, ClientSource, TlsName};
use tidegate_rules::limits::cost::Cost;
use tidegate_rules::limits::rates::Rates;
use tidegate_rules::limits::rule::{Limit, OnStoreFailure, WaitPolicy};
use tidegate_rules::request::identity::{IdentityKind, IdentityValue};
use tidegate_rules::route::Case;
use tidegate_rules::rules::When;

const CLIENT_HELP: &str = "a client is `ip`, `host`, `path`, `header:NAME`, `cookie:NAME`, `query:NAME`, `tls:subject`, `tls:san`, \
     `json:POINTER`, `jwt:CLAIM`, `key:id`, `key:ATTRIBUTE`, `extension` and `extension:NAME` in a layer, or a list of these";

const GATEWAY_CLIENT_HELP: &str = "for a gateway use `ip`, `header:NAME`, `cookie:NAME`, `query:NAME` or `tls:subject`";

/// A limit in the rule file, and the start of its limiter's name.
#[derive(Clone, Copy)]
pub(crate) struct RawLimit<'f> {
    pub(crate) keys: &'f file::Limit,
    /// The location of the entry.
    pub(crate) location: Location,
    pub(crate) name: Checked<&'f str>,
    /// The hash tag of the route, or of the shared limit.
    pub(crate) group: &'f str,
    pub(crate) shared: bool,
    pub(crate) context: RouteContext<'f>,
}

/// Converts a limit and its candidate, and adds its conditions to `when`. `other_names` are the names of the limits of its route.
pub(super) fn with_candidate<'f>(
    raw: RawLimit<'f>,
    other_names: impl Iterator<Item = &'f str>,
    when: &mut Vec<When>,
    problems: &mut Problems,
) -> Vec<Checked<Limit>> {
    let limit = limit(raw, when, problems);
    let candidate = candidate::candidate(raw.keys, &limit, other_names, problems);
    [limit].into_iter().chain(candidate.transpose()).collect()
}

fn limit(limit: RawLimit<'_>, when: &mut Vec<When>, problems: &mut Problems) -> Checked<Limit> {
    let RawLimit { keys: raw, location, name, shared, context, .. } = limit;
    let conditions = conditions(raw, context, problems);
    let permits = cost::cost(raw, context.prices, problems);
    let client = client(raw, context.functions, problems);
    redisson::check_store(raw, context.in_memory, problems);
    let sharing = redisson::sharing(raw, problems);
    let rate_keys = rates::default_keys(raw, context.file, problems);
    let quota = sharing.and_then(|sharing| quota(raw, rate_keys?, sharing, location, problems));
    let wait_policy = wait_policy(raw, problems);
    let charge_on = charge_on(raw, problems);
    let on_store_failure = on_store_failure(raw, problems);
    let name = name?;
    let mode = redisson::mode(raw, sharing?, problems)?;
    let (limiter, rates) = limiter_and_rates(limit, mode, quota?, &permits, problems)?;
    let conditions = conditions?;
    let has_tiers = rates.as_ref().is_some_and(|rates| rates.tiers().next().is_some());
    let reads_key_tier = !has_tiers && conditions.as_ref().is_some_and(|when| !when.tiers.is_empty());
    Ok(Limit {
        name: name.to_owned(),
        limiter,
        rates,
        reads_key_tier,
        body_conditions: conditions.iter().flat_map(|when| when.matcher.body_pointers()).cloned().collect(),
        when: conditions.map(|conditions| {
            when.push(conditions);
            when.len() - 1
        }),
        client: client?,
        permits: permits?,
        on_missing_client: raw.on_missing_client.or_default(problems)?,
        duplicates: raw.duplicates.or_default(problems)?,
        on_store_failure: on_store_failure?,
        wait_policy: wait_policy?,
        charge_on: charge_on?,
        shadow: raw.shadow.or_default(problems)?,
        sets_partitions: raw.partitions.get().is_some(),
        is_shared: shared,
        location: problems.limit_location(location),
    })
}

/// Returns the limiter of a limit, and the rates that depend on the request.
fn limiter_and_rates(
    limit: RawLimit<'_>,
    mode: Mode,
    quota: Quota,
    cost: &Checked<Cost>,
    problems: &mut Problems,
) -> Checked<(Arc<Limiter>, Option<Arc<Rates>>)> {
    let (raw, name) = (limit.keys, limit.name?);
    let spread = spread::spread(raw, mode, &quota, problems)?;
    let key = raw.key.get().cloned().unwrap_or_else(|| format!("{}:{name}", limit.group));
    let budget = cost.as_ref().ok().and_then(|cost| Some(cost.usage()?.on_lost));
    let limiter = spread.apply(Limiter::new(key, mode, quota)).with_budget(budget);
    let parts = rates::LimiterParts { name: &limiter.name, mode, cost, budget, spread: &spread };
    let rates = rates::rates(raw, limit.context.file, &parts, &limiter, problems)?.map(Arc::new);
    let limiter = rates.as_ref().map_or_else(|| Arc::new(limiter), |rates| Arc::clone(rates.default_limiter()));
    Ok((limiter, rates))
}

/// Converts `when`.
fn conditions(raw: &file::Limit, context: RouteContext<'_>, problems: &mut Problems) -> Checked<Option<When>> {
    let Some(raw) = raw.when.optional(problems)? else { return Ok(None) };
    let matcher = matcher::conditions(&raw.matcher, context.matching, Case::Sensitive, problems);
    let case = raw.matcher.case.get().copied().unwrap_or_default();
    let of_body = body_values(&raw.json, case, problems);
    let tiers = rates::tiers_of_condition(&raw.tier, context.file, problems);
    let schedule = schedule::schedule(raw, problems);
    let mut matcher = matcher?;
    matcher.values.extend(of_body?);
    Ok(Some(When { matcher, tiers: tiers?, schedule: schedule?.map(Box::new) }))
}

/// Converts `on_store_failure`. A limit with `adopt` has no rate to enforce locally while the store is unreachable.
fn on_store_failure(raw: &file::Limit, problems: &mut Problems) -> Checked<OnStoreFailure> {
    let adopts = raw.adopt.get() == Some(&true);
    match raw.on_store_failure.optional(problems)? {
        None if adopts => Ok(OnStoreFailure::Allow),
        Some(OnStoreFailure::Local) if adopts => {
            let message = "`local` needs a rate, and a limit with `adopt` has none while the store is unreachable";
            Err(raw.on_store_failure.report(message, "use `allow` or `deny`", problems))
        }
        action => Ok(action.copied().unwrap_or_default()),
    }
}

/// Converts `max_wait` and `queue`.
fn wait_policy(raw: &file::Limit, problems: &mut Problems) -> Checked<Option<WaitPolicy>> {
    if raw.algorithm.get().is_some_and(|name| name.has_time_slots()) {
        return Ok(None); // requests wait for time slots, which the algorithm assigns
    }
    let max_wait = raw.max_wait.optional(problems);
    let queue = raw.queue.optional(problems);
    let Some(max_wait) = max_wait? else {
        let message = "`queue` has no effect without `max_wait`";
        return queue?.map_or(Ok(None), |_| Err(raw.queue.report(message, "add `max_wait`", problems)));
    };
    queue?;
    let queue = raw.queue.number(WaitPolicy::DEFAULT_QUEUE, problems)?;
    Ok(Some(WaitPolicy { max_wait: max_wait.duration(), queue }))
}

/// Rejects clients, tiers and rates whose credentials are not configured.
pub(super) fn check_identities(route: &file::Route, context: RouteContext<'_>, problems: &mut Problems) -> Checked<()> {
    let mut checked = Ok(());
    let of_slots = route.concurrency.get().into_iter().flat_map(|concurrency| concurrency.client.items());
    let of_limits = limits_of(context.file, route);
    let of_limits = of_limits.flat_map(|limit| limit.client.items().iter().chain(rate_sources(limit)));
    for raw in of_limits.chain(of_slots) {
        if let Some(value) = raw.get().and_then(|text| IdentityValue::parse(text)) {
            checked = check_configured(value.kinds(), context, raw, problems).and(checked);
            // Only a tier can be an item of a list.
            let is_tier = |limit: &file::Limit| limit.tier.get().is_some_and(|tier| std::ptr::eq(&tier.by, raw));
            let is_list = limits_of(context.file, route).any(is_tier);
            let spelling_of = if is_list { spelling::of_tested_claim } else { spelling::of_claim };
            if let IdentityValue::Claim(claim) = &value
                && let Some(spelling) = spelling_of(claim)
            {
                spelling.warn(raw.location, problems);
            }
        }
    }
    for limit in limits_of(context.file, route).filter(|limit| !limit.tier.is_present()) {
        let Some(tiers) = limit.when.get().map(|when| &when.tier).filter(|tiers| tiers.is_present()) else { continue };
        checked = check_key_tier(tiers, route, context, problems).and(checked);
    }
    checked
}

/// Checks a condition on the tier of the API key: a request with only a token has none.
fn check_key_tier<T>(
    tiers: &Located<T>,
    route: &file::Route,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<()> {
    check_configured(IdentityValue::KeyTier.kinds(), context, tiers, problems)?;
    let required = route.require.items();
    let has_only_token = |item: &Located<_>| match item.get() {
        Some(ValueOrMap::Value(kind)) => *kind == IdentityKind::Token,
        Some(ValueOrMap::Map(file::Require { jwt, keys, .. })) => jwt.is_present() && !keys.is_present(),
        None => false,
    };
    if !required.is_empty() && required.iter().all(has_only_token) {
        let message = "requests with only a token have no tier: `tier` of `when` reads `key:tier`";
        let help =
            "to read it from the token, add `tier: { by: jwt:CLAIM, default: TIER }` to the limit instead of `rate`";
        problems.warn(tiers.location, message, help);
    }
    Ok(())
}

/// Rejects `client: extension` in the gateway, where no code could set the key.
pub(super) fn reject_extension<'f>(
    limits: impl Iterator<Item = &'f file::Limit>,
    problems: &mut Problems,
) -> Checked<()> {
    let mut checked = Ok(());
    for limit in limits {
        let is_extension =
            |value: &&Located<String>| value.get().is_some_and(|value| value.split(':').next() == Some("extension"));
        let message = "`extension` works only in a layer, where the program sets the key of each request";
        for client in limit.client.items().iter().filter(is_extension) {
            checked = Err(client.report(message, GATEWAY_CLIENT_HELP, problems));
        }
        for by in rate_sources(limit).filter(is_extension) {
            checked = Err(by.report(message, rates::BY_HELP, problems));
        }
    }
    checked
}

/// Converts `client`, which PER_CLIENT requires and OVERALL rejects.
fn client(raw: &file::Limit, functions: &[ClientFunction], problems: &mut Problems) -> Checked<ClientSource> {
    let mode = raw.mode.get();
    if mode == Some(&Mode::Overall) {
        let keys = present_keys!(raw, client on_missing_client duplicates);
        _ = reject_keys(&keys, "on an OVERALL limit", "leave it out, or use `mode: PER_CLIENT`", problems);
    }
    let Some(sources) = raw.client.optional(problems)? else {
        return match mode {
            Some(Mode::PerClient) => {
                let message = "a PER_CLIENT limit needs `client`".to_owned();
                Err(problems.add_missing(raw.client.location, "client", message, "for example `client: ip`"))
            }
            Some(Mode::Overall) | None => Ok(ClientSource::Ip),
        };
    };
    self::sources(sources, functions, problems)
}

/// Converts the sources of a client.
pub(crate) fn sources(
    raw: &[Located<String>],
    functions: &[ClientFunction],
    problems: &mut Problems,
) -> Checked<ClientSource> {
    let mut sources = all(raw.iter().map(|raw| source(raw, functions, problems)))?;
    Ok(match sources.len() {
        1 => sources.remove(0),
        _ => ClientSource::All(sources),
    })
}

fn source(raw: &Located<String>, functions: &[ClientFunction], problems: &mut Problems) -> Checked<ClientSource> {
    let text = raw.required(problems)?.as_str();
    if let Some(source) = request_value(text, raw, problems)? {
        return Ok(source);
    }
    match (text.split_once(':'), IdentityValue::parse(text)) {
        (None, _) if text == "ip" => return Ok(ClientSource::Ip),
        (None, _) if text == "host" => return Ok(ClientSource::Host),
        (None, _) if text == "path" => return Ok(ClientSource::Path),
        (None, _) if text == "extension" => return Ok(ClientSource::Extension),
        (Some(("function", number)), _) => {
            if let Some(function) = number.parse().ok().and_then(|number: usize| functions.get(number)) {
                return Ok(ClientSource::Function(function.clone()));
            }
        }
        (Some(("json", text)), _) => return pointer(text, raw.location, problems).map(ClientSource::Json),
        (Some(("tls", "subject")), _) => return Ok(ClientSource::Tls(TlsName::Subject)),
        (Some(("tls", "san")), _) => return Ok(ClientSource::Tls(TlsName::San)),
        (Some(("jwt" | "key" | "basic" | "extension", _)), Some(value)) => return Ok(ClientSource::Identity(value)),
        _ => {}
    }
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let help = match nearest(
        kind,
        ["ip", "host", "path", "header", "cookie", "query", "json", "tls", "jwt", "key", "basic", "extension"],
    ) {
        Some(near) if near != kind => {
            format!("did you mean {}?", quote(&name.map_or(near.to_owned(), |name| format!("{near}:{name}"))))
        }
        _ => CLIENT_HELP.to_owned(),
    };
    Err(raw.report(format!("{} is not a client source", quote(text)), help, problems))
}
