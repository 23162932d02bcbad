//! Finds the rate that applies to a client of a limit that takes its rate from the request.
//!
//! All rates of a limit use one bucket, which does not tell the tier of its client. The tier is known from a parameter, from
//! the values that name the client, or from the API keys of the client. Otherwise the response has the figures for all
//! rates, and none of them as the figures of the client.

use std::sync::Arc;

use futures_util::{TryStreamExt, stream};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::named::Named;
use super::searches::Searches;
use crate::admin::Active;
use crate::admin::problem::Problem;
use crate::admin::query::Parameters;
use crate::credentials::Verifiers;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Quota, Wait};
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_rules::limits::rates::Rates;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::identity::ApiKey;
use tidegate_rules::rules::{KnownRate, NamedClient};
use tidegate_store::{Inspection, Store};

/// The highest number of API keys that are compared with a client.
const MAX_KEYS: usize = 250_000;

/// The highest number of rates whose figures are read at the same time: each is a call to the store.
const MAX_READS: usize = 32;

/// The searches for API keys.
static SEARCHES: Searches = Searches::new();

/// How the rate of a client is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RateSource {
    /// The limit has one rate for all clients.
    Limit,
    /// A parameter of this request has the tier or the number.
    Parameter,
    /// The values that name the client contain it, or its requests have none.
    Client,
    /// The API keys of the client have the tier or the number.
    ApiKey,
    /// All rates are equal with the override of the client.
    Override,
    /// Only requests of the client show it.
    Unknown,
}

/// The permits of a client with a certain rate.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct Figures {
    /// The permits per interval; null if it is not known, or set in Redis.
    rate: Option<u32>,
    /// The interval in milliseconds.
    interval_ms: Option<u64>,
    /// The permits that requests can take now; null if the rate is not known.
    remaining: Option<u32>,
    /// The permits in use; null if the rate is not known.
    used: Option<u64>,
    /// The permits that requests in flight have reserved; null if the limit is no budget.
    reserved: Option<u64>,
    /// The costs above the budget; null if the limit is no budget.
    debt: Option<u64>,
    /// When a request for one permit is granted (RFC 3339); null if never, or if the rate is not known.
    next_permit_at: Option<String>,
    #[serde(skip)]
    grants: bool,
}

/// A rate that the limit may have for a client.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PossibleRate {
    /// The name of the tier; null for a number.
    tier: Option<String>,
    /// Whether requests without a tier or a number have this rate.
    default: bool,
    /// The figures of the client with this rate.
    #[serde(flatten)]
    figures: Figures,
    #[serde(skip)]
    limiter: Arc<Limiter>,
}

/// The rate of a client.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The limiter with the rate and the override of the client. `None` if the rate is not known.
    pub(super) limiter: Option<Arc<Limiter>>,
    pub(super) tier: Option<String>,
    pub(super) from: RateSource,
}

// === impl Figures ===

impl Figures {
    pub(super) fn new(limiter: &Limiter, inspection: &Inspection) -> Self {
        Self {
            remaining: Some(inspection.remaining),
            used: Some(inspection.used),
            reserved: inspection.reserved,
            debt: inspection.reserved.map(|_| inspection.debt(limiter.quota.full())),
            next_permit_at: inspection.next_permit_at().map(Timestamp::to_rfc3339),
            grants: inspection.wait == Wait::Now,
            ..Self::of_rate(limiter)
        }
    }

    /// Creates figures without the permits of a client.
    fn of_rate(limiter: &Limiter) -> Self {
        let quota = Some(&limiter.quota).filter(|quota| !quota.is_adopted());
        Self { rate: quota.map(Quota::rate), interval_ms: quota.map(Quota::interval), ..Self::default() }
    }

    /// Returns `true` if a request for one permit is granted now.
    pub(super) fn grants(&self) -> bool {
        self.grants
    }
}

// === impl PossibleRate ===

impl PossibleRate {
    fn new(tier: Option<&str>, default: bool, limiter: Arc<Limiter>) -> Self {
        Self { tier: tier.map(str::to_owned), default, figures: Figures::of_rate(&limiter), limiter }
    }
}

// === impl Chosen ===

impl Chosen {
    fn new(limiter: Arc<Limiter>, tier: Option<String>, from: RateSource) -> Self {
        Self { limiter: Some(limiter), tier, from }
    }
}

/// Returns all rates of a limit that takes its rate from the request: its tiers, or the default and the largest rate. Empty
/// for other limits. `adjust` applies the override of a client.
pub(super) fn possible(limit: &Limit, adjust: impl Fn(&Arc<Limiter>) -> Arc<Limiter>) -> Vec<PossibleRate> {
    let Some(rates) = limit.rates.as_deref() else { return Vec::new() };
    let tier = |(name, limiter): (&str, &_)| {
        PossibleRate::new(Some(name), rates.default_tier() == Some(name), adjust(limiter))
    };
    let Some(max) = rates.max() else { return rates.tiers().map(tier).collect() };
    let largest = rates.of_value(&max.to_string()).0;
    let default = PossibleRate::new(None, true, adjust(rates.default_limiter()));
    [default].into_iter().chain(largest.map(|limiter| PossibleRate::new(None, false, adjust(&limiter)))).collect()
}

