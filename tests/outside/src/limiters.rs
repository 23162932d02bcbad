//! Limiters for actions other than HTTP requests.

use std::time::Duration;

use tidegate_layer::build::Quota;
use tidegate_layer::redisson::{Mode, RateConfig, RateLimiter};
use tidegate_layer::{Limiter, Store};

use crate::Error;

/// Creates two limiters on one store: ten mails per second, and a hundred text messages per hour.
///
/// # Errors
/// The store is unreachable.
pub async fn limiters(store: Store) -> Result<(RateLimiter, RateLimiter), Error> {
    let mails = RateLimiter::new(store.clone(), "mails")?;
    mails.ensure_rate(&RateConfig::per_second(10)?).await?;
    let texts = RateLimiter::new(store, "texts")?;
    texts.ensure_rate(&RateConfig::new(Mode::Overall, 100, Duration::from_secs(3600))?).await?;
    Ok((mails, texts))
}

/// Takes two permits of one user, and waits if the second is missing.
///
/// # Errors
/// The user has sent five mails in a minute, or the store failed.
pub async fn send_mails(store: Store) -> Result<(), Error> {
    let mails = Limiter::new(store, "mails", Quota::per_minute(5))?;
    mails.check("ada").await?; // or an error with the wait
    mails.until_ready("ada").await?; // waits for the permit
    Ok(())
}

/// Waits for three permits that Java services share.
///
/// # Errors
/// The store failed.
pub async fn send_shared(store: Store) -> Result<(), Error> {
    let mails = RateLimiter::new(store, "mails")?;
    mails.ensure_rate(&RateConfig::per_second(10)?).await?;
    mails.acquire(3).await?; // waits until three permits are available, in order of arrival
    Ok(())
}

/// Waits for three permits of a limiter in Redis, which all processes share.
///
/// # Errors
/// Redis is unreachable.
#[cfg(feature = "redis")]
pub async fn send(url: &str) -> Result<(), Error> {
    let (mails, _) = limiters(Store::redis(url)?).await?;
    mails.acquire(3).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_layer::{ManualClock, Timestamp};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn acquire_waits_until_permits_are_available() -> Result<(), Error> {
        let (mails, texts) = limiters(Store::memory()).await?;
        let start = Instant::now();
        mails.acquire(10).await?;
        mails.acquire(1).await?;
        assert_eq!(start.elapsed().as_millis(), 1000);
        assert!(texts.try_acquire(100).await?.granted);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn limiter_refuses_the_sixth_mail_of_a_minute() -> Result<(), Error> {
        let store = Store::memory();
        send_mails(store.clone()).await?;
        send_mails(store.clone()).await?;
        send_shared(store.clone()).await?;
        let mails = Limiter::new(store, "mails", Quota::per_minute(5))?;
        assert_eq!(mails.check("ada").await?.remaining, Some(0));
        let refused = mails.check("ada").await.expect_err("five mails");
        assert_eq!(refused.wait(), Some(Duration::from_secs(60)));
        Ok(())
    }

    #[tokio::test]
    async fn manual_clock_moves_only_when_advanced() -> Result<(), Error> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let (mails, _) = limiters(Store::memory_builder().clock(clock.clone()).open()).await?;
        assert!(mails.try_acquire(10).await?.granted);
        clock.advance_millis(999);
        assert!(!mails.try_acquire(1).await?.granted);
        clock.advance_millis(1);
        assert!(mails.try_acquire(1).await?.granted);
        Ok(())
    }

    #[tokio::test]
    async fn error_names_the_limiter() -> Result<(), Error> {
        let (mails, _) = limiters(Store::memory()).await?;
        let error = mails.try_acquire(11).await.expect_err("too many");
        assert_eq!(error.to_string(), "11 permits are more than the rate of limiter `mails`, which is 10 in 1s");
        Ok(())
    }

    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn errors_name_the_limiter_and_the_store() {
        let error = send("redis://:hush@127.0.0.1:1").await.expect_err("no server").to_string();
        assert!(error.starts_with("limiter `mails`: store `redis://***@127.0.0.1:1`: no connection: "), "{error}");
        let error = send("127.0.0.1:6379").await.expect_err("no address").to_string();
        assert_eq!(
            error,
            "store `127.0.0.1:6379` cannot be opened: its URL does not start with `redis://`, `rediss://` or `unix://`"
        );
    }
}
