//! Compares the index with a specification that visits all overrides.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// The names of the routes, and of the limits of each.
const ROUTES: [&str; 2] = ["a", "b"];
const LIMITS: [&str; 2] = ["x", "y"];

/// A request, with the hash of its client for some limits.
#[derive(Clone, Debug)]
struct Sent {
    route: &'static str,
    address: IpAddr,
    clients: Vec<(&'static str, u128)>,
}

fn action() -> impl Strategy<Value = Action> {
    prop::sample::select(&[Action::Ban, Action::Exempt, Action::Adjust][..])
}

fn scope() -> impl Strategy<Value = Scope> {
    let names = (prop::sample::select(&ROUTES[..]), prop::sample::select(&["x", "y", "gone"][..]));
    prop_oneof![
        Just(Scope::All),
        prop::sample::select(&ROUTES[..]).prop_map(|route| Scope::Route(route.to_owned())),
        names.prop_map(|(route, limit)| Scope::Limit { route: route.to_owned(), limit: limit.to_owned() }),
    ]
}

/// Generates addresses that share prefixes.
fn address() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(&["10.0.0.1", "10.0.0.2", "10.0.1.1", "11.0.0.1", "2001:db8::1", "2001:db8::2"][..])
        .prop_map(|address| address.parse().expect("an address"))
}

fn target() -> impl Strategy<Value = Target> {
    let v4 = prop::sample::select(&[0_u8, 7, 8, 24, 31, 32][..]);
    let v6 = prop::sample::select(&[0_u8, 32, 127, 128][..]);
    let network = (address(), v4, v6).prop_map(|(address, v4, v6)| {
        let length = if address.is_ipv4() { v4 } else { v6 };
        Target::Network(ipnet::IpNet::new(address, length).expect("a network").trunc())
    });
    prop_oneof![network, (0..3_u128).prop_map(Target::Hash)]
}

fn entry() -> impl Strategy<Value = Override> {
    (action(), scope(), target(), 1..6_u64, 1..9_u32).prop_map(|(action, scope, target, until, rate)| Override {
        id: Override::id_of(action, &scope, &target),
        action,
        scope,
        target,
        adjustment: Adjustment { rate: (action == Action::Adjust).then_some(rate), multiply: None },
        disconnect: action == Action::Ban && until % 2 == 0,
        until: Timestamp::from_millis(until),
        reason: "a test".to_owned(),
        by: "ann".to_owned(),
    })
}

/// Generates overrides with different ids.
fn set() -> impl Strategy<Value = Vec<Override>> {
    let by_id = |all: Vec<Override>| all.into_iter().map(|entry| (entry.id.clone(), entry)).collect::<BTreeMap<_, _>>();
    prop::collection::vec(entry(), 0..24).prop_map(move |all| by_id(all).into_values().collect())
}

fn sent() -> impl Strategy<Value = Sent> {
    let client = prop::option::of(0..4_u128);
    (prop::sample::select(&ROUTES[..]), address(), [client.clone(), client]).prop_map(|(route, address, clients)| {
        let clients = LIMITS.into_iter().zip(clients).filter_map(|(limit, hash)| Some((limit, hash?))).collect();
        Sent { route, address, clients }
    })
}

/// Returns `true` if the override concerns the request.
fn concerns(entry: &Override, sent: &Sent, now: Timestamp) -> bool {
    let in_scope = |limit: &str| entry.scope.contains_limit(sent.route, limit);
    let has_target = match &entry.target {
        Target::Network(network) => network.contains(&sent.address) && LIMITS.into_iter().any(in_scope),
        Target::Hash(hash) => sent.clients.iter().any(|(limit, client)| client == hash && in_scope(limit)),
    };
    now.as_millis() < entry.until.as_millis() && has_target
}

/// Returns `true` if the first of two adjustments has precedence.
fn precedes(entry: &Override, other: &Override) -> bool {
    let words = |scope: &Scope| match scope {
        Scope::All => 0,
        Scope::Route(_) => 1,
        Scope::Limit { .. } => 2,
    };
    let length = |target: &Target| match target {
        Target::Network(network) => i32::from(network.prefix_len()),
        Target::Hash(_) => 1_000,
    };
    let rank = |entry: &Override| (words(&entry.scope), length(&entry.target));
    rank(entry) > rank(other) || rank(entry) == rank(other) && entry.id < other.id
}

