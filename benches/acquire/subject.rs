//! What is measured: a limit of ours, through the store that gateways use, or a limiter as Redisson's clients use it.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Connection, Pipeline, Script, cmd};
use tidegate::internals::StoreInternals;
use tidegate::internals::limit::{Charge, Limiter, Quota};
use tidegate::internals::store::settings::{RedisSettings, RedisUrl, StoreSettings};
use tidegate::{Metrics, Mode, Store, Timestamp};

use super::Result;
use super::server::Server;

const REDISSON: &str = include_str!("../../tests/it/support/redisson_acquire.lua");

/// A limiter with one bucket.
pub struct Subject {
    /// Its algorithm; whatever it keeps in Redis has its name and rate in the keys.
    pub name: &'static str,
    pub rate: u64,
    way: Way,
}

enum Way {
    Ours { store: Store, limiter: Arc<Limiter> },
    Redisson { connection: Connection, digest: String, calls: u128 },
}

impl Subject {
    /// A limit of a gateway.
    pub fn ours(server: &Server, quota: Quota) -> Result<Self> {
        let url = RedisUrl::new(server.url());
        let settings = RedisSettings { timeout: Duration::from_secs(10), pool_size: 1, ..RedisSettings::new(url) };
        let store = Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new()))?;
        let (name, rate) = (quota.algorithm().name(), quota.rate().into());
        let limiter = Arc::new(Limiter::new(key(name, rate), Mode::Overall, quota));
        Ok(Self { name, rate, way: Way::Ours { store, limiter } })
    }

    /// A limiter of Redisson's clients.
    pub fn redisson(server: &Server, rate: u64, interval: u64) -> Result<Self> {
        let (name, mut connection) = ("redisson", server.connect()?);
        let mut configure = cmd("HSET");
        configure.arg(key(name, rate)).arg("rate").arg(rate).arg("interval").arg(interval);
        configure.arg("keepAliveTime").arg(2 * interval).arg("type").arg(0).exec(&mut connection)?;
        cmd("SCRIPT").arg("LOAD").arg(REDISSON).exec(&mut connection)?;
        let digest = Script::new(REDISSON).get_hash().to_owned();
        Ok(Self { name, rate, way: Way::Redisson { connection, digest, calls: 0 } })
    }

    /// A part of the keys that it has in Redis.
    pub fn key(&self) -> String {
        key(self.name, self.rate)
    }

    /// How many grants the log keeps apart at most; what is granted beyond them shares their entries.
    pub fn most_entries(&self) -> u64 {
        match self.way {
            Way::Ours { .. } => 512,
            Way::Redisson { .. } => u64::MAX,
        }
    }

    /// Asks for all permits at once, whatever the answer.
    pub async fn ask_for_all(&mut self, at: u64) -> Result<()> {
        let (key, all) = (self.key(), u32::try_from(self.rate)?);
        match &mut self.way {
            Way::Ours { store, limiter } => {
                store.take_at(&[charge(limiter, all)], Timestamp::from_millis(at)).await?;
            }
            Way::Redisson { connection, digest, calls } => {
                *calls += 1;
                call(digest, &key, *calls, at, all).exec(connection)?;
            }
        }
        Ok(())
    }

    /// Takes each of these numbers of permits at its time. All have to be granted.
    pub async fn take(&mut self, takings: &[(u64, u32)]) -> Result<()> {
        let key = self.key();
        match &mut self.way {
            Way::Ours { store, limiter } => take(store, limiter, takings).await,
            Way::Redisson { connection, digest, calls } => {
                takings.chunks(256).try_for_each(|some| take_as_redisson(connection, digest, &key, calls, some))
            }
        }
    }
}

async fn take(store: &Store, limiter: &Arc<Limiter>, takings: &[(u64, u32)]) -> Result<()> {
    for (at, permits) in takings {
        let outcome = store.take_at(&[charge(limiter, *permits)], Timestamp::from_millis(*at)).await?;
        if !outcome.granted() {
            return Err(format!("{} refuses {permits} at {at}: {:?}", limiter.name, outcome.decisions).into());
        }
    }
    Ok(())
}

fn charge(limiter: &Arc<Limiter>, permits: u32) -> Charge {
    Charge { limiter: Arc::clone(limiter), client: None, permits, shadow: false }
}

fn take_as_redisson(
    connection: &mut Connection,
    digest: &str,
    key: &str,
    calls: &mut u128,
    takings: &[(u64, u32)],
) -> Result<()> {
    let mut pipeline = Pipeline::new();
    for (at, permits) in takings {
        *calls += 1;
        pipeline.add_command(call(digest, key, *calls, *at, *permits));
    }
    let answers: Vec<Option<i64>> = pipeline.query(connection)?;
    if answers.iter().any(Option::is_some) {
        return Err(format!("{key} refuses").into());
    }
    Ok(())
}

/// A call with the five keys in Redisson's order.
fn call(digest: &str, key: &str, random: u128, at: u64, permits: u32) -> Cmd {
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
