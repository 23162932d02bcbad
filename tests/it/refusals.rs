//! A Redis that is reachable and refuses calls: gateways report its error, and decide as in any other outage.

use std::io::BufRead;

use deadpool_redis::redis::{Connection, cmd};

use crate::support::gateway::{TestGateway, get};
use crate::support::process::{Program, RuleFile, tidegate};
use crate::support::redis::{RedisServer, supports_functions};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// The permissions of the user `gate` at first: more than a gateway needs.
const ALL: &str = "on >secret resetkeys ~* +@all";

/// Changes the permissions of the user `gate`.
fn permit(redis: &mut Connection, rules: &str) {
    cmd("ACL").arg("SETUSER").arg("gate").arg(rules.split(' ').collect::<Vec<_>>()).exec(redis).expect("an ACL");
}

fn set_memory(redis: &mut Connection, bytes: &str) {
    cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(redis).expect("set");
}

/// Returns rules with a limit of ten in an hour. The gateway logs in as `gate`.
fn rules(redis: &RedisServer, store: &str, limits: &str) -> String {
    format!(
        "store: {{ url: 'redis://gate:secret@127.0.0.1:{}', timeout: 5s, {store} }}\n\
         upstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  \
         - {{ name: all, match: {{ path: /** }}, upstream: echo, limits: [{limits}] }}\n",
        redis.port
    )
}

const LIMIT: &str = "{ name: l, mode: PER_CLIENT, client: header:k, rate: 10, interval: 1h }";

async fn granted(gateway: &TestGateway, client: &str, requests: u32) -> u32 {
    let mut granted = 0;
    for _ in 0..requests {
        granted += u32::from(gateway.get("/", &format!("k: {client}\r\n")).await.status() == 200);
    }
    granted
}

async fn is_up(gateway: &TestGateway) -> bool {
    gateway.counter("tidegate_store_up").await == 1
}

