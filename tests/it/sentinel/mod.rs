//! A store whose master sentinels know: they are asked, followed and doubted.

mod cut_off;
mod load;
mod names;

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate::clock::Stopwatch;

use self::load::{Load, Tally};
use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, free_port};
use crate::support::sentinel::{MASTER, Watched, wait_for};
use crate::support::tls::Authority;
use crate::support::wire::raw::Message;
use crate::support::wire::soon;

/// The rate of the limit that clients are told of.
const RATE: u32 = 1_000_000;

/// Limits of all algorithms, which are decided alone while the store is away.
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

/// What remains by the store; nothing if somebody else decided.
fn remaining(answer: &Message) -> Option<u32> {
    let field = answer.field("ratelimit")?;
    let (_, rest) = field.split_once("r=")?;
    rest.split(';').next()?.parse().ok()
}

async fn config(gateway: &TestGateway) -> String {
    gateway.config().await
}

/// The connections to this server that are neither ours nor those of sentinels and replicas.
fn connections(server: &RedisServer) -> usize {
    let mut redis = server.connection();
    let own: u64 = cmd("CLIENT").arg("ID").query(&mut redis).expect("a number");
    let list: String = cmd("CLIENT").arg(&["LIST", "TYPE", "NORMAL"]).query(&mut redis).expect("a list");
    let is_others = |line: &&str| !line.starts_with(&format!("id={own} ")) && !line.contains(" name=sentinel-");
    list.lines().filter(is_others).count()
}

