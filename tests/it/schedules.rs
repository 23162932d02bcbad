//! `time`, `days` and `timezone` of `when`: limits that apply at some times of the week, by the store's clock.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use http::{Request, Response};
use tidegate::{ManualClock, Peer, RateLimitLayer, Store, Timestamp};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::process::{RuleFile, output};

const RULES: &str = "routes:
  - name: all
    match: {}
    limits:
      - { name: work, mode: OVERALL, rate: 1, interval: 1s,
          when: { time: '08:00-20:00', days: [mon-fri], timezone: Europe/Rome } }
";

/// Friday, 27 November 2026, at this time in Rome, in milliseconds.
fn friday(hour: u64, minute: u64) -> u64 {
    1_795_734_000_000 + (hour * 60 + minute) * 60_000
}

#[tokio::test]
async fn limit_applies_at_the_times_of_its_schedule() {
    let clock = Arc::new(ManualClock::default());
    let store = Store::memory_builder().clock(Arc::clone(&clock) as _).open();
    let layer = RateLimitLayer::builder().store(store).from_yaml(RULES).expect("valid rules");
    let service = layer.layer(service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) }));
    let day = 24 * 60 * 60_000;
    for (time, is_limited) in [
        (friday(7, 59), false),
        (friday(8, 0), true),
        (friday(19, 59), true),
        (friday(20, 0), false),
        (friday(12, 0) + day, false),
        (friday(12, 0) + 3 * day, true),
    ] {
        clock.set(Timestamp::from_millis(time));
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let request = Request::get("/").header("host", "a").extension(Peer(Ipv4Addr::LOCALHOST.into()));
            let response = service.clone().oneshot(request.body(()).expect("a request")).await;
            statuses.push(response.expect("a response").status().as_u16());
        }
        let expected = if is_limited { [200, 429] } else { [200, 200] };
        assert_eq!(statuses, expected, "{time}");
    }
    // Work without a request follows the schedule as well.
    clock.set(Timestamp::from_millis(friday(12, 0) + 7 * day));
    assert!(layer.check("all", "", 1).await.is_ok() && layer.check("all", "", 1).await.is_err());
    clock.set(Timestamp::from_millis(friday(21, 0) + 7 * day));
    assert!(layer.check("all", "", 1).await.is_ok() && layer.check("all", "", 1).await.is_ok());
}

/// A replay decides by the times of the log.
#[test]
fn replay_follows_the_schedule() {
    let rules = RuleFile::new("schedule", RULES);
    let line = |time: &str| format!("192.0.2.1 - - [{time} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n");
    let times = ["27/Nov/2026:06:30:00", "27/Nov/2026:06:30:00", "27/Nov/2026:07:30:00", "27/Nov/2026:07:30:00"];
    let log = RuleFile::new("schedule-log", &times.map(line).concat());
    let output = output(&["replay", "-c", rules.path(), log.path(), "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let limit = &report["limits"]["all/work"];
    assert_eq!((&limit["allowed"], &limit["rejected"]), (&1.into(), &1.into()), "{report}");
}
