//! Stores with Redis Sentinel: failovers, wrong sentinels, passwords and TLS.

mod cut_off;
mod load;
mod names;

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate_limit::clock::Stopwatch;

use self::load::{Load, Tally};
use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, free_port, wait_for};
use crate::support::sentinel::{MASTER, SentinelSetup};
use crate::support::tls::Authority;
use crate::support::wire::raw::Message;
use crate::support::wire::soon;

/// The rate of the limits.
const RATE: u32 = 1_000_000;

/// Returns rules with limits of all algorithms, which gateways decide locally while the store is unreachable.
fn rules(store: &str) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: {RATE}, interval: 1h, on_store_failure: local }}\n      \
         - {{ name: g, mode: OVERALL, rate: {RATE}, interval: 1h, algorithm: gcra }}\n      \
         - {{ name: s, mode: OVERALL, rate: {RATE}, interval: 1h, algorithm: sliding_window }}\n      \
         - {{ name: f, mode: OVERALL, rate: {RATE}, interval: day, algorithm: fixed_window }}\n      \
         - {{ name: q, mode: OVERALL, rate: {RATE}, interval: 1s, algorithm: leaky_bucket }}\n"
    )
}

async fn ask(gateway: &TestGateway) -> Message {
    gateway.get("/", "k: a\r\n").await
}

/// Returns the remaining permits; `None` if the store did not decide.
fn remaining(response: &Message) -> Option<u32> {
    let field = response.field("ratelimit")?;
    let (_, rest) = field.split_once("r=")?;
    rest.split(';').next()?.parse().ok()
}

async fn config(gateway: &TestGateway) -> String {
    gateway.config().await
}

/// Returns the number of gateway connections to this server.
fn connections(server: &RedisServer) -> usize {
    let mut redis = server.connection();
    let own: u64 = cmd("CLIENT").arg("ID").query(&mut redis).expect("a number");
    let list: String = cmd("CLIENT").arg(&["LIST", "TYPE", "NORMAL"]).query(&mut redis).expect("a list");
    let is_gateway = |line: &&str| !line.starts_with(&format!("id={own} ")) && !line.contains(" name=sentinel-");
    list.lines().filter(is_gateway).count()
}