/// Regression test: the store was up in all reports while Redis refused every decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_decisions_are_an_outage_with_the_error() {
    let Some(redis) = RedisServer::start() else { return };
    let mut control = redis.connection();
    permit(&mut control, ALL);
    let gateway = TestGateway::start(&rules(&redis, "fail_readiness: true", LIMIT));
    soon(async { while gateway.get("/", "k: a\r\n").await.field("ratelimit").is_none() {} }).await;
    let ready = async || gateway.admin_get("/readyz").await.status();
    assert_eq!(ready().await, 200);
    // Redis 6.2 has no FCALL.
    let without_scripts = if supports_functions() { "-fcall -evalsha" } else { "-evalsha" };
    for (number, (rules, causes)) in [
        (without_scripts, &["NOPERM", "'evalsha'"][..]),
        ("-time", &["TIME: "]),
        ("-set", &["SET: "]),
        ("resetkeys ~tidegate:*", &["NOPERM"]),
        ("maxmemory", &["SET, SETRANGE: ", "OOM"]),
    ]
    .into_iter()
    .enumerate()
    {
        match rules {
            "maxmemory" => set_memory(&mut control, "1"),
            rules => permit(&mut control, rules),
        }
        let client = format!("client-{number}");
        assert_eq!(granted(&gateway, &client, 12).await, 10, "{rules}: one gateway has all permits");
        gateway.until_config_has(&[&[r#""state":"down""#], causes].concat()).await;
        assert_eq!((is_up(&gateway).await, ready().await), (false, 503), "{rules}");
        permit(&mut control, ALL);
        set_memory(&mut control, "0");
        soon(async { while !is_up(&gateway).await {} }).await;
        assert_eq!(ready().await, 200, "{rules}");
        // The local grants are charged.
        let response = soon(async {
            loop {
                let response = gateway.get("/", &format!("k: {client}\r\n")).await;
                if response.field("ratelimit").is_some() {
                    break response;
                }
            }
        });
        assert_eq!(response.await.status(), 429, "{rules}");
    }
}

/// Regression test: a gateway whose user lacks the keys logged nothing.
#[test]
fn refusing_redis_is_logged_once_until_it_recovers() {
    let Some(redis) = RedisServer::start() else { return };
    let mut control = redis.connection();
    permit(&mut control, "on >secret ~tidegate:* +@all");
    let rules = rules(&redis, "", LIMIT);
    let file = RuleFile::new("refused", &format!("listen: 127.0.0.1:0\nadmin: off\n{rules}"));
    let mut program = Program::start(&mut tidegate(&["run", "-c", file.path()]));
    let mut log = String::new();
    let mut read_until = |program: &mut Program, text: &str| {
        while !log.contains(text) {
            assert_ne!(program.stderr.read_line(&mut log).expect("text"), 0, "{log}");
        }
        log.clone()
    };
    let line = read_until(&mut program, "store refuses calls, retrying");
    assert!(line.contains("NOPERM") && line.contains("key"), "{line}");
    permit(&mut control, "resetkeys ~{tidegate:* ~tidegate:key_secret -zadd");
    let lines = read_until(&mut program, "store has recovered");
    assert_eq!(lines.matches("store refuses calls").count(), 1, "{lines}");
    let lines = read_until(&mut program, "that some features need");
    assert!(lines.contains("ZADD: "), "{lines}");
    program.signal("TERM");
    assert!(program.wait_for_exit().0.success());
}

/// A gateway that cannot announce itself keeps the number of gateways, or has the configured one from the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_gateways_share_the_rate() {
    let Some(redis) = RedisServer::start() else { return };
    let mut control = redis.connection();
    permit(&mut control, ALL);
    let gateways = [(); 3].map(|()| TestGateway::start(&rules(&redis, "", LIMIT)));
    for gateway in &gateways {
        soon(async { while gateway.counter("tidegate_gateways").await != 3 {} }).await;
    }
    permit(&mut control, "resetkeys ~tidegate:*");
    let mut total = 0;
    for gateway in &gateways {
        total += granted(gateway, "a", 12).await;
    }
    assert_eq!(total, 9);
    let late = TestGateway::start(&rules(&redis, "min_gateways: 5", LIMIT));
    assert_eq!(granted(&late, "b", 12).await, 2);
}

/// Regression test: the error of a decision repeated its binary arguments, which the client library cannot parse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_command_is_an_outage_with_its_name() {
    let settings = ["--appendonly", "no", "--rename-command", "EVALSHA", "", "--rename-command", "FCALL", ""];
    // Redis 6.2 has no FCALL.
    let settings = if supports_functions() { &settings[..] } else { &settings[..5] };
    let Some(redis) = RedisServer::start_with(None, settings) else { return };
    permit(&mut redis.connection(), ALL);
    let gateway = TestGateway::start(&rules(&redis, "", LIMIT));
    gateway.until_config_has(&[r#""state":"down""#, "unknown command ", "EVALSHA"]).await;
    assert_eq!(granted(&gateway, "a", 12).await, 10);
    assert_eq!(gateway.counter(r#"tidegate_store_failures_total{cause="broken"}"#).await, 0);
}

/// The user may not use the key of one limit. Other limits are exact, and the store is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_key_of_one_limit_is_no_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let mut control = redis.connection();
    permit(&mut control, "on >secret ~{tidegate:* ~tidegate:key_secret +@all");
    let mails = "  - { name: mails, match: { path: /mails, headers: { m: '1' } }, upstream: echo, limits: \
                 [{ name: m, key: mails, mode: OVERALL, rate: 3, interval: 1h, on_store_failure: deny }] }\n";
    let rules = rules(&redis, "", LIMIT).replace("routes:\n", &format!("routes:\n{mails}"));
    let gateway = TestGateway::start(&rules);
    soon(async { while gateway.get("/", "k: a\r\n").await.field("ratelimit").is_none() {} }).await;
    for _ in 0..5 {
        let response = get(&mut Raw::connect(gateway.address).await, "/mails", "m: 1\r\n").await;
        assert_eq!(response.status(), 503, "{}", response.text());
        assert!(gateway.get("/", "k: b\r\n").await.field("ratelimit").is_some());
    }
    assert!(is_up(&gateway).await);
    assert!(gateway.counter(r#"tidegate_store_failures_total{cause="denied"}"#).await >= 5);
}
