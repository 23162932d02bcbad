//! The measured limiters: a limit of Tidegate in its Redis store, and a limiter of Redisson.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Connection, Pipeline, Script, cmd};
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate::redisson::Mode;
use tidegate_limit::Quota;
use tidegate_rules::charge::{Charge, Limiter};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};

use super::Result;
use super::server::Server;

const REDISSON: &str = include_str!("../../tests/it/support/redisson_acquire.lua");

/// A limiter with one bucket.
pub struct Subject {
    /// The algorithm. Name and rate are part of the keys in Redis.
    pub name: &'static str,
    pub rate: u64,
    backend: Backend,
}

enum Backend {
    Tidegate { store: ReplayStore, limiter: Arc<Limiter> },
    Redisson { connection: Connection, digest: String, calls: u128 },
}

impl Subject {
    /// Creates a limit in the store of a gateway.
    pub fn tidegate(server: &Server, quota: Quota) -> Result<Self> {
        let url = RedisUrl::new(server.url());
        let settings = RedisSettings { timeout: Duration::from_secs(10), pool_size: 1, ..RedisSettings::new(url) };
        let store = ReplayStore::open(&StoreSettings::Redis(settings))?;
        let (name, rate) = (quota.algorithm().name(), quota.rate().into());
        let limiter = Arc::new(Limiter::new(key(name, rate), Mode::Overall, quota));
        Ok(Self { name, rate, backend: Backend::Tidegate { store, limiter } })
    }

    /// Creates a limiter as Redisson configures it.
    pub fn redisson(server: &Server, rate: u64, interval: u64) -> Result<Self> {
        let (name, mut connection) = ("redisson", server.connect()?);
        let mut configure = cmd("HSET");
        configure.arg(key(name, rate)).arg("rate").arg(rate).arg("interval").arg(interval);
        configure.arg("keepAliveTime").arg(2 * interval).arg("type").arg(0).exec(&mut connection)?;
        cmd("SCRIPT").arg("LOAD").arg(REDISSON).exec(&mut connection)?;
        let digest = Script::new(REDISSON).get_hash().to_owned();
        Ok(Self { name, rate, backend: Backend::Redisson { connection, digest, calls: 0 } })
    }

    /// Returns a part of the Redis keys of the limiter.
    pub fn key(&self) -> String {
        key(self.name, self.rate)
    }

    /// Returns the maximum number of log entries. Further grants share these entries.
    pub fn max_entries(&self) -> u64 {
        match self.backend {
            Backend::Tidegate { .. } => 512,
            Backend::Redisson { .. } => u64::MAX,
        }
    }

    /// Requests all permits at once, and ignores the outcome.
    pub async fn request_all(&mut self, at: u64) -> Result<()> {
        let (key, all) = (self.key(), u32::try_from(self.rate)?);
        match &mut self.backend {
            Backend::Tidegate { store, limiter } => {
                store.take_at(&[charge(limiter, all)], Timestamp::from_millis(at)).await?;
            }
            Backend::Redisson { connection, digest, calls } => {
                *calls += 1;
                script_call(digest, &key, *calls, at, all).exec(connection)?;
            }
        }
        Ok(())
    }

    /// Takes permits at given times, as pairs of a time and a number. Fails if any of them is not granted.
    pub async fn take(&mut self, requests: &[(u64, u32)]) -> Result<()> {
        let key = self.key();
        match &mut self.backend {
            Backend::Tidegate { store, limiter } => take(store, limiter, requests).await,
            Backend::Redisson { connection, digest, calls } => {
                requests.chunks(256).try_for_each(|chunk| take_as_redisson(connection, digest, &key, calls, chunk))
            }
        }
    }
}

async fn take(store: &ReplayStore, limiter: &Arc<Limiter>, requests: &[(u64, u32)]) -> Result<()> {
    for (at, permits) in requests {
        let outcome = store.take_at(&[charge(limiter, *permits)], Timestamp::from_millis(*at)).await?;
        if !outcome.granted() {
            return Err(format!("{} rejects {permits} at {at}: {:?}", limiter.name, outcome.decisions).into());
        }
    }
    Ok(())
}

fn charge(limiter: &Arc<Limiter>, permits: u32) -> Charge {
    Charge::new(Arc::clone(limiter), None, permits)
}

fn take_as_redisson(
    connection: &mut Connection,
    digest: &str,
    key: &str,
    calls: &mut u128,
    requests: &[(u64, u32)],
) -> Result<()> {
    let mut pipeline = Pipeline::new();
    for (at, permits) in requests {
        *calls += 1;
        pipeline.add_command(script_call(digest, key, *calls, *at, *permits));
    }
    let replies: Vec<Option<i64>> = pipeline.query(connection)?;
    if replies.iter().any(Option::is_some) {
        return Err(format!("{key} rejects a call").into());
    }
    Ok(())
}

/// Builds a call with the five keys in Redisson's order.
fn script_call(digest: &str, key: &str, random: u128, at: u64, permits: u32) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(digest).arg(5).arg(key);
    for suffix in ["value", "value:client", "permits", "permits:client"] {
        call.arg(format!("{key}:{suffix}"));
    }
    call.arg(permits).arg(at).arg(&random.to_be_bytes()[..]);
    call
}

fn key(name: &str, rate: u64) -> String {
    format!("{{bench:{name}:{rate}}}")
}
