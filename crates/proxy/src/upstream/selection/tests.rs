//! Tests which targets a request tries, and which targets are ejected.

use std::io;
use std::net::SocketAddr;

use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use proptest::prelude::*;

use super::super::dns::ResolvedAddress;
use super::super::settings::{Eject, HealthRequest, HealthSettings, Target};
use super::super::target_error::TargetError;
use super::super::{Upstream, Upstreams};
use super::*;
use crate::upstream::target::TargetCondition;
use tidegate_metrics::Metrics;

const EJECT: Eject = Eject { after: 5, time: Duration::from_secs(30), max_percent: 50 };

fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number))
}

fn target(number: u16) -> Target {
    Target::Http(address(number).to_string().parse().unwrap())
}

fn settings(targets: u16) -> UpstreamSettings {
    let targets = (1..=targets).map(target).collect();
    let balance = Balance::Method(BalanceMethod::RoundRobin);
    UpstreamSettings { balance, ..UpstreamSettings::new("api".into(), targets) }
}

/// Returns settings with checks and this `panic`.
fn checked(targets: u16, panic_percent: u8) -> UpstreamSettings {
    let request = HealthRequest::Http { path: PathAndQuery::from_static("/"), expect: Vec::new() };
    let (interval, timeout) = (HealthSettings::DEFAULT_INTERVAL, HealthSettings::DEFAULT_TIMEOUT);
    let health = Some(HealthSettings { request, interval, timeout, rise: 1, fall: 1, panic_percent });
    UpstreamSettings { health, ..settings(targets) }
}

/// Makes the checks of these targets fail, and the checks of all others pass.
fn fail_checks(upstream: &Upstream, failed: &[usize]) {
    for (position, entry) in upstream.entries().iter().enumerate() {
        entry.state.set_failed_by_checks(failed.contains(&position), "a check");
    }
}

/// Returns the positions that a request tries, in ascending order.
fn all_tried(upstream: &Upstream) -> Vec<usize> {
    let mut tried: Vec<_> = tried(upstream, Instant::now(), 99).into_iter().map(|(position, _)| position).collect();
    tried.sort_unstable();
    tried
}

fn upstream(settings: &UpstreamSettings) -> Arc<Upstream> {
    let upstreams = Upstreams::new([settings], 1, &Metrics::of_gateway(&[]));
    Arc::clone(upstreams.get("api").unwrap())
}

/// Returns the positions that a request tries, with whether the request is a probe. The attempts stay without a result.
fn tried(upstream: &Upstream, now: Instant, most: usize) -> Vec<(usize, bool)> {
    let entries = upstream.entries();
    let request = Request::new(RequestBody::none());
    let mut selection = upstream.balancer.select(&entries, &request, None);
    let selected =
        std::iter::from_fn(|| selection.next(&upstream.balancer, now).filter(|selected| !selected.is_repeated));
    selected.take(most).map(|selected| (selected.entry.position, selected.is_probe.get())).collect()
}

/// Fails connections to the target, and ejects it if that is allowed.
fn fail(upstream: &Upstream, position: usize, times: usize) {
    let entries = upstream.entries();
    for _ in 0..times {
        let attempt = entries[position].state.start_attempt(None, false);
        let due = attempt.failed(Some(&TargetError::connect(&io::ErrorKind::TimedOut.into())), None, Some(&EJECT));
        if let Some(due) =
            due.filter(|due| upstream.balancer.can_eject(&entries, due.target, EJECT.max_percent, Instant::now()))
        {
            due.eject();
        }
    }
}

fn is_ejected(upstream: &Upstream, position: usize) -> bool {
    matches!(upstream.entries()[position].state.condition(Instant::now()), TargetCondition::Ejected { .. })
}

#[tokio::test(start_paused = true)]
async fn each_target_is_tried_once() {
    let upstream = upstream(&settings(3));
    assert_eq!(tried(&upstream, Instant::now(), 9), [(0, false), (1, false), (2, false)]);
}

#[tokio::test(start_paused = true)]
async fn only_usable_target_is_selected_again() {
    let upstream = upstream(&settings(2));
    let (entries, request) = (upstream.entries(), Request::new(RequestBody::none()));
    entries[0].state.set_failed_by_checks(true, "503");
    let mut selection = upstream.balancer.select(&entries, &request, None);
    let mut next = || {
        selection
            .next(&upstream.balancer, Instant::now())
            .map(|selected| (selected.entry.position, selected.is_repeated))
    };
    assert_eq!([next(), next(), next()], [Some((1, false)), Some((1, true)), Some((1, true))]);
}

