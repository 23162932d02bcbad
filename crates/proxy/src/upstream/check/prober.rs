//! The probers: which targets they check, and when.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::lag::with_lag;
use super::request;
use crate::upstream::dialer::Dialer;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::entry::Backend;
use crate::upstream::target::Change;
use crate::upstream::target::TargetState;
use crate::upstream::{Upstream, Upstreams};
use tidegate_limit::random::random;
use tidegate_metrics::UpstreamMetrics;
use tidegate_rules::settings::upstream::{HealthRequest, HealthSettings, Protocol, UpstreamSettings};

/// The shortest lag of the event loop that makes the result of a check meaningless, if a tenth of its timeout is shorter.
const MIN_LAG: Duration = Duration::from_millis(50);

/// How often probers are started and ended to match the targets, whose addresses may change.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// The settings of the checks of an upstream.
#[derive(Debug)]
pub(in crate::upstream) struct CheckSettings {
    health: HealthSettings,
    /// The settings of the connections.
    connections: UpstreamSettings,
}

/// The check of one target.
#[derive(Debug)]
struct Check {
    settings: Arc<CheckSettings>,
    dialer: Arc<Dialer>,
    target: Arc<TargetState>,
    /// A separate state, for the requests of the check.
    request_target: Arc<TargetState>,
    metrics: UpstreamMetrics,
}

/// The task that checks a target. Ends on drop.
#[derive(Debug)]
struct Prober {
    task: AbortHandle,
    target: Arc<TargetState>,
    /// Kept, because a pointer to it identifies the prober.
    _dialer: Arc<Dialer>,
}

/// The running probers.
#[derive(Debug, Default)]
struct Probers {
    /// By a pointer to their dialer. While the settings of an upstream do not change, each of its targets keeps its dialer.
    running: HashMap<usize, Prober>,
    /// The upstreams whose requests use all targets.
    in_panic: BTreeSet<Arc<str>>,
}

/// Checks the targets of these upstreams, until the sender of the upstreams is dropped. The upstreams
/// of one worker suffice, because all workers have the same targets.
pub async fn run_checks(mut upstreams: watch::Receiver<Upstreams>) {
    let mut probers = Probers::default();
    loop {
        let has_checks = {
            let upstreams = upstreams.borrow_and_update();
            probers.update(&upstreams);
            probers.log_panics(&upstreams, Instant::now());
            upstreams.0.values().any(|upstream| upstream.checks.is_some())
        };
        tokio::select! {
            changed = upstreams.changed() => if changed.is_err() { return },
            () = sleep(UPDATE_INTERVAL), if has_checks => {}
        }
    }
}

/// Returns the time from the start of a check to the start of the next: `interval`, varied by up to 10 %, so that
/// gateways that start together do not check together.
fn pause(interval: Duration, random: u8) -> Duration {
    interval * 9 / 10 + interval / 5 * u32::from(random) / 255
}

// === impl CheckSettings ===

impl CheckSettings {
    /// Returns the settings of the checks of an upstream. Returns `None` if its targets are not checked.
    pub(in crate::upstream) fn new(upstream: &UpstreamSettings) -> Option<Arc<Self>> {
        let health = upstream.health.clone()?;
        let mut connections = UpstreamSettings { max_connections: 1, ..upstream.clone() };
        if let HealthRequest::Grpc { .. } = health.request {
            connections.protocol = Protocol::Http2;
        }
        Some(Arc::new(Self { health, connections }))
    }
}

// === impl Probers ===

impl Probers {
    /// Starts the probers of new targets, and ends the probers of removed targets.
    fn update(&mut self, upstreams: &Upstreams) {
        let mut current = BTreeSet::new();
        for upstream in upstreams.0.values() {
            let Some(settings) = &upstream.checks else { continue };
            for entry in upstream.entries().iter() {
                let Backend::Http(endpoint) = &entry.backend else { continue };
                let key = Arc::as_ptr(endpoint.dialer()).addr();
                current.insert(key);
                let check = || Check {
                    settings: Arc::clone(settings),
                    dialer: Arc::clone(endpoint.dialer()),
                    target: Arc::clone(&entry.state),
                    request_target: entry.state.for_checks(),
                    metrics: upstream.metrics.clone(),
                };
                self.running.entry(key).or_insert_with(|| Prober::start(check()));
            }
        }
        let ended: Vec<_> = self.running.extract_if(|key, _| !current.contains(key)).collect();
        for (_, prober) in ended {
            // After a reload, another prober may check the same target.
            if !self.running.values().any(|other| Arc::ptr_eq(&other.target, &prober.target)) {
                prober.target.forget_checks();
            }
        }
    }
}