/// Returns `true` if a request for one permit is granted now with each rate.
pub(super) fn all_grant(rates: &[PossibleRate]) -> bool {
    rates.iter().all(|rate| rate.figures.grants())
}

/// Reads the figures of a client with these rates, at most [`MAX_READS`] at a time.
pub(super) async fn inspect(store: &Store, charge: &Charge, rates: &mut [PossibleRate]) -> Result<(), Problem> {
    let all = stream::iter(rates.iter_mut().map(Ok::<_, Problem>));
    let read = all.try_for_each_concurrent(MAX_READS, |rate| async move {
        let charge = Charge { limiter: Arc::clone(&rate.limiter), ..charge.clone() };
        rate.figures = Figures::new(&rate.limiter, &store.inspect(&charge).await?);
        Ok(())
    });
    read.await
}

/// Returns the rate that applies to the client. `adjust` applies the override of the client.
///
/// # Errors
/// The limit has no such tier or rate.
pub(super) async fn choose(
    active: &Arc<Active>,
    named: &Named<'_>,
    query: &Parameters,
    adjust: impl Fn(&Arc<Limiter>) -> Arc<Limiter>,
) -> Result<Chosen, Problem> {
    let (tier, rate) = (query.one("tier")?, query.one("rate")?);
    if named.is_rate_of_callers {
        let detail = "callers set the rate of this limit: the permits that remain depend on the call";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let Some(rates) = named.limit.rates.clone() else {
        let has_parameter = tier.is_some() || rate.is_some();
        let detail = "`tier` and `rate` apply only to limits that take their rate from the request";
        return if has_parameter {
            Err(Problem::bad_request(detail))
        } else {
            Ok(Chosen::new(adjust(&named.limit.limiter), None, RateSource::Limit))
        };
    };
    if let Some(limiter) = of_parameters(&rates, tier.as_deref(), rate.as_deref())? {
        return Ok(Chosen::new(adjust(&limiter), tier, RateSource::Parameter));
    }
    let known = known_rates(active, named).await;
    if let [KnownRate { tier, limiter, is_of_key }] = &known[..] {
        let from = if *is_of_key { RateSource::ApiKey } else { RateSource::Client };
        return Ok(Chosen::new(adjust(limiter), tier.clone(), from));
    }
    let possible = possible(named.limit, adjust);
    Ok(match possible.split_first() {
        Some((first, others)) if others.iter().all(|other| other.limiter.quota == first.limiter.quota) => {
            Chosen::new(Arc::clone(&first.limiter), None, RateSource::Override)
        }
        _ => Chosen { limiter: None, tier: None, from: RateSource::Unknown },
    })
}

/// Returns the limiter of the tier or the number in the parameters of the request.
fn of_parameters(rates: &Rates, tier: Option<&str>, rate: Option<&str>) -> Result<Option<Arc<Limiter>>, Problem> {
    let (value, detail) = match (tier, rate, rates.max()) {
        (None, None, _) => return Ok(None),
        (Some(tier), None, None) => {
            let names: Vec<_> = rates.tiers().map(|(name, _)| name).collect();
            (tier, format!("the limit has no tier of this name: it has {}", names.join(", ")))
        }
        (None, Some(rate), Some(_)) => (rate, "`rate` must be a whole number of at least 1".to_owned()),
        (_, Some(_), None) => return Err(Problem::bad_request("the limit has tiers: set `tier` instead of `rate`")),
        (Some(_), _, Some(_)) => {
            return Err(Problem::bad_request("the limit has no tiers: set `rate` instead of `tier`"));
        }
    };
    rates.of_value(value).0.map(Some).ok_or_else(|| Problem::bad_request(detail))
}

/// Returns the different rates of the client, as far as its values and the API keys show them.
async fn known_rates(active: &Arc<Active>, named: &Named<'_>) -> Vec<KnownRate> {
    let Some(client) = named.charge.client.clone() else { return Vec::new() };
    let (active, limit, values) = (Arc::clone(active), named.limit.clone(), named.values.clone());
    // Takes up to half a second with many keys.
    let find = move || {
        let keys = keys_of(&active, &limit);
        let is_client = |other: &ClientId| match client {
            ClientId::Hash(hash) => active.store.key_of(other) == Some(hash),
            _ => *other == client,
        };
        active.config.rules.known_rates(&limit, NamedClient { id: &client, values: &values, keys: &keys }, is_client)
    };
    SEARCHES.run(find).await.unwrap_or_default()
}

/// Returns the API keys that may show the rate of a client.
fn keys_of(active: &Active, limit: &Limit) -> Vec<Arc<ApiKey>> {
    let is_by_key = limit.rates.as_ref().is_some_and(|rates| rates.by.kinds().key);
    let keys = Verifiers::of(&active.config.verifier).keys.filter(|keys| is_by_key && keys.len() <= MAX_KEYS);
    keys.map(|keys| keys.entries()).unwrap_or_default()
}
