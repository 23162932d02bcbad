//! Limiters shared with Redisson's clients.

use deadpool_redis::redis::{Commands, cmd};
use tidegate::internals::ReplayStore;
use tidegate::redisson::Mode;
use tidegate::{Clock, StoreError, Timestamp};
use tidegate_limit::Wait;
use tidegate_limit::clock::SystemClock;
use tidegate_rules::charge::{Charge, Decision, Granted};

use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::redisson::{Peer, answer, member, request, script};
use crate::support::wire::soon;
use crate::support::{adopted, configured, overall};

const NOW: u64 = 1_700_000_000_000;

async fn ask(store: &ReplayStore, charge: Charge, now: u64) -> Result<Decision, StoreError> {
    store.take_at(&[charge], Timestamp::from_millis(now)).await.map(|outcome| outcome.decisions[0])
}

pub async fn take(store: &ReplayStore, charge: Charge, now: u64) -> Decision {
    ask(store, charge, now).await.expect("a decision")
}

#[tokio::test]
async fn limiter_without_configuration_is_an_error() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    let ask = || ask(&store, adopted("java", None, None, 1), NOW);
    assert_eq!(ask().await, Err(StoreError::NotInitialised));
    for field in ["rate", "interval", "type"] {
        redis.hset_multiple::<_, _, _, ()>("java", &[("rate", 5), ("interval", 1_000), ("type", 0)]).expect("set");
        redis.hdel::<_, _, ()>("java", field).expect("deleted");
        assert_eq!(ask().await, Err(StoreError::NotInitialised), "without {field}");
    }
    assert_eq!(redis.keys::<_, Vec<String>>("*java*").expect("keys"), ["java"], "the store wrote a configuration");
    Peer::new(redis, "java", "").configure(0, 5, 1_000, 0);
    assert_eq!(ask().await.map(|decision| decision.remaining), Ok(4));
}

#[tokio::test]
async fn mode_that_differs_from_the_stored_type_is_an_error() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "jvm");
    for (kind, right, wrong) in [(0, Mode::Overall, Mode::PerClient), (1, Mode::PerClient, Mode::Overall)] {
        peer.configure(kind, 5, 1_000, 0);
        let ask = |mode| ask(&store, adopted("java", mode, Some("c"), 1), NOW);
        assert_eq!(ask(Some(wrong)).await, Err(StoreError::ModeDiffers));
        assert!(ask(Some(right)).await.is_ok() && ask(None).await.is_ok());
    }
}

#[tokio::test]
async fn undecidable_limit_charges_no_other_limit() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let own = || overall("{route}:own", 5, 1_000, 1);
    let both = [own(), adopted("java", None, None, 1)];
    let failed = store.take_at(&both, Timestamp::from_millis(NOW)).await;
    assert_eq!(failed, Err(StoreError::NotInitialised));
    assert_eq!(take(&store, own(), NOW).await.remaining, 4);
}

#[tokio::test]
async fn log_entry_equals_redissons() {
    let Some(server) = RedisServer::start() else { return };
    let mut peer = Peer::new(server.connection(), "lim", "");
    peer.configure(0, 10, 1_000, 0);
    let random: Vec<u8> = (0xa0..=0xaf).collect();
    let keys = peer.script_keys();
    let mut call = cmd("EVAL");
    call.arg(script()).arg(keys.len()).arg(&keys[..]);
    call.arg("admit").arg("redisson adopt    1 ").arg(request(3)).arg(&random).arg(NOW);
    let reply = answer(&call.query::<Vec<u8>>(peer.redis()).expect("a reply"));
    assert_eq!(reply, [NOW.cast_signed(), 1, 7, 0, 1_000]);
    let golden = [&[0x10][..], &random, &[3, 0, 0, 0]].concat();
    assert_eq!((peer.log(), peer.counter()), (vec![(golden, NOW)], Some(7)));
}

#[tokio::test]
async fn per_client_bucket_has_javas_key() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let id = "0b7c2c9e-3f7a-4a34-9d4a-0b6a2f8f1c55";
    let mut peer = Peer::new(server.connection(), "user:{42}", id);
    peer.configure(1, 2, 1_000, 0);
    assert_eq!(peer.acquire(1, NOW), None);
    assert!(take(&store, adopted("user:{42}", None, Some(id), 1), NOW).await.granted);
    assert!(!take(&store, adopted("user:{42}", None, Some(id), 1), NOW).await.granted);
    assert!(take(&store, adopted("user:{42}", None, Some("other"), 2), NOW).await.granted);
    assert!(peer.acquire(1, NOW).is_some());
}