/// Sends requests until both gateways use this server for their decisions. All responses must be 200. Returns the time
/// without decisions of a store.
async fn wait_until_shared(gateways: [&TestGateway; 2], server: &RedisServer) -> Duration {
    let (since, mut away) = (Stopwatch::start(), None);
    loop {
        let mut permits = Vec::new();
        for gateway in gateways {
            let response = ask(gateway).await;
            assert_eq!(response.status(), 200, "{}", response.text());
            permits.push(remaining(&response));
        }
        if permits.contains(&None) {
            away.get_or_insert(since.elapsed());
        }
        let config = config(gateways[0]).await;
        let master = config.split_once(r#""master":""#).and_then(|(_, rest)| rest.split('"').next());
        let is_master = master.is_some_and(|master| master.ends_with(&format!(":{}", server.port)));
        if is_master
            && let [Some(first), Some(second)] = permits[..]
            && first == second + 1
        {
            return away.map_or(Duration::ZERO, |away| since.elapsed() - away);
        }
        // Sentinels pause failovers for 30 s if their own timers were 2 s late (TILT mode).
        let is_late = since.elapsed() >= Duration::from_secs(90);
        assert!(!is_late, "waited 90 s for the master on port {}: {permits:?} {config}", server.port);
    }
}

/// Prints the duration of an outage and the grants. Sentinels need most of the time, and grants that the master had not
/// replicated are lost, so neither is checked.
#[expect(clippy::print_stdout, reason = "prints measurements")]
fn print_outage(after: &str, away: Duration, load: &Tally) {
    println!("{after}: no shared limit for {} ms, {load:?}", away.as_millis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_comes_from_the_first_reachable_sentinel() {
    let Some(setup) = SentinelSetup::start() else { return };
    let urls = format!("'redis://127.0.0.1:{}', {}", free_port(), setup.urls());
    let store = format!("{{ timeout: 2s, database: 3, sentinel: {{ urls: [{urls}], master: {MASTER} }} }}");
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&store)));
    wait_until_shared([&gateways[0], &gateways[1]], &setup.servers[0]).await;
    let mut redis = setup.servers[0].connection();
    cmd("SELECT").arg(3).exec(&mut redis).expect("selected");
    let keys: Vec<String> = cmd("KEYS").arg("{tidegate:all}:l:*").query(&mut redis).expect("keys");
    assert_eq!(keys.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_master_is_replaced_without_errors() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    let load = Load::start(both);
    drop(setup.servers.remove(0));
    let away = wait_until_shared(both, &setup.servers[0]).await;
    print_outage("master killed", away, &load.stop(both).await);
}

/// A machine with the master and a sentinel fails. The gateways were subscribed to this sentinel, which now hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_of_master_and_sentinel_causes_no_errors() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    let load = Load::start(both);
    setup.sentinels[0].signal("STOP");
    drop(setup.servers.remove(0));
    let away = wait_until_shared(both, &setup.servers[0]).await;
    print_outage("master and sentinel gone", away, &load.stop(both).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_leave_a_replaced_master() {
    let Some(setup) = SentinelSetup::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    assert_ne!(connections(&setup.servers[0]), 0);
    let load = Load::start(both);
    setup.fail_over();
    let away = wait_until_shared(both, &setup.servers[1]).await;
    print_outage("failover by command", away, &load.stop(both).await);
    wait_for("the gateways have left the first master", || connections(&setup.servers[0]) == 0);
}

/// Without `min-replicas-to-write` the first master would continue to grant for about a second, until the sentinels
/// announce the second master. These grants would be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_replicas_bounds_lost_grants_in_a_failover() {
    let Some(setup) = SentinelSetup::start() else { return };
    for (setting, value) in [("min-replicas-max-lag", 3600), ("min-replicas-to-write", 1)] {
        let mut first = setup.servers[0].connection();
        cmd("CONFIG").arg("SET").arg(setting).arg(value).exec(&mut first).expect("set");
    }
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    let load = Load::start(both);
    setup.fail_over();
    let away = wait_until_shared(both, &setup.servers[1]).await;
    let tally = load.stop(both).await;
    print_outage("failover by command, min-replicas-to-write 1", away, &tally);
    assert!(tally.known + 20 >= tally.granted, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_master_is_replaced_for_good() {
    let Some(setup) = SentinelSetup::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule().replace("2s", "3s"))));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    let load = Load::start(both);
    setup.servers[0].signal("STOP");
    let away = wait_until_shared(both, &setup.servers[1]).await;
    print_outage("master hangs", away, &load.stop(both).await);
    setup.servers[0].signal("CONT");
    for _ in 0..100 {
        let permits = [remaining(&ask(both[0]).await), remaining(&ask(both[1]).await)];
        assert!(matches!(permits, [Some(first), Some(second)] if first == second + 1), "{permits:?}");
    }
    wait_for("the gateways have left the first master", || connections(&setup.servers[0]) == 0);
}

/// One sentinel names a replica as the master, and another one hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_or_hung_sentinel_is_ignored() {
    let Some(setup) = SentinelSetup::start() else { return };
    let Some(replica) = RedisServer::start_with(None, &["--replicaof", "127.0.0.1", "1"]) else { return };
    let Some(wrong) = setup.start_sentinel("wrong", replica.port, "") else { return };
    setup.sentinels[0].signal("STOP");
    for first in [&wrong, &setup.sentinels[0]] {
        let store = setup.rule().replace("urls: [", &format!("urls: ['{}', ", first.url()));
        let gateways = [(); 2].map(|()| TestGateway::start(&rules(&store)));
        wait_until_shared([&gateways[0], &gateways[1]], &setup.servers[0]).await;
    }
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut replica.connection()).expect("keys");
    assert_eq!(keys, Vec::<String>::new());
    let store = format!("{{ sentinel: {{ urls: ['{}'], master: {MASTER} }} }}", wrong.url());
    let gateway = TestGateway::start(&rules(&store));
    assert_eq!(ask(&gateway).await.status(), 200);
    let address = format!("127.0.0.1:{}", replica.port);
    gateway.until_config_has(&[&format!("{address}: not a master, although a sentinel says so")]).await;
}

