//! Leases without a Redis: the calls that are made about them.

use super::*;

fn keys(route: &str) -> Arc<LeaseKeys> {
    Arc::new(LeaseKeys { route: route.into(), is_bounded: true, client: None })
}

#[test]
fn call_releases_only_ended_leases_of_its_route() {
    let (leases, busy) = (Arc::new(Leases::default()), keys("{tidegate:busy}:@in_flight"));
    leases.shared.release_later((0..2 * MAX_RELEASED as u64).map(|id| (id, Arc::clone(&busy))).collect());
    let lease = leases.new_lease(keys("{tidegate:other}:@in_flight"));
    assert!(leases.shared.call_to_take(&lease, Vec::new()).released.is_empty());
    let lease = leases.new_lease(busy);
    let call = leases.shared.call_to_take(&lease, Vec::new());
    let others = leases.shared.calls_to_keep(false);
    let released = others.iter().map(|call| call.released.len()).sum::<usize>();
    assert_eq!((call.released.len(), released), (MAX_PER_CALL, MAX_RELEASED - MAX_PER_CALL));
}

/// Regression test: a renewal after the release of the lease took its slot for the duration of a lease.
#[test]
fn lease_that_has_ended_is_not_renewed() {
    let leases = Arc::new(Leases::default());
    let [ended, held] = [0, 1].map(|_| leases.new_lease(keys("{tidegate:a}:@in_flight"))).map(|mut lease| {
        lease.may_exist = true;
        lease.start();
        lease
    });
    let calls = leases.shared.calls_to_keep(true);
    drop(ended);
    assert_eq!(leases.shared.call_to_take(&held, Vec::new()).released.len(), 1);
    let kept: Vec<_> = calls.iter().flat_map(|call| call.kept(&KeySecret::random()).into_values()).collect();
    assert_eq!(kept, [[vec![name(&calls[0].prefix, held.id)], Vec::new()]]);
}