/// Redisson sets `keepAliveTime` at every call, also at refusals. Without `keepAliveTime` it copies the TTL of the
/// hash.
#[tokio::test]
async fn times_to_live_equal_redissons() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "");
    peer.configure(0, 2, 1_000, 50_000);
    let ttls = |peer: &mut Peer| {
        let keys = [&peer.keys()[0], &peer.keys()[1], &peer.keys()[3]].map(Clone::clone);
        keys.map(|key| peer.redis().pttl::<_, i64>(key).expect("a time"))
    };
    for permits in [2, 1] {
        assert_eq!(take(&store, adopted("java", None, None, permits), NOW).await.granted, permits == 2);
        assert!(ttls(&mut peer).iter().all(|ttl| (40_000..=50_000).contains(ttl)), "{:?}", ttls(&mut peer));
        for key in peer.keys().clone() {
            peer.redis().pexpire::<_, ()>(key, 20_000).expect("an expiry");
        }
    }
    peer.configure(0, 2, 1_000, 0);
    for (at, permits) in [(1_000, 2), (1_001, 1)] {
        take(&store, adopted("java", None, None, permits), NOW + at).await;
        assert!(ttls(&mut peer).iter().all(|ttl| (1..=20_000).contains(ttl)), "{:?}", ttls(&mut peer));
    }
    let hash = peer.keys()[0].clone();
    peer.redis().persist::<_, ()>(hash).expect("persisted");
    cmd("DEL").arg(&peer.keys().clone()[1..]).exec(peer.redis()).expect("deleted");
    take(&store, adopted("java", None, None, 1), NOW + 3_000).await;
    assert_eq!(ttls(&mut peer), [-1, -1, -1]);
}

#[tokio::test]
async fn rule_without_adopt_updates_javas_hash() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "");
    assert!(take(&store, configured("java", 5, 1_000, 1), NOW).await.granted);
    let hash = |peer: &mut Peer| -> Vec<String> {
        let fields = &["rate", "interval", "keepAliveTime", "type"];
        cmd("HMGET").arg("java").arg(fields).query(peer.redis()).expect("four fields")
    };
    assert_eq!(hash(&mut peer), ["5", "1000", "2000", "0"]);
    peer.configure(0, 50, 100, 0);
    assert!(take(&store, configured("java", 5, 1_000, 1), NOW).await.granted);
    assert_eq!(hash(&mut peer), ["5", "1000", "0", "0"]);
    assert_eq!(peer.acquire(4, NOW).map(|wait| wait > 0), Some(true));
    assert_eq!(peer.acquire(3, NOW), None);
    peer.configure(0, 5, 1_000, 1_500);
    assert!(take(&store, configured("java", 5, 3_000, 1), NOW + 1_000).await.wait == Wait::Millis(2_000));
    assert!(take(&store, configured("java", 5, 3_000, 1), NOW + 3_000).await.granted);
    assert_eq!(
        hash(&mut peer),
        ["5", "3000", "6000", "0"],
        "a keepAliveTime below the interval would lose permits in use"
    );
}

#[tokio::test]
async fn entries_of_all_redisson_versions_count() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    for format in ["fI", "Lc0I", "Bc0I/8", "Bc0I/16"] {
        let name = fresh_name();
        let mut peer = Peer::new(server.connection(), &name, "");
        peer.configure(0, 10, 1_000, 0);
        // A first byte of 3 is also the length of a random part.
        for (salt, permits) in [(0, 2), (1, 3), (3, 1)] {
            peer.write(&member(format, salt, permits), NOW);
        }
        peer.set_counter(4);
        let charge = |permits| adopted(&name, None, None, permits);
        let refused = take(&store, charge(5), NOW + 1).await;
        assert_eq!((refused.remaining, refused.wait), (4, Wait::Millis(999)), "{format}");
        assert!(take(&store, charge(4), NOW + 1).await.granted, "{format}");
        assert!(take(&store, charge(6), NOW + 1_000).await.granted, "{format}");
        assert_eq!(peer.counter(), Some(0));
    }
}

#[tokio::test]
async fn unused_permits_are_given_back_once() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "");
    peer.configure(0, 5, 1_000, 0);
    assert_eq!(peer.acquire(2, NOW), None);
    let charge = adopted("java", None, None, 3);
    assert!(take(&store, charge.clone(), NOW + 1).await.granted);
    let at = Timestamp::from_millis;
    for _ in 0..2 {
        store
            .give_back_at(&[Granted { charge: charge.clone(), at: at(NOW + 1), overflow: false }], at(NOW + 2))
            .await
            .expect("given back");
        assert_eq!((peer.counter(), peer.log().len()), (Some(3), 1));
    }
}

