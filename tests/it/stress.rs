//! Gateways under load for some seconds. `cargo run --release --example stress` runs longer.

#[path = "../../examples/stress/run/mod.rs"]
pub mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::run::{Run, Verdict};
use crate::support::redis::RedisServer;

/// A folder. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The number of grants depends on the machine; that no window exceeds the rate does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_exceeds_its_rate_under_faults() {
    let chaos = Some(Duration::from_millis(300));
    let Some(verdict) = verdict_of("stress", Some(1_000), 1, chaos).await else { return };
    assert!(verdict.is_pass(), "\n{verdict}");
    assert!(verdict.disturbances > 0, "\n{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_exceeds_its_rate_at_full_speed() {
    let Some(verdict) = verdict_of("stress-full-speed", None, 4, None).await else { return };
    assert!(verdict.is_pass(), "\n{verdict}");
}

/// Runs the load for three seconds, and returns its verdict; `None` without a Redis.
async fn verdict_of(name: &str, rate: Option<u32>, times: u64, chaos: Option<Duration>) -> Option<Verdict> {
    let redis = RedisServer::start()?;
    let folder = Folder::new(name);
    let run = Run {
        binary: env!("CARGO_BIN_EXE_tidegate").into(),
        folder: folder.0.clone(),
        redis: redis.url(),
        gateways: 2,
        connections: 16,
        rate,
        rate_factor: times,
        duration: Duration::from_secs(3),
        chaos,
    };
    Some(run::run(&run).await.expect("a verdict"))
}
