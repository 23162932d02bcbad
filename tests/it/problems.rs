//! The list of problems: `problems` of `GET /api/v1/status`, the exit code of `tidegate status`, and the dashboard.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::internals::ConfigInternals;
use tidegate::{Gateway, ListenAddress};

use crate::support::process::{RuleFile, output};
use crate::support::redis::{RedisServer, free_port};
use crate::support::tls::{Authority, listener};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const ECHO: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: all, match: { path: /** }, upstream: echo }]";

/// A gateway whose problems are read.
struct Watched {
    gateway: Option<Gateway>,
    admin: SocketAddr,
}

impl Watched {
    fn start(rules: &str) -> Self {
        let text = format!("listen: 127.0.0.1:0\n{rules}");
        Self::start_with(&text)
    }

    /// Starts a gateway with these rules, which checks its files every 5 ms.
    fn start_with(rules: &str) -> Self {
        let text = format!("admin: 127.0.0.1:0\n{rules}");
        let mut config = Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}"));
        config.set_certificate_check_interval(Duration::from_millis(5));
        let gateway = Gateway::start(config, 1).expect("a gateway");
        let admin = gateway.admin_address().and_then(ListenAddress::tcp).expect("an address");
        Self { gateway: Some(gateway), admin }
    }

    async fn get(&self, path: &str) -> Value {
        let request = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        serde_json::from_str(&Raw::connect(self.admin).await.ask(request).await.text()).expect("JSON")
    }

    /// Waits until the only problems have these kinds. Returns the problems.
    #[track_caller]
    fn until(&self, kinds: &[&str]) -> impl Future<Output = Vec<Value>> {
        soon(async move {
            loop {
                let problems = self.get("status").await["problems"].as_array().cloned().expect("a list");
                if problems.iter().map(|problem| problem["kind"].as_str().unwrap_or_default()).eq(kinds.iter().copied())
                {
                    return problems;
                }
                tokio::task::yield_now().await;
            }
        })
    }

    /// Runs `tidegate status`. Returns its exit code and its output.
    fn status(&self) -> (i32, String) {
        let run = output(&["status", "--admin", &self.admin.to_string()]);
        (run.status.code().expect("a code"), String::from_utf8(run.stdout).expect("text"))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let gateway = self.gateway.take().expect("a gateway");
        gateway.drain(Duration::from_millis(10)).expect("drained");
    }
}

fn text<'p>(problem: &'p Value, key: &str) -> &'p str {
    problem[key].as_str().unwrap_or_else(|| panic!("no {key} in {problem}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_gateway_has_no_problem() {
    let watched = Watched::start(ECHO);
    assert_eq!(watched.get("status").await["problems"], json!([]));
    let (code, out) = watched.status();
    assert_eq!((code, out.contains("\nproblems     0\n"), out.contains("PROBLEM")), (0, true, false), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_target_is_a_problem_with_a_time() {
    let rules = "upstreams:
  api: { targets: ['http://127.0.0.1:1', 'builtin:echo'], health: { path: /, interval: 100ms, fall: 1 } }
routes: [{ name: all, match: { path: /** }, upstream: api }]";
    let watched = Watched::start(rules);
    let problems = watched.until(&["target"]).await;
    assert_eq!(text(&problems[0], "subject"), "api/http://127.0.0.1:1");
    assert!(text(&problems[0], "message").starts_with("fails its health checks: "), "{problems:?}");
    let since = text(&problems[0], "since").to_owned();
    let (code, out) = watched.status();
    let line = out.lines().find(|line| line.starts_with("target")).unwrap_or_else(|| panic!("no problem in {out}"));
    assert_eq!((code, line.split_whitespace().nth(1)), (1, Some("api/http://127.0.0.1:1")), "{out}");
    assert_eq!(text(&watched.until(&["target"]).await[0], "since"), since, "the time stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_target_that_never_responds_is_a_problem() {
    let rules = "upstreams: { api: { targets: ['http://127.0.0.1:1'], retry: off } }
routes: [{ name: all, match: { path: /** }, upstream: api }]";
    let watched = Watched::start(rules);
    let address = watched.gateway.as_ref().expect("a gateway").addresses()[0].tcp().expect("a port");
    for _ in 0..5 {
        assert_eq!(watched.get("status").await["problems"], json!([]));
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(Raw::connect(address).await.ask(request).await.status(), 502);
    }
    let problems = watched.until(&["target"]).await;
    assert!(text(&problems[0], "message").contains("refused"), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_certificate_is_a_problem_until_it_is_renewed() {
    let authority = Authority::new();
    authority.sign_expired("api", &["api.example"]);
    let watched = Watched::start_with(&format!("listen: {}\n{ECHO}", listener(&authority, &["api"], "")));
    let problems = watched.until(&["certificate"]).await;
    assert_eq!(text(&problems[0], "subject"), authority.path("api.pem"));
    assert!(text(&problems[0], "message").starts_with("has expired at 2002-01-01T00:00:00Z"), "{problems:?}");
    assert_eq!(watched.status().0, 1);

    authority.write("api.key", "not a key");
    let unusable = |problems: &[Value]| problems.iter().any(|one| text(one, "message").contains("cannot be loaded"));
    let problems = watched.until(&["certificate", "certificate"]).await;
    assert!(unusable(&problems), "{problems:?}");
    authority.sign("api", &["api.example"]);
    watched.until(&[]).await;
    assert_eq!(watched.status().0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_revocation_lists_are_a_problem() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority.revoke("clients.crl", &[7], 2002);
    let auth =
        format!(", client_auth: {{ ca: '{}', crl: '{}' }}", authority.path("ca.pem"), authority.path("clients.crl"));
    let watched = Watched::start_with(&format!("listen: {}\n{ECHO}", listener(&authority, &["api"], &auth)));
    let problems = watched.until(&["crl"]).await;
    assert!(text(&problems[0], "message").ends_with("stays in use"), "{problems:?}");
    authority.revoke("clients.crl", &[7], 2101);
    watched.until(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_expires_soon_in_the_last_third_of_its_time() {
    let authority = Authority::new();
    let days =
        |days: i64| rcgen::date_time_ymd(1970, 1, 1) + (now() + Duration::from_secs(days.unsigned_abs() * 86_400));
    let sign = |name: &str, valid: u64, left: i64| {
        let (start, end) = (days(left) - Duration::from_secs(valid * 86_400), days(left));
        authority.sign_with(name, &[&format!("{name}.example")], |params| {
            (params.not_before, params.not_after) = (start, end);
        });
    };
    sign("week", 6, 3);
    sign("year", 365, 13);
    sign("late", 6, 1);
    let watched =
        Watched::start_with(&format!("listen: {}\n{ECHO}", listener(&authority, &["week", "year", "late"], "")));
    let problems = watched.until(&["certificate", "certificate"]).await;
    let subjects: Vec<_> = problems.iter().map(|problem| text(problem, "subject")).collect();
    assert_eq!(subjects, [authority.path("late.pem"), authority.path("year.pem")], "{problems:?}");
    assert!(text(&problems[0], "message").starts_with("expires soon"), "{problems:?}");
}

/// Returns the time since the Unix epoch.
fn now() -> Duration {
    Duration::from_millis(tidegate_limit::clock::wall_time().as_millis())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_key_files_are_problems() {
    let keys = RuleFile::new("problem-keys", "k-one: { id: one }\n");
    let jwks = RuleFile::new(
        "problem-jwks",
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
    );
    let identities = format!(
        "identities: {{ keys: {{ header: X-Api-Key, file: {} }}, jwt: {{ jwks: '{}', issuer: 'https://id.test/', audience: api }} }}",
        keys.path(),
        jwks.path()
    );
    let watched =
        Watched::start(&format!("{identities}\n{}", ECHO.replace("upstream: echo", "upstream: echo, require: keys")));
    watched.until(&[]).await;
    std::fs::write(keys.path(), "k-one: [").expect("written");
    std::fs::write(jwks.path(), "{}").expect("written");
    let problems = watched.until(&["api_keys", "key_set"]).await;
    assert_eq!(text(&problems[0], "subject"), keys.path());
    assert!(text(&problems[1], "message").ends_with("is not a JSON Web Key Set"), "{problems:?}");
    std::fs::write(keys.path(), "k-one: { id: one }\n").expect("written");
    watched.until(&["key_set"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_key_set_is_a_problem() {
    let identities =
        "identities: { jwt: { jwks: 'http://127.0.0.1:1/jwks', issuer: 'https://id.test/', audience: api } }";
    let watched =
        Watched::start(&format!("{identities}\n{}", ECHO.replace("upstream: echo", "upstream: echo, require: jwt")));
    let problems = watched.until(&["key_set"]).await;
    assert_eq!(text(&problems[0], "subject"), "https://id.test/");
    assert!(text(&problems[0], "message").contains("its tokens are rejected with 503: "), "{problems:?}");
    assert_eq!(watched.status().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_store_is_a_problem() {
    let Some(redis) = RedisServer::start() else { return };
    let watched = Watched::start(&format!("store: {}\n{ECHO}", redis.rule()));
    watched.until(&[]).await;
    let mut connection = redis.connection();
    let mut set = |key: &str, value: &str| {
        let () =
            deadpool_redis::redis::cmd("CONFIG").arg("SET").arg(key).arg(value).query(&mut connection).expect("set");
    };
    set("maxmemory", "1");
    let problems = watched.until(&["store"]).await;
    assert!(text(&problems[0], "message").contains("OOM"), "{problems:?}");
    assert_eq!(watched.status().0, 1);
    set("maxmemory", "0");
    watched.until(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clock_of_the_store_is_a_problem() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (library, offset) = (folder.join("problem-clock.so"), folder.join("problem-clock.micros"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos/stores/clock.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("a C compiler, which links Rust programs too").success());
    std::fs::write(&offset, (-60_000_000_i64).to_ne_bytes()).expect("written");
    let environment = [("LD_PRELOAD", library), ("REDIS_CLOCK", offset)];
    let Some(redis) = RedisServer::start_in_environment(free_port(), &[], &environment) else { return };
    let watched = Watched::start(&format!("store: {}\n{ECHO}", redis.rule()));
    let problems = watched.until(&["clock"]).await;
    assert_eq!(text(&problems[0], "subject"), redis.url());
    let message = text(&problems[0], "message");
    assert!(message.contains(" s behind the clock of this gateway"), "{message}");
}

/// The page shows the list at its top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_the_dashboard_have_the_problems() {
    let rules = "upstreams:
  api: { targets: ['http://127.0.0.1:1'], health: { path: /, interval: 100ms, fall: 1, panic: 0% } }
routes: [{ name: all, match: { path: /** }, upstream: api }]";
    let watched = Watched::start(rules);
    let mut client = Raw::connect(watched.admin).await;
    client.send("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(soon(client.head()).await.expect("a response").status(), 200);
    let event = soon(async {
        loop {
            let chunk = String::from_utf8(client.chunk().await.expect("an event")).expect("text");
            let data = chunk.split_once("\ndata: ").expect("data").1;
            let event: Value = serde_json::from_str(data.trim_end()).expect("JSON");
            if event["problem_count"] == 1 {
                return event;
            }
        }
    })
    .await;
    let problem = &event["problems"][0];
    assert_eq!((text(problem, "kind"), text(problem, "subject")), ("target", "api/http://127.0.0.1:1"));
}