/// The users have exactly the permissions of `docs/redis.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_master_have_separate_passwords() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md")).expect("the page");
    let of_sentinel =
        "resetchannels &+switch-master &+promoted-slave +hello +subscribe +sentinel|get-master-addr-by-name";
    assert!(page.contains(of_sentinel) && page.contains("`+role`"));
    let acl = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER tidegate on ")).expect("permissions");
    let Some(redis) = RedisServer::start() else { return };
    let is_known = |word: &&str| redis.supports_functions() || !["+fcall", "+function|load"].contains(word);
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "gate", "on", "+role"]).arg(acl.split(' ').filter(is_known).collect::<Vec<_>>());
    user.exec(&mut redis.connection()).expect("a user");
    let files = Authority::new();
    let setup = SentinelSetup::without_sentinels(redis);
    let Some(sentinel) = setup.start_sentinel("0", setup.servers[0].port, "") else { return };
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "gate", "on", ">hunter2"]).arg(of_sentinel.split(' ').collect::<Vec<_>>());
    user.exec(&mut sentinel.connection()).expect("a user");
    let at = format!("urls: ['redis://gate@127.0.0.1:{}'], master: {MASTER}", sentinel.port);
    let password_file = files.path("password");
    let store = format!(
        "{{ timeout: 2s, user: gate, password: SECRET, sentinel: {{ {at}, password_file: '{password_file}' }} }}"
    );
    files.write("password", "hunter3");
    let gateway = TestGateway::start(&rules(&store));
    assert_eq!(ask(&gateway).await.status(), 200);
    gateway.until_config_has(&["no sentinel of 1 answers", "WRONGPASS"]).await;
    files.write("password", "hunter2\n");
    soon(async { while remaining(&ask(&gateway).await).is_none() {} }).await;
    let config = config(&gateway).await;
    assert!(!["hunter", "SECRET"].iter().any(|password| config.contains(password)), "{config}");
    let list: String = cmd("CLIENT").arg("LIST").query(&mut setup.servers[0].connection()).expect("a list");
    assert!(list.contains(" user=gate "), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_master_are_reachable_by_tls() {
    let ca = Authority::new();
    ca.sign("redis", &["127.0.0.1"]);
    let Some((redis, port)) = ca.redis("redis", "no") else { return };
    let sentinel_port = free_port();
    let file = |name| ca.path(name);
    let tls = format!(
        "tls-port {sentinel_port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no",
        file("redis.pem"),
        file("redis.key"),
        file("ca.pem")
    );
    let setup = SentinelSetup::without_sentinels(redis);
    let Some(_sentinel) = setup.start_sentinel("0", port, &tls) else { return };
    let at = |tls: &str| {
        let sentinel = format!("urls: ['rediss://127.0.0.1:{sentinel_port}'], master: {MASTER}");
        format!("{{ timeout: 2s, sentinel: {{ {sentinel} }}, tls: {tls} }}")
    };
    let gateway = TestGateway::start(&rules(&at(&format!("{{ ca: '{}' }}", file("ca.pem")))));
    soon(async { while remaining(&ask(&gateway).await).is_none() {} }).await;
    assert!(config(&gateway).await.contains(&format!(r#""master":"127.0.0.1:{port}""#)));
    let untrusting = TestGateway::start(&rules(&at("{}")));
    assert_eq!(ask(&untrusting).await.status(), 200);
    untrusting.until_config_has(&["no sentinel of 1 answers", "UnknownIssuer"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_of_all_sentinels_keeps_a_running_master() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    setup.sentinels.clear();
    for _ in 0..200 {
        assert!(remaining(&ask(&gateways[0]).await).is_some());
    }
    assert_eq!(gateways[0].counter("tidegate_store_up").await, 1);
    drop(setup.servers.remove(0));
    gateways[0].until_config_has(&["no sentinel of 3 answers: 127.0.0.1:"]).await;
    assert_eq!(ask(&gateways[0]).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_master_name_is_an_outage() {
    let Some(setup) = SentinelSetup::start() else { return };
    let store = setup.rule().replace(&format!("master: {MASTER}"), "master: unknown");
    let gateway = TestGateway::start(&rules(&store));
    assert_eq!(ask(&gateway).await.status(), 200);
    gateway.until_config_has(&["no sentinel knows a master called `unknown`"]).await;
}
