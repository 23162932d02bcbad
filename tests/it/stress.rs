//! Gateways under load for some seconds. `cargo run --release --example stress` runs longer.

#[path = "../../examples/stress/run/mod.rs"]
pub mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::run::fleet::StartedGateway;
use self::run::log::Decisions;
use self::run::replay::compare;
use self::run::{Run, Verdict, table};
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
    assert!(verdict.replayed.as_ref().is_some_and(|replayed| replayed.lines > 0), "\n{verdict}");
}

/// Two workers of the gateway decide at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_decides_as_a_gateway_with_its_own_store() {
    let verdict = verdict_with("stress-memory", (None, 1), None, 4, None).await;
    assert!(verdict.is_pass(), "\n{verdict}");
    assert!(verdict.replayed.as_ref().is_some_and(|replayed| replayed.lines > 0), "\n{verdict}");
}

/// A log in which the decision about one request is not the decision of its rules.
#[test]
fn comparison_finds_a_changed_decision() {
    let folder = Folder::new("stress-comparison");
    let (rules, access_log) = (folder.0.join("rules.yaml"), folder.0.join("access"));
    fs::write(&rules, table::rule_file(&table::limits(1), 0, "url: memory", "off")).expect("written");
    let started = [StartedGateway { version: 0, rules, access_log }];
    // The limit `own` of the route rejects the 21st request of a client.
    let line = |number: usize| {
        let decided = if number < 20 { r#""limits":"allowed""# } else { r#""limits":"limited","limit":"own""# };
        format!(
            r#"{{"message":"GET /clients/0","method":"GET","path":"/clients/0","status":200,"route":"clients",{decided},"at":{}}}"#,
            1_795_521_600_000 + number / 4
        )
    };
    let mut lines: Vec<String> = (0..22).map(line).collect();
    for (change, differences) in [("", 0), (r#""limits":"allowed""#, 1), (r#""limits":"limited","limit":"total""#, 1)] {
        if !change.is_empty() {
            lines[21] = line(21).replace(r#""limits":"limited","limit":"own""#, change);
        }
        fs::write(&started[0].access_log, lines.join("\n")).expect("written");
        let decisions = Decisions::read(&started).expect("decisions");
        let comparison = compare(&started, &decisions, false).expect("a comparison");
        assert_eq!((comparison.lines, comparison.differences), (22, differences), "{change}: {:?}", comparison.first);
    }
}

/// Runs the load for three seconds on two gateways, and returns its verdict; `None` without a Redis.
async fn verdict_of(name: &str, rate: Option<u32>, times: u64, chaos: Option<Duration>) -> Option<Verdict> {
    let redis = RedisServer::start()?;
    Some(verdict_with(name, (Some(redis.url()), 2), rate, times, chaos).await)
}

/// Runs the load for three seconds on gateways with this Redis, or with a store in memory.
async fn verdict_with(
    name: &str,
    (redis, gateways): (Option<String>, usize),
    rate: Option<u32>,
    times: u64,
    chaos: Option<Duration>,
) -> Verdict {
    let folder = Folder::new(name);
    let run = Run {
        binary: env!("CARGO_BIN_EXE_tidegate").into(),
        folder: folder.0.clone(),
        redis,
        gateways,
        connections: 16,
        rate,
        rate_factor: times,
        duration: Duration::from_secs(3),
        chaos,
    };
    run::run(&run).await.expect("a verdict")
}