/// Asks until both have their decisions from this server; nobody is told of an error. Returns how long they had none from any.
async fn shared_again(gateways: [&TestGateway; 2], server: &RedisServer) -> Duration {
    let (since, mut away) = (Stopwatch::start(), None);
    loop {
        let mut told = Vec::new();
        for gateway in gateways {
            let answer = ask(gateway).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            told.push(remaining(&answer));
        }
        if told.contains(&None) {
            away.get_or_insert(since.elapsed());
        }
        let config = config(gateways[0]).await;
        let master = config.split_once(r#""master":""#).and_then(|(_, rest)| rest.split('"').next());
        let is_there = master.is_some_and(|master| master.ends_with(&format!(":{}", server.port)));
        if is_there
            && let [Some(first), Some(second)] = told[..]
            && first == second + 1
        {
            return away.map_or(Duration::ZERO, |away| since.elapsed() - away);
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{told:?} {config}");
    }
}

/// Most of the time is the sentinels' own, and whatever a master had not told its replica is forgotten.
#[expect(clippy::print_stdout, reason = "what it costs is worth knowing, and nothing to fail by")]
fn say(after: &str, away: Duration, load: &Tally) {
    println!("{after}: the shared limit was away for {} ms, {load:?}", away.as_millis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_decides_that_a_sentinel_names_who_is_there() {
    let Some(watched) = Watched::start() else { return };
    let urls = format!("'redis://127.0.0.1:{}', {}", free_port(), watched.urls());
    let store = format!("{{ timeout: 2s, database: 3, sentinel: {{ urls: [{urls}], master: {MASTER} }} }}");
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&store)));
    shared_again([&gateways[0], &gateways[1]], &watched.servers[0]).await;
    let mut redis = watched.servers[0].connection();
    cmd("SELECT").arg(3).exec(&mut redis).expect("selected");
    let keys: Vec<String> = cmd("KEYS").arg("{tidegate:all}:l:*").query(&mut redis).expect("keys");
    assert_eq!(keys.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_without_an_error() {
    let Some(mut watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    let load = Load::on(both);
    drop(watched.servers.remove(0));
    let away = shared_again(both, &watched.servers[0]).await;
    say("master killed", away, &load.end(both).await);
}

/// A machine is gone that had both; the sentinel on it, which was asked first and is followed, hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_with_a_sentinel_is_replaced_without_an_error() {
    let Some(mut watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    let load = Load::on(both);
    watched.sentinels[0].signal("STOP");
    drop(watched.servers.remove(0));
    let away = shared_again(both, &watched.servers[0]).await;
    say("master and sentinel gone", away, &load.end(both).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_replaced_and_lives_on_is_left_by_everybody() {
    let Some(watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    assert_ne!(connections(&watched.servers[0]), 0);
    let load = Load::on(both);
    watched.fail_over();
    let away = shared_again(both, &watched.servers[1]).await;
    say("failover asked for", away, &load.end(both).await);
    wait_for("the first master is left", || connections(&watched.servers[0]) == 0);
}

/// Without `min-replicas-to-write`, the first master would go on granting until the sentinels have heard of the second, for a
/// second or so, and nobody would know of that any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_may_not_grant_without_a_replica_forgets_next_to_nothing_when_it_is_replaced() {
    let Some(watched) = Watched::start() else { return };
    for (setting, value) in [("min-replicas-max-lag", 3600), ("min-replicas-to-write", 1)] {
        let mut first = watched.servers[0].connection();
        cmd("CONFIG").arg("SET").arg(setting).arg(value).exec(&mut first).expect("set");
    }
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    let load = Load::on(both);
    watched.fail_over();
    let away = shared_again(both, &watched.servers[1]).await;
    let tally = load.end(both).await;
    say("failover asked for, min-replicas-to-write 1", away, &tally);
    assert!(tally.known + 20 >= tally.granted, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_replaced_and_not_asked_again_when_it_goes_on() {
    let Some(watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule().replace("2s", "200ms"))));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    let load = Load::on(both);
    watched.servers[0].signal("STOP");
    let away = shared_again(both, &watched.servers[1]).await;
    say("master hangs", away, &load.end(both).await);
    watched.servers[0].signal("CONT");
    for _ in 0..100 {
        let told = [remaining(&ask(both[0]).await), remaining(&ask(both[1]).await)];
        assert!(matches!(told, [Some(first), Some(second)] if first == second + 1), "{told:?}");
    }
    wait_for("the first master is left", || connections(&watched.servers[0]) == 0);
}

/// It takes for the master what is a replica; and another does not answer at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_lies_or_hangs_does_no_harm() {
    let Some(watched) = Watched::start() else { return };
    let Some(replica) = RedisServer::start_with(None, &["--replicaof", "127.0.0.1", "1"]) else { return };
    let Some(liar) = watched.sentinel("liar", replica.port, "") else { return };
    watched.sentinels[0].signal("STOP");
    for first in [&liar, &watched.sentinels[0]] {
        let store = watched.rule().replace("urls: [", &format!("urls: ['{}', ", first.url()));
        let gateways = [(); 2].map(|()| TestGateway::start(&rules(&store)));
        shared_again([&gateways[0], &gateways[1]], &watched.servers[0]).await;
    }
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut replica.connection()).expect("keys");
    assert_eq!(keys, Vec::<String>::new());
    let store = format!("{{ sentinel: {{ urls: ['{}'], master: {MASTER} }} }}", liar.url());
    let gateway = TestGateway::start(&rules(&store));
    assert_eq!(ask(&gateway).await.status(), 200);
    let place = format!("127.0.0.1:{}", replica.port);
    gateway.until_config_has(&[&format!("{place}: not a master, although a sentinel says so")]).await;
}

/// The users have the permissions of the page, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_master_are_told_passwords_of_their_own() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md")).expect("the page");
    let of_sentinel =
        "resetchannels &+switch-master &+promoted-slave +hello +subscribe +sentinel|get-master-addr-by-name";
    assert!(page.contains(of_sentinel) && page.contains("`+role`"));
    let acl = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER tidegate on ")).expect("permissions");
    let Some(redis) = RedisServer::start() else { return };
    let is_known = |word: &&str| redis.knows_functions() || !["+fcall", "+function|load"].contains(word);
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "gate", "on", "+role"]).arg(acl.split(' ').filter(is_known).collect::<Vec<_>>());
    user.exec(&mut redis.connection()).expect("a user");
    let files = Authority::new();
    let watched = Watched::of(redis);
    let Some(sentinel) = watched.sentinel("0", watched.servers[0].port, "") else { return };
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
    let list: String = cmd("CLIENT").arg("LIST").query(&mut watched.servers[0].connection()).expect("a list");
    assert!(list.contains(" user=gate "), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_master_are_reached_by_tls() {
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
    let watched = Watched::of(redis);
    let Some(_sentinel) = watched.sentinel("0", port, &tls) else { return };
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
async fn sentinels_that_are_all_away_change_nothing_while_the_master_is_there() {
    let Some(mut watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    watched.sentinels.clear();
    for _ in 0..200 {
        assert!(remaining(&ask(&gateways[0]).await).is_some());
    }
    assert_eq!(gateways[0].counter("tidegate_store_up").await, 1);
    drop(watched.servers.remove(0));
    gateways[0].until_config_has(&["no sentinel of 3 answers: 127.0.0.1:"]).await;
    assert_eq!(ask(&gateways[0]).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_no_sentinel_knows_is_an_outage_that_says_so() {
    let Some(watched) = Watched::start() else { return };
    let store = watched.rule().replace(&format!("master: {MASTER}"), "master: nobody");
    let gateway = TestGateway::start(&rules(&store));
    assert_eq!(ask(&gateway).await.status(), 200);
    gateway.until_config_has(&["no sentinel knows a master called `nobody`"]).await;
}
