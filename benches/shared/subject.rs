//! Callers of the limiter: the store of a gateway, or a Redisson client.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Client, Script, cmd};
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate::redisson::Mode;
use tidegate_limit::Quota;
use tidegate_limit::redisson::Sharing;
use tidegate_rules::charge::{Charge, Limiter};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};

use super::Result;
use super::redis::Redis;

const REDISSON: &str = include_str!("../../tests/it/support/redisson_acquire.lua");

/// A caller that takes permits of the limiter `java`.
pub enum Subject {
    Shared { store: ReplayStore, charge: Charge },
    Redisson { connection: MultiplexedConnection, digest: String, calls: u128 },
}

impl Subject {
    /// Creates the store of a gateway whose limit adopts the limiter.
    pub fn shared(server: &Redis) -> Result<Self> {
        let url = RedisUrl::new(server.url());
        let settings = RedisSettings { timeout: Duration::from_secs(10), pool_size: 1, ..RedisSettings::new(url) };
        let store = ReplayStore::open(&StoreSettings::Redis(settings))?;
        let quota = Quota::adopted(Sharing::Adopt(None));
        let limiter = Arc::new(Limiter::new("java".into(), Mode::Overall, quota));
        Ok(Self::Shared { store, charge: Charge::new(limiter, None, 1) })
    }

    /// Creates a Redisson client. Like the store it uses an async runtime: a Redis that sleeps less between two calls
    /// is faster.
    pub async fn redisson(server: &Redis) -> Result<Self> {
        let mut connection = Client::open(server.url())?.get_multiplexed_async_connection().await?;
        cmd("SCRIPT").arg("LOAD").arg(REDISSON).exec_async(&mut connection).await?;
        Ok(Self::Redisson { connection, digest: Script::new(REDISSON).get_hash().to_owned(), calls: 0 })
    }

    /// Requests a permit at each of these times. Fails unless all of them are granted, or none if `granted` is false.
    pub async fn take(&mut self, times: &[u64], granted: bool) -> Result<()> {
        let unexpected = |at| format!("at {at}: expected granted = {granted}").into();
        match self {
            Self::Shared { store, charge } => {
                for at in times {
                    let outcome = store.take_at(std::slice::from_ref(charge), Timestamp::from_millis(*at)).await?;
                    if outcome.granted() != granted {
                        return Err(unexpected(at));
                    }
                }
            }
            Self::Redisson { connection, digest, calls } => {
                for at in times {
                    *calls += 1;
                    let mut call = cmd("EVALSHA");
                    call.arg(&*digest).arg(5).arg("java");
                    call.arg(&["{java}:value", "{java}:value:c", "{java}:permits", "{java}:permits:c"]);
                    call.arg(1).arg(at).arg(&calls.to_be_bytes()[..]);
                    if call.query_async::<Option<i64>>(connection).await?.is_none() != granted {
                        return Err(unexpected(at));
                    }
                }
            }
        }
        Ok(())
    }
}