fn found<'i>(index: &'i OverrideIndex, sent: &Sent, now: Timestamp) -> OverrideMatches<'i> {
    let mut found = OverrideMatches::default();
    let in_scope = |scope: &Scope| match scope {
        Scope::All => true,
        Scope::Route(name) => name == sent.route,
        Scope::Limit { route, limit } => route == sent.route && LIMITS.contains(&limit.as_str()),
    };
    index.find_address(sent.address, in_scope, || now, &mut found);
    for (limit, hash) in &sent.clients {
        index.find_client(*hash, sent.route, limit, || now, &mut found);
    }
    found
}

proptest! {
    #[test]
    fn index_agrees_with_a_visit_of_all_overrides(set in set(), sent in sent(), now in 0..7_u64) {
        let (index, now) = (OverrideIndex::new(set.iter().cloned().map(Arc::new)), Timestamp::from_millis(now));
        let found = found(&index, &sent, now);
        let concerned: Vec<&Override> = set.iter().filter(|entry| concerns(entry, &sent, now)).collect();
        prop_assert_eq!(found.is_empty(), concerned.is_empty());

        let bans = concerned.iter().filter(|entry| entry.action == Action::Ban);
        let banned_until = bans.map(|entry| entry.until).max();
        prop_assert_eq!(found.ban().map(|entry| entry.until), banned_until);
        prop_assert_eq!(found.disconnects(), concerned.iter().any(|entry| entry.disconnect));
        let is_exempt = |entry: &&Override| entry.action == Action::Exempt && entry.scope.contains_limit(sent.route, "");
        prop_assert_eq!(found.exempts_from_slots(sent.route), concerned.iter().copied().any(|entry| is_exempt(&entry)));

        for limit in LIMITS {
            let effect = found.effect_on(sent.route, limit);
            let changes = || concerned.iter().filter(|entry| entry.scope.contains_limit(sent.route, limit));
            if changes().any(|entry| entry.action == Action::Exempt) {
                prop_assert_eq!(effect.map(|entry| entry.action), Some(Action::Exempt));
                continue;
            }
            let adjusts: Vec<_> = changes().filter(|entry| entry.action == Action::Adjust).collect();
            let first = adjusts.iter().find(|entry| adjusts.iter().all(|other| entry == &other || precedes(entry, other)));
            prop_assert_eq!(effect, first.map(|entry| **entry));
        }
    }

    #[test]
    fn override_ends_at_its_millisecond(entry in entry(), sent in sent()) {
        let (index, until) = (OverrideIndex::new([Arc::new(entry.clone())]), entry.until.as_millis());
        let is_found = |now| !found(&index, &sent, Timestamp::from_millis(now)).is_empty();
        let is_concerned = concerns(&entry, &sent, Timestamp::from_millis(0));
        prop_assert_eq!([is_found(0), is_found(until - 1), is_found(until)], [is_concerned, is_concerned, false]);
    }

    #[test]
    fn stored_form_is_read_back(entry in entry(), multiply in 1..5_000_u32) {
        let factor = Factor::try_from(f64::from(multiply) / 1_000.0).expect("a factor");
        let adjustment = Adjustment { rate: None, multiply: Some(factor) };
        for entry in [entry.clone(), Override { adjustment, ..entry }] {
            let text = serde_json::to_string(&entry).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<Override>(&text).expect("an override"), entry);
        }
    }

    #[test]
    fn factor_multiplies_exactly(thousandths in 1..=1_000_000_000_u32, rate in 1..=tidegate_limit::MAX_RATE) {
        let factor = Factor::try_from(f64::from(thousandths) / 1_000.0).expect("a factor");
        let exact = u64::from(rate) * u64::from(thousandths) / 1_000;
        prop_assert_eq!(u64::from(factor.apply(rate)), exact.clamp(1, tidegate_limit::MAX_RATE.into()));
    }
}

#[test]
fn numbers_out_of_range_are_no_factors() {
    for text in ["0", "-1", "0.0004", "1.0005", "1000001", "NaN", "inf", "", "x"] {
        assert!(text.parse::<Factor>().is_err(), "{text}");
    }
    for text in ["0.001", "0.5", "1", "1000000"] {
        assert_eq!(text.parse::<Factor>().map(|factor| factor.to_string()), Ok(text.to_owned()));
    }
}

#[test]
fn networks_are_normalized() {
    for (text, network) in [
        ("192.0.2.9/24", Some("192.0.2.0/24")),
        ("192.0.2.9", Some("192.0.2.9")),
        ("::ffff:192.0.2.9", Some("192.0.2.9")),
        ("::ffff:192.0.2.9/120", Some("192.0.2.0/24")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("2001:db8::1/64", Some("2001:db8::/64")),
        ("192.0.2.0/33", None),
        ("a", None),
    ] {
        let network_text = parse_network(text).map(|network| Target::Network(network).to_string());
        assert_eq!(network_text.as_deref(), network, "{text}");
    }
}