/// `release()` increments the counter and does not change the log.
#[tokio::test]
async fn released_permit_is_granted_once() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    for client in [None, Some("jvm")] {
        let name = fresh_name();
        let mut peer = Peer::new(server.connection(), &name, client.unwrap_or(""));
        peer.configure(client.is_some().into(), 2, 60_000, 0);
        let ask = async |at| take(&store, adopted(&name, None, client, 1), at).await.granted;
        assert_eq!((peer.acquire(1, NOW), peer.acquire(1, NOW + 1)), (None, None));
        assert!(!ask(NOW + 2).await);
        peer.release(1);
        assert_eq!((ask(NOW + 3).await, ask(NOW + 4).await), (true, false));
        assert_eq!((peer.counter(), peer.log().len()), (Some(0), 2));
        // The release removed the newest entry; the oldest one expires at its usual time.
        assert_eq!((ask(NOW + 60_000).await, ask(NOW + 60_002).await), (true, false));
        assert!(ask(NOW + 60_003).await);
    }
}

/// Redisson counts permits twice if they are released and then expire before the next call.
#[tokio::test]
async fn released_and_expired_permits_return_once() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "");
    peer.configure(0, 10, 1_000, 0);
    let ask = async |permits, at| take(&store, adopted("java", None, None, permits), at).await;
    assert!(ask(1, NOW).await.granted);
    assert_eq!(peer.acquire(3, NOW), None);
    assert!(!ask(7, NOW + 500).await.granted);
    assert_eq!(peer.acquire(5, NOW + 600), None);
    peer.release(3);
    // Redisson removes the oldest entries, and counts eight available permits.
    assert_eq!(peer.available(NOW + 1_000), 8);
    let decision = ask(6, NOW + 1_000).await;
    assert_eq!((decision.granted, decision.remaining), (false, 5));
    assert_eq!(peer.counter(), Some(5));
}

/// The script decides the requests of a call as if they were sequential, and writes one log entry.
#[tokio::test]
async fn requests_of_one_call_share_a_log_entry() {
    let Some(server) = RedisServer::start() else { return };
    let mut peer = Peer::new(server.connection(), "lim", "");
    peer.configure(0, 7, 1_000, 0);
    let keys = peer.script_keys();
    let mut requests = request(2);
    requests[..4].copy_from_slice(&5_u32.to_le_bytes());
    let mut call = cmd("EVAL");
    call.arg(script()).arg(keys.len()).arg(&keys[..]);
    call.arg("admit").arg("redisson adopt    1 ").arg(requests).arg(&[7_u8; 8]).arg(NOW);
    let reply: Vec<u8> = call.query(peer.redis()).expect("a reply");
    let rows: Vec<(u8, u8)> = vec![(reply[8], reply[12]), (reply[23], reply[27])];
    assert_eq!(rows, [(3, 1), (2, 0)], "three are granted and two refused");
    let log = peer.log();
    assert_eq!((log.len(), &log[0].0[17..], peer.counter()), (1, &[6, 0, 0, 0][..], Some(1)));
}