impl Probers {
    /// Logs each upstream whose panic has begun or ended.
    fn log_panics(&mut self, upstreams: &Upstreams, now: Instant) {
        let is_panic = |upstream: &Upstream| upstream.checks.is_some() && upstream.is_panic(now);
        let in_panic = upstreams.0.iter().filter(|(_, upstream)| is_panic(upstream)).map(|(name, _)| Arc::clone(name));
        let before = std::mem::replace(&mut self.in_panic, in_panic.collect());
        for upstream in self.in_panic.difference(&before) {
            tracing::warn!(%upstream, "most targets fail their health checks: requests use all targets (panic)");
        }
        for upstream in before.difference(&self.in_panic) {
            tracing::warn!(%upstream, "panic has ended: requests use the targets that pass their health checks");
        }
    }
}

// === impl Prober ===

impl Prober {
    fn start(check: Check) -> Self {
        let (target, dialer) = (Arc::clone(&check.target), Arc::clone(&check.dialer));
        let task = tokio::spawn(async move {
            loop {
                let start = Instant::now();
                let (result, lag) = with_lag(check.run()).await;
                match check.is_meaningless(&result, start.elapsed(), lag) {
                    true => check.discard(lag),
                    false => check.record(&result),
                }
                let [random] = random();
                sleep_until(start + pause(check.settings.health.interval, random)).await;
            }
        });
        Self { task: task.abort_handle(), target, _dialer: dialer }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Check ===

impl Check {
    /// Checks the target once, on a new connection. Returns the result as a text.
    async fn run(&self) -> Result<String, String> {
        let CheckSettings { health, connections } = &*self.settings;
        let endpoint = Endpoint::new(Arc::clone(&self.dialer), connections, self.metrics.clone(), &self.request_target);
        let mut request = request::build(&health.request, self.dialer.host());
        let exchange = async {
            let slot = endpoint.try_acquire_slot(None).ok_or("no connection slot")?;
            let sent = endpoint.send(slot, &mut request, &Instant::now(), &health.timeout, false).await;
            let response = sent.map_err(|error| {
                let error = error.target_error(health.timeout);
                error.map_or_else(|| "canceled".to_owned(), |error| format!("{}: {}", error.phase, error.error))
            })?;
            request::check(&health.request, response.into_response(&mut request)).await
        };
        let timed_out = |_| Err(format!("no response within {:?}", health.timeout));
        timeout(health.timeout, exchange).await.unwrap_or_else(timed_out)
    }

    /// Returns `true` if a check failed because the gateway itself was too late to read a response in time.
    fn is_meaningless(&self, result: &Result<String, String>, took: Duration, lag: Duration) -> bool {
        let CheckSettings { health, connections } = &*self.settings;
        let timeout = health.timeout.min(connections.timeouts.connect);
        result.is_err() && took >= timeout && lag >= MIN_LAG.max(timeout / 10)
    }

    fn discard(&self, lag: Duration) {
        self.target.discard_check();
        let lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(target = %self.target.name(), lag_ms, "health check is discarded, because the gateway is too busy");
    }

    /// Records a result.
    fn record(&self, result: &Result<String, String>) {
        let (target, health) = (&self.target, &self.settings.health);
        let change = target.checks().add(result, health, Instant::now());
        target.record_check(result.is_ok(), health.rise);
        let result = result.as_ref().unwrap_or_else(|error| error);
        match change {
            Some(change) => target.set_failed_by_checks(change == Change::Failed, result),
            None => tracing::debug!(target = %target.name(), result, "upstream target was checked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_varies_by_ten_percent() {
        let second = Duration::from_secs(1);
        let millis = |random| pause(second, random).as_millis();
        assert_eq!((millis(0), millis(255)), (900, 1100));
        assert!((0..=255).all(|random| (900..=1100).contains(&millis(random))));
    }
}
