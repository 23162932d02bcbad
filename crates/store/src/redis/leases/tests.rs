//! Leases without a Redis: those that a call renews and releases.

use super::*;

fn keys(route: &str) -> LeaseKeys {
    LeaseKeys { route: route.into(), is_bounded: true, client: None }
}

#[test]
fn call_releases_only_ended_leases_of_its_route() {
    let (leases, busy) = (Arc::new(Leases::default()), Arc::new(keys("{tidegate:busy}:@in_flight")));
    let ended = (0..2 * MAX_RELEASED).map(|number| (u32::try_from(number).expect("a number"), Arc::clone(&busy)));
    leases.shared_leases.release_later(ended.collect());
    let lease = leases.new_lease(keys("{tidegate:other}:@in_flight"));
    assert!(lease.take_released([&lease.keys.route].into_iter()).released.is_empty());
    let kept = lease.take_released([&busy.route].into_iter());
    let released = leases.shared_leases.to_keep(false).iter().map(|kept| kept.released.len()).sum::<usize>();
    assert_eq!((kept.released.len(), released), (MAX_PER_CALL, MAX_RELEASED - MAX_PER_CALL));
}

/// Regression test: a renewal after the release of the lease took its slot for the duration of a lease.
#[test]
fn lease_that_has_ended_is_not_renewed() {
    let leases = Arc::new(Leases::default());
    let [ended, held] = [0, 1].map(|_| {
        let lease = leases.new_lease(keys("{tidegate:a}:@in_flight"));
        lease.set_may_exist(true);
        lease.start();
        lease
    });
    let to_keep = leases.shared_leases.to_keep(true);
    drop(ended);
    let mut released = held.take_released([&held.keys.route].into_iter());
    assert_eq!(released.released.len(), 1);
    released.done();
    let kept: Vec<_> = to_keep.iter().flat_map(|kept| kept.by_key(|route, _| route.to_owned()).into_values()).collect();
    assert_eq!(kept, [[vec![format!("{}{:x}", to_keep[0].prefix, held.number)], Vec::new()]]);
}

#[test]
fn number_of_a_held_lease_is_not_used_again() {
    let leases = Arc::new(Leases::default());
    let held = leases.new_lease(keys("a"));
    held.start();
    leases.shared_leases.table.lock().last = u32::MAX - 1;
    assert_eq!([0, 1].map(|_| leases.new_lease(keys("a")).number), [u32::MAX, 2]);
}

/// A lease whose call has not ended is not released before: the call could take it afterwards.
#[test]
fn lease_is_released_when_its_call_has_ended() {
    let leases = Arc::new(Leases::default());
    let lease = Arc::new(leases.new_lease(keys("a")));
    let call = Arc::clone(&lease);
    call.set_may_exist(true);
    drop(lease);
    assert!(leases.shared_leases.is_idle());
    drop(call);
    assert_eq!(leases.shared_leases.to_keep(false).len(), 1);
}