/// Covers the rule file, the gateway, Redis and Java's hash.
#[tokio::test]
async fn gateway_adopts_javas_configuration_when_it_exists() {
    let Some(server) = RedisServer::start() else { return };
    let rules = |policy| {
        format!(
            "store: {}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
             match: {{ path: /** }}\n    upstream: echo\n    limits:\n      - {{ name: l, key: java, adopt: true, \
             on_store_failure: {policy} }}\n",
            server.rule()
        )
    };
    let allow = TestGateway::start(&rules("allow"));
    let deny = TestGateway::start(&rules("deny"));
    assert_eq!([allow.get("/", "").await.status(), deny.get("/", "").await.status()], [200, 503]);
    let failures = r#"tidegate_store_failures_total{cause="not_initialised"}"#;
    assert_eq!((allow.counter(failures).await, deny.counter(failures).await), (1, 1));

    let mut peer = Peer::new(server.connection(), "java", "jvm");
    peer.configure(0, 2, 3_600_000, 0);
    let clock = SystemClock::new();
    assert_eq!(peer.acquire(1, clock.now().as_millis()), None);
    let granted = allow.get("/", "").await;
    assert_eq!((granted.status(), granted.field("ratelimit-policy")), (200, None));
    assert_eq!([allow.get("/", "").await.status(), deny.get("/", "").await.status()], [429, 429]);
    peer.configure(1, 2, 3_600_000, 0);
    // The gateway caches a refusal for up to one second.
    soon(async { while deny.get("/", "").await.status() != 503 {} }).await;
    assert_eq!(deny.counter(r#"tidegate_store_failures_total{cause="mode_differs"}"#).await, 1);
}

/// Redisson reads all expired entries in one call, which blocks Redis for 79 ms after 100,000 grants.
#[tokio::test]
async fn call_removes_at_most_512_entries_and_stays_exact() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "");
    peer.configure(0, 20_000, 1_000, 0);
    let fill =
        "for i = 1, 20000 do redis.call('ZADD', KEYS[1], ARGV[1], struct.pack('<BI4I4I4I4I4', 16, i, 0, 0, 0, 1)) end";
    let log = peer.keys()[3].clone();
    cmd("EVAL").arg(fill).arg(1).arg(log).arg(NOW).exec(peer.redis()).expect("filled");
    peer.set_counter(0);
    let refused = take(&store, adopted("java", None, None, 7), NOW + 1).await;
    assert_eq!((refused.remaining, refused.wait), (0, Wait::Millis(999)));
    assert!(take(&store, adopted("java", None, None, 7), NOW + 1_000).await.granted);
    assert_eq!(peer.log().len(), 20_000 - 512 + 1);
    // The remaining expired entries count as available, and the counter is correct after a peer removes them.
    let rest = take(&store, adopted("java", None, None, 0), NOW + 1_000).await;
    assert_eq!(rest.remaining, 20_000 - 7);
    assert!(take(&store, adopted("java", None, None, 20_000 - 7), NOW + 1_000).await.granted);
    assert!(peer.acquire(1, NOW + 1_000).is_some());
    assert_eq!((peer.counter(), peer.log().len()), (Some(0), 2));
}

/// With many expired and many live entries, the store repeats the call until the expired ones are removed.
#[tokio::test]
async fn request_behind_many_expired_entries_is_decided() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.replay_store();
    let mut peer = Peer::new(server.connection(), "java", "");
    peer.configure(0, 4_000, 1_000, 0);
    let fill = "for i = 1, 2000 do redis.call('ZADD', KEYS[1], ARGV[1], struct.pack('<BI4I4I4I4I4', 16, i, tonumber(ARGV[2]), 0, 0, 1)) end";
    let log = peer.keys()[3].clone();
    for (index, at) in [NOW, NOW + 500].iter().enumerate() {
        cmd("EVAL").arg(fill).arg(1).arg(&log).arg(at).arg(index).exec(peer.redis()).expect("filled");
    }
    peer.set_counter(0);
    let refused = take(&store, adopted("java", None, None, 2_500), NOW + 500).await;
    assert_eq!(refused.wait, Wait::Millis(1_000), "the 2500th permit becomes available with the second half");
    assert!(take(&store, adopted("java", None, None, 2_000), NOW + 1_000).await.granted);
    assert_eq!((peer.counter(), peer.log().len()), (Some(0), 2_001));
}

#[tokio::test]
async fn unconfigured_limiter_does_not_stop_other_limits() {
    let Some(server) = RedisServer::start() else { return };
    let rules = format!(
        "store: {}
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes:
  - name: all
    match: {{}}
    upstream: echo
    limits:
      - {{ name: javas, key: java, adopt: true, on_store_failure: allow }}
      - {{ name: ours, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h, on_store_failure: deny }}\n",
        server.rule()
    );
    let gateway = TestGateway::start(&rules);
    let granted = gateway.get("/", "").await;
    assert_eq!((granted.status(), granted.field("ratelimit").as_deref()), (200, Some("\"ours\";r=0;t=3600")));
    let refused = gateway.get("/", "").await;
    assert_eq!(refused.status(), 429);
    assert!(refused.text().contains(r#""violated-policies":["ours"]"#), "{}", refused.text());
    let counter = async |limit, outcome| {
        let series = format!(r#"tidegate_decisions_total{{route="all",limit="{limit}",outcome="{outcome}"}}"#);
        gateway.counter(&series).await
    };
    assert_eq!((counter("ours", "allowed").await, counter("ours", "limited").await), (1, 1));
    assert!(counter("javas", "store_failed").await >= 1);
}