#[tokio::test(start_paused = true)]
async fn ejected_target_gets_one_probe() {
    let upstream = upstream(&settings(2));
    fail(&upstream, 0, 1);
    assert!(!is_ejected(&upstream, 0));
    fail(&upstream, 0, 1);
    assert!(is_ejected(&upstream, 0));
    let now = Instant::now();
    assert_eq!(tried(&upstream, now, 9), [(1, false)]);

    let later = now + EJECT.time * 2;
    let (entries, request) = (upstream.entries(), Request::new(RequestBody::none()));
    let mut selection = upstream.balancer.select(&entries, &request, None);
    let probe = selection.next(&upstream.balancer, later).unwrap();
    assert_eq!((probe.entry.position, probe.is_probe.get()), (0, true));
    assert_eq!(tried(&upstream, later, 9), [(1, false)]);

    // A request that is not sent leaves the probe to another one, and a failed probe ejects the target again.
    drop(probe);
    let probe = upstream.balancer.select(&entries, &request, None).next(&upstream.balancer, later).unwrap();
    let due = probe.start_attempt(None).responded(StatusCode::BAD_GATEWAY, &HeaderMap::new(), Some(&EJECT));
    assert!(due.is_none());
    assert_eq!(tried(&upstream, Instant::now() + EJECT.time, 9), [(1, false)]);

    let later = later + EJECT.time * 9;
    let probe = upstream.balancer.select(&entries, &request, None).next(&upstream.balancer, later).unwrap();
    assert!(probe.start_attempt(None).responded(StatusCode::OK, &HeaderMap::new(), Some(&EJECT)).is_none());
    assert!(!is_ejected(&upstream, 0));
    assert_eq!(tried(&upstream, later, 9).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn last_usable_target_is_never_ejected() {
    let (one, two) = (upstream(&settings(1)), upstream(&settings(2)));
    fail(&one, 0, 100);
    assert!(!is_ejected(&one, 0));
    fail(&two, 0, 100);
    fail(&two, 1, 100);
    assert!(is_ejected(&two, 0) && !is_ejected(&two, 1));
    let checked = upstream(&settings(2));
    checked.entries()[1].state.set_failed_by_checks(true, "503");
    fail(&checked, 0, 100);
    assert!(!is_ejected(&checked, 0));
}

#[tokio::test(start_paused = true)]
async fn at_most_half_of_the_targets_are_ejected() {
    for (targets, ejected) in [(2, 1), (3, 1), (4, 2), (5, 2), (10, 5)] {
        let upstream = upstream(&settings(targets));
        let positions = 0..usize::from(targets);
        positions.clone().for_each(|position| fail(&upstream, position, 100));
        assert_eq!(positions.filter(|position| is_ejected(&upstream, *position)).count(), ejected, "{targets}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_never_eject() {
    let upstream = upstream(&settings(2));
    let entries = upstream.entries();
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::NOT_FOUND, StatusCode::NOT_IMPLEMENTED] {
        for _ in 0..100 {
            let attempt = entries[0].state.start_attempt(None, false);
            assert!(attempt.responded(status, &HeaderMap::new(), Some(&EJECT)).is_none());
        }
    }
    assert!(!is_ejected(&upstream, 0));
}

#[tokio::test(start_paused = true)]
async fn ejected_targets_are_tried_if_no_other_is_usable() {
    let upstream = upstream(&settings(3));
    fail(&upstream, 0, 2);
    let entries = upstream.entries();
    entries[1].state.set_failed_by_checks(true, "503");
    entries[2].state.set_failed_by_checks(true, "503");
    assert_eq!(tried(&upstream, Instant::now(), 9), [(0, false)]);
    entries[0].state.set_failed_by_checks(true, "503");
    assert_eq!(tried(&upstream, Instant::now(), 9), []);
}

#[tokio::test(start_paused = true)]
async fn drain_ends_by_itself() {
    let upstream = upstream(&settings(2));
    let (now, minute) = (Instant::now(), Duration::from_secs(60));
    upstream.entries()[0].state.drain_until(Some(now + minute));
    assert_eq!(tried(&upstream, now, 9), [(1, false)]);
    assert_eq!(tried(&upstream, now + minute, 9).len(), 2);
    upstream.entries()[0].state.drain_until(None);
    assert_eq!(tried(&upstream, now, 9).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn hash_selects_the_same_target_for_a_key() {
    let balance = Balance::Hash(HashKey::Cookie("sid".to_owned()));
    let upstream = upstream(&UpstreamSettings { balance, ..settings(8) });
    let entries = upstream.entries();
    let selected = |cookie: &str| {
        let mut request = Request::new(RequestBody::none());
        request.headers_mut().insert(header::COOKIE, cookie.parse().unwrap());
        let mut selection = upstream.balancer.select(&entries, &request, None);
        selection.next(&upstream.balancer, Instant::now()).unwrap().entry.position
    };
    let positions: Vec<_> = (0..40).map(|number| selected(&format!("sid={number}"))).collect();
    for (number, position) in positions.iter().enumerate() {
        assert_eq!(selected(&format!("other=1; sid={number}; sid2=7")), *position);
    }
    let different: std::collections::BTreeSet<_> = positions.into_iter().collect();
    assert!(different.len() > 4, "{different:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_count_as_requests_in_flight() {
    let balance = Balance::default();
    let upstream = upstream(&UpstreamSettings { balance, ..settings(2) });
    let entries = upstream.entries();
    let fields = HeaderMap::from_iter([(header::RETRY_AFTER, "3".parse().unwrap())]);
    let attempt = entries[0].state.start_attempt(None, false);
    assert!(attempt.responded(StatusCode::SERVICE_UNAVAILABLE, &fields, None).is_none());
    let now = Instant::now();
    assert!((0..50).all(|_| tried(&upstream, now + Duration::from_secs(2), 1) == [(1, false)]));
    let later = now + Duration::from_secs(4);
    assert!((0..100).any(|_| tried(&upstream, later, 1) == [(0, false)]));
}

#[tokio::test(start_paused = true)]
async fn returned_target_starts_slowly() {
    let slow_start = Some(Duration::from_secs(10));
    let upstream = upstream(&UpstreamSettings { slow_start, ..settings(2) });
    let entries = upstream.entries();
    let weight = |position| {
        let (request, now) = (Request::new(RequestBody::none()), Instant::now());
        upstream.balancer.select(&entries, &request, None).candidate(&upstream.balancer, position, now, false).weight
    };
    assert_eq!([weight(0), weight(1)], [1000, 1000]);
    entries[0].state.set_failed_by_checks(true, "503");
    entries[0].state.set_failed_by_checks(false, "200");
    assert_eq!([weight(0), weight(1)], [100, 1000]);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!([weight(0), weight(1)], [550, 1000]);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!([weight(0), weight(1)], [1000, 1000]);
}

#[tokio::test(start_paused = true)]
async fn address_that_stays_keeps_its_entry() {
    let name = Target::Http("api.internal:80".parse().unwrap());
    let slow_start = Some(Duration::from_secs(10));
    let settings =
        UpstreamSettings { slow_start, ..UpstreamSettings::new("api".into(), vec![name.clone(), target(9)]) };
    let upstream = upstream(&settings);
    let resolved = |number| ResolvedAddress { address: address(number), weight: 1 };
    upstream.set_addresses(&name, &[resolved(1), resolved(2)]);
    let before = upstream.entries();
    assert_eq!(
        before.iter().map(|entry| entry.address).collect::<Vec<_>>(),
        [Some(address(1)), Some(address(2)), None]
    );
    upstream.set_addresses(&name, &[resolved(2), resolved(3)]);
    let after = upstream.entries();
    assert_eq!(after.iter().map(|entry| entry.address).collect::<Vec<_>>(), [Some(address(2)), Some(address(3)), None]);
    assert!(Arc::ptr_eq(&before[1], &after[0]) && Arc::ptr_eq(&before[2], &after[2]));
    assert_eq!(after[1].state.share(Instant::now(), slow_start), 100);
}

#[tokio::test(start_paused = true)]
async fn all_targets_are_used_in_panic() {
    let upstream = upstream(&checked(4, 50));
    for (failed, expected) in [
        (&[][..], &[0, 1, 2, 3][..]),
        (&[0], &[1, 2, 3]),
        (&[0, 1], &[2, 3]),
        (&[0, 1, 2], &[0, 1, 2, 3]),
        (&[0, 1, 2, 3], &[0, 1, 2, 3]),
        (&[0, 1], &[2, 3]),
    ] {
        fail_checks(&upstream, failed);
        assert_eq!(all_tried(&upstream), expected, "{failed:?}");
        assert_eq!(upstream.is_panic(Instant::now()), failed.len() > 2);
    }
    fail_checks(&upstream, &[1, 2, 3]);
    upstream.entries()[3].state.drain_until(Some(Instant::now() + Duration::from_secs(60)));
    assert_eq!(all_tried(&upstream), [0, 1, 2], "two of three fail, and a draining target is never used");
    fail_checks(&upstream, &[2, 3]);
    assert_eq!(all_tried(&upstream), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn only_target_is_used_although_its_checks_fail() {
    for (percent, expected) in [(50, &[0][..]), (0, &[]), (100, &[])] {
        let upstream = upstream(&checked(1, percent));
        fail_checks(&upstream, &[0]);
        assert_eq!(all_tried(&upstream), expected, "{percent} %");
    }
}

#[tokio::test(start_paused = true)]
async fn hash_selects_in_panic_as_without_failures() {
    let balance = Balance::Hash(HashKey::Path);
    let upstream = upstream(&UpstreamSettings { balance, ..checked(8, 50) });
    let entries = upstream.entries();
    let selected = || {
        let position = |number: u32| {
            let request = Request::get(format!("/{number}")).body(RequestBody::none()).unwrap();
            let mut selection = upstream.balancer.select(&entries, &request, None);
            selection.next(&upstream.balancer, Instant::now()).unwrap().entry.position
        };
        (0..40).map(position).collect::<Vec<_>>()
    };
    let healthy = selected();
    fail_checks(&upstream, &[0, 1, 2, 3, 4]);
    assert_eq!(selected(), healthy);
}

/// Otherwise, the targets that recover first would get less than the targets whose checks still fail.
#[tokio::test(start_paused = true)]
async fn target_that_was_used_in_panic_starts_with_its_full_share() {
    let slow_start = Some(Duration::from_secs(10));
    let upstream = upstream(&UpstreamSettings { slow_start, ..checked(2, 50) });
    let (entries, share) = (upstream.entries(), |entry: &Entry| entry.state.share(Instant::now(), slow_start));
    fail_checks(&upstream, &[0, 1]);
    assert_eq!(all_tried(&upstream), [0, 1]);
    fail_checks(&upstream, &[0]);
    assert_eq!(share(&entries[1]), 1000);
    fail_checks(&upstream, &[]);
    assert_eq!(share(&entries[0]), 1000);
    fail_checks(&upstream, &[0]);
    fail_checks(&upstream, &[]);
    assert_eq!(share(&entries[0]), 100, "no request has used it while its checks failed");
}

#[tokio::test(start_paused = true)]
async fn target_without_address_is_only_a_last_resort() {
    let name = Target::Http("api.internal:80".parse().unwrap());
    let upstream = upstream(&UpstreamSettings::new("api".into(), vec![name.clone(), target(9)]));
    let condition = |position: usize| upstream.target_use()[position].condition(Instant::now());
    assert_eq!([condition(0), condition(1)], [TargetCondition::NoAddress, TargetCondition::Usable]);
    assert_eq!(all_tried(&upstream), [1]);
    upstream.set_addresses(&name, &[ResolvedAddress { address: address(1), weight: 1 }]);
    assert_eq!((condition(0), all_tried(&upstream)), (TargetCondition::Usable, vec![0, 1]));
}

/// The state of a target in the model.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    has_failed: bool,
    is_ejected: bool,
    drains: bool,
}

fn modelled() -> impl Strategy<Value = Modelled> {
    (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(has_failed, is_ejected, drains)| Modelled {
        has_failed,
        is_ejected,
        drains,
    })
}

/// Returns the positions of the targets that a request may try.
fn expected(targets: &[Modelled], percent: usize) -> Vec<usize> {
    let present: Vec<_> = targets.iter().enumerate().filter(|(_, target)| !target.drains).collect();
    let failed = present.iter().filter(|(_, target)| target.has_failed).count();
    let in_panic = percent > 0 && failed * 100 > present.len() * percent;
    let allowed: Vec<_> = present.into_iter().filter(|(_, target)| in_panic || !target.has_failed).collect();
    let included = allowed.iter().any(|(_, target)| !target.is_ejected);
    allowed.iter().filter(|(_, target)| target.is_ejected != included).map(|(position, _)| *position).collect()
}

proptest! {
    #[test]
    fn request_tries_the_targets_of_the_model(
        targets in prop::collection::vec(modelled(), 1..7), percent in prop_oneof![Just(0_u8), Just(50), 0_u8..=100],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let upstream = upstream(&checked(u16::try_from(targets.len()).unwrap(), percent));
            for (entry, target) in upstream.entries().iter().zip(&targets) {
                for _ in 0..if target.is_ejected { 2 } else { 0 } {
                    let attempt = entry.state.start_attempt(None, false);
                    let error = TargetError::connect(&io::ErrorKind::TimedOut.into());
                    if let Some(due) = attempt.failed(Some(&error), None, Some(&EJECT)) {
                        due.eject();
                    }
                }
                entry.state.set_failed_by_checks(target.has_failed, "a check");
                entry.state.drain_until(target.drains.then(|| Instant::now() + Duration::from_secs(60)));
            }
            prop_assert_eq!(all_tried(&upstream), expected(&targets, usize::from(percent)));
            Ok::<_, TestCaseError>(())
        })?;
    }
}
