//! The limiters of the library in the embedded store. Each has the data of the hash, the counter and the log in Redis.

use std::collections::HashMap;

use crate::StoreError;
use crate::operations::limiters::{LimiterRef, SetRate};
use tidegate_limit::algorithm::token_bucket;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Mode, RateConfig, Wait};
use tidegate_rules::charge::Decision;

/// The maximal number of limiters. The program chooses their names, not its clients.
const MAX_LIMITERS: usize = 1 << 16;

/// All limiters of a store, by name.
#[derive(Debug, Default)]
pub(crate) struct Registry(HashMap<String, Entry>);

/// A limiter. If it has expired or was deleted, it has no configuration, but stays until its permits have returned.
#[derive(Debug)]
struct Entry {
    config: Option<RateConfig>,
    /// The configuration with which the buckets were charged last.
    last: RateConfig,
    expires_at: Option<Timestamp>,
    /// The buckets by instance; an OVERALL limiter has one bucket, with an empty name.
    buckets: HashMap<String, token_bucket::State>,
}

// === impl Registry ===

impl Registry {
    pub(crate) fn acquire(
        &mut self,
        limiter: &LimiterRef,
        permits: u32,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let limiters = &mut self.0;
        let (entry, config) = configured(limiters, limiter, now)?;
        let bucket = entry.buckets.entry(bucket_name(&config, limiter)).or_default();
        let decision = bucket.check(config.quota(), permits, now);
        if !decision.granted {
            bucket.on_refusal(config.quota(), now);
            entry.extend_past_wait(decision.wait, now);
            return Ok(decision.into());
        }
        let decision = bucket.charge(config.quota(), permits, now);
        if permits > 0 {
            entry.keep_alive(now);
        }
        Ok(decision.into())
    }

    pub(crate) fn set_rate(
        &mut self,
        limiter: &LimiterRef,
        how: SetRate,
        config: &RateConfig,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let limiters = &mut self.0;
        let exists = configured(limiters, limiter, now).is_ok();
        match how {
            SetRate::Try if exists => return Ok(false),
            SetRate::UpdateAndKeep | SetRate::UpdateAndReset if !exists => return Ok(false),
            _ => {}
        }
        ensure_capacity(limiters, limiter, now)?;
        let empty = || Entry { config: None, last: *config, expires_at: None, buckets: HashMap::new() };
        let entry = limiters.entry(limiter.name().to_owned()).or_insert_with(empty);
        if entry.last.mode() != config.mode() {
            entry.buckets.remove(&bucket_name(&entry.last, limiter));
            entry.buckets.remove(&bucket_name(config, limiter));
        }
        if matches!(how, SetRate::Reset | SetRate::UpdateAndReset) {
            entry.buckets.remove(&bucket_name(config, limiter));
        }
        (entry.config, entry.last, entry.expires_at) = (Some(*config), *config, None);
        entry.keep_alive(now);
        Ok(true)
    }

    pub(crate) fn config(&mut self, limiter: &LimiterRef, now: Timestamp) -> Option<RateConfig> {
        configured(&mut self.0, limiter, now).ok().map(|(_, config)| config)
    }

    pub(crate) fn release(&mut self, limiter: &LimiterRef, permits: u32, now: Timestamp) -> Result<u32, StoreError> {
        let limiters = &mut self.0;
        let (entry, config) = configured(limiters, limiter, now)?;
        let bucket = entry.buckets.get_mut(&bucket_name(&config, limiter));
        let released = bucket.map_or(0, |bucket| bucket.release(config.quota(), permits, now));
        if released > 0 {
            entry.keep_alive(now);
        }
        Ok(released)
    }

    pub(crate) fn expire(&mut self, limiter: &LimiterRef, after: Option<u64>, now: Timestamp) -> bool {
        let limiters = &mut self.0;
        let Ok((entry, _)) = configured(limiters, limiter, now) else { return false };
        let before = std::mem::replace(&mut entry.expires_at, after.map(|millis| now.plus_millis(millis)));
        after.is_some() || before.is_some()
    }

    /// Returns the milliseconds until a limiter expires; `None` if it does not expire.
    pub(crate) fn time_to_live(&mut self, limiter: &LimiterRef, now: Timestamp) -> Result<Option<u64>, StoreError> {
        let (entry, _) = configured(&mut self.0, limiter, now)?;
        Ok(entry.expires_at.map(|at| at.millis_since(now)))
    }

    pub(crate) fn delete(&mut self, limiter: &LimiterRef, now: Timestamp) -> bool {
        let limiters = &mut self.0;
        let Ok((entry, config)) = configured(limiters, limiter, now) else { return false };
        entry.buckets.remove(&bucket_name(&config, limiter));
        (entry.config, entry.expires_at) = (None, None);
        if entry.buckets.is_empty() {
            limiters.remove(limiter.name());
        }
        true
    }
}

/// Returns the name of a bucket: empty for OVERALL, the instance for PER_CLIENT.
fn bucket_name(config: &RateConfig, limiter: &LimiterRef) -> String {
    match config.mode() {
        Mode::Overall => String::new(),
        Mode::PerClient => limiter.instance().to_owned(),
    }
}

/// Returns the limiter, if it has a configuration that has not expired.
fn configured<'l>(
    limiters: &'l mut HashMap<String, Entry>,
    limiter: &LimiterRef,
    now: Timestamp,
) -> Result<(&'l mut Entry, RateConfig), StoreError> {
    let entry = limiters.get_mut(limiter.name()).ok_or(StoreError::NotInitialised)?;
    if entry.expires_at.is_some_and(|at| at <= now) {
        (entry.config, entry.expires_at) = (None, None);
    }
    let config = entry.config.ok_or(StoreError::NotInitialised)?;
    Ok((entry, config))
}

fn ensure_capacity(
    limiters: &mut HashMap<String, Entry>,
    limiter: &LimiterRef,
    now: Timestamp,
) -> Result<(), StoreError> {
    if limiters.len() < MAX_LIMITERS || limiters.contains_key(limiter.name()) {
        return Ok(());
    }
    limiters.retain(|_, entry| !entry.can_be_removed(now));
    if limiters.len() < MAX_LIMITERS { Ok(()) } else { Err(StoreError::Full) }
}

// === impl Entry ===

impl Entry {
    fn keep_alive(&mut self, now: Timestamp) {
        if let Some(keep_alive) = self.last.keep_alive() {
            let millis = u64::try_from(keep_alive.as_millis()).unwrap_or(u64::MAX);
            self.expires_at = Some(now.plus_millis(millis.max(self.last.quota().interval())));
        }
        // Full buckets are removed, since their instances may have ended.
        let quota = self.last.quota();
        if self.buckets.len() > 64 && self.buckets.len().is_power_of_two() {
            self.buckets.retain(|_, bucket| bucket.full_at(quota) > now);
        }
    }

    /// After a refusal, postpones an expiry before the end of the wait to one interval after that end.
    fn extend_past_wait(&mut self, wait: Wait, now: Timestamp) {
        if let (Wait::Millis(wait), Some(at), Some(_)) = (wait, self.expires_at, self.last.keep_alive())
            && at <= now.plus_millis(wait)
        {
            self.expires_at = Some(now.plus_millis(wait).plus_millis(self.last.quota().interval()));
        }
    }

    fn can_be_removed(&self, now: Timestamp) -> bool {
        let expired = self.config.is_none() || self.expires_at.is_some_and(|at| at <= now);
        expired && self.buckets.values().all(|bucket| bucket.full_at(self.last.quota()) <= now)
    }
}
