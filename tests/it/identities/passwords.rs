//! Users with passwords: what passes, what is rejected, and what guesses cost.

use std::cell::Cell;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::future::join_all;

use crate::support::gateway::TestGateway;
use crate::support::issuer::replace_file;
use crate::support::process::{RuleFile, output};
use crate::support::wire::soon;

use super::{rules, start};

fn users(name: &str, cost: u32) -> RuleFile {
    let line = |user: &str, password: &str| format!("{user}:{}\n", bcrypt::hash(password, cost).expect("a hash"));
    RuleFile::new(&format!("users-{name}"), &["# users\n", &line("ann", "pass:word"), &line("ben", "x")].concat())
}

fn basic(file: &RuleFile) -> String {
    format!("basic: {{ file: {}, realm: staff pages }}", file.path())
}

fn field(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

async fn status(gateway: &TestGateway, user: &str, password: &str) -> u16 {
    gateway.get("/", &field(user, password)).await.status()
}

#[tokio::test]
async fn passwords_are_verified() {
    let file = users("verified", 4);
    let gateway = start(&basic(&file), "require: basic, request_headers: { set: { X-User: '{basic:user}' } }");
    for _ in 0..2 {
        let response = gateway.get("/", &field("ann", "pass:word")).await;
        assert_eq!(response.status(), 200, "{}", response.text());
        assert!(response.text().contains("\"x-user\": \"ann\""), "{}", response.text());
    }
    let challenge = "Basic realm=\"staff pages\", charset=\"UTF-8\"";
    for (user, password) in
        [("ann", "x"), ("ann", "pass"), ("ben", "pass:word"), ("eve", "x"), ("Ann", "pass:word"), ("ann", "")]
    {
        let response = gateway.get("/", &field(user, password)).await;
        assert_eq!((response.status(), response.field("www-authenticate").as_deref()), (401, Some(challenge)));
        assert!(response.text().contains("the user or the password is wrong"), "{}", response.text());
    }
    let missing = gateway.get("/", "").await;
    assert_eq!((missing.status(), missing.field("www-authenticate").as_deref()), (401, Some(challenge)));
    assert_eq!(gateway.get("/", "Authorization: Basic !\r\n").await.status(), 401);
    assert_eq!(gateway.get("/", "Authorization: Bearer x\r\n").await.status(), 401);
    let two = format!("{}{}", field("ann", "pass:word"), field("ben", "x"));
    assert_eq!(gateway.get("/", &two).await.status(), 401);
    assert_eq!(gateway.counter("tidegate_identities_total{kind=\"basic\",result=\"valid\"}").await, 2);
    assert_eq!(gateway.counter("tidegate_identities_total{kind=\"basic\",result=\"wrong_password\"}").await, 6);
}

#[tokio::test]
async fn users_are_restricted_by_name() {
    let file = users("named", 4);
    let gateway = start(&basic(&file), "require: { basic: { user: [ann, eve] } }");
    assert_eq!((status(&gateway, "ann", "pass:word").await, status(&gateway, "ben", "x").await), (200, 403));
}

/// A removed user must not stay known for the life of a recent check.
#[tokio::test]
async fn changed_file_ends_recent_checks() {
    let file = users("changed", 4);
    let gateway = start(&basic(&file), "require: basic");
    assert_eq!(status(&gateway, "ann", "pass:word").await, 200);
    replace_file(file.path(), &format!("ben:{}\n", bcrypt::hash("y", 4).expect("a hash")));
    soon(async { while status(&gateway, "ann", "pass:word").await != 401 {} }).await;
    assert_eq!((status(&gateway, "ben", "x").await, status(&gateway, "ben", "y").await), (401, 200));
    // A file with errors changes nothing.
    replace_file(file.path(), "ben");
    let failed = "tidegate_identity_loads_total{kind=\"basic\",outcome=\"failed\"}";
    soon(async { while gateway.counter(failed).await != 1 {} }).await;
    assert_eq!(status(&gateway, "ben", "y").await, 200);
}

/// The comparisons must not occupy the worker that serves other requests. A known password needs none.
#[tokio::test]
async fn guesses_do_not_delay_other_clients() {
    let file = users("guessed", 12);
    let text = rules(&basic(&file), "require: basic").replace("match: { path: /** }", "match: { path: /private }");
    let text = text.replace("require: basic }]", "require: basic }, { name: open, match: {}, upstream: echo }]");
    let gateway = TestGateway::start(&text);
    let private = |user: &str, password: &str| {
        let (gateway, field) = (&gateway, field(user, password));
        async move { gateway.get("/private", &field).await.status() }
    };
    soon(async { while private("ann", "pass:word").await != 200 {} }).await;
    let (compared, busy, end) = (Cell::new(0), Cell::new(0), Cell::new(None));
    let guess = async |number: u32| {
        for attempt in 0.. {
            match private("eve", &format!("guess {number} {attempt}")).await {
                401 => compared.set(compared.get() + 1),
                // A client has at most four comparisons at a time.
                status => busy.set(busy.get() + u32::from(status == 503)),
            }
            if end.get().is_some() && compared.get() >= 4 && busy.get() >= 1 {
                break;
            }
        }
    };
    let others = async {
        for _ in 0..20 {
            assert_eq!(gateway.get("/", "").await.status(), 200);
            assert_eq!(private("ann", "pass:word").await, 200);
        }
        end.set(Some(compared.get()));
    };
    tokio::join!(join_all((0..16).map(guess)), others);
    // If comparisons occupied the worker, each of the 40 other requests would wait for one or more.
    let compared = end.get().expect("the other requests have ended");
    assert!(compared < 20, "{compared} comparisons delayed other requests");
}

/// A limit by address rejects guesses before they cost a comparison.
#[tokio::test]
async fn limit_by_address_bounds_guesses() {
    let file = users("bounded", 4);
    let route = "require: basic, limits: [{ name: ip, mode: PER_CLIENT, client: ip, rate: 3, interval: 1h }]";
    let gateway = start(&basic(&file), route);
    let mut statuses = Vec::new();
    for guess in ["a", "b", "c", "d", "pass:word"] {
        statuses.push(status(&gateway, "ann", guess).await);
    }
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    assert_eq!(gateway.counter("tidegate_identities_total{kind=\"basic\",result=\"wrong_password\"}").await, 3);
}

#[test]
fn passwords_are_in_no_message() {
    let file = users("explained", 4);
    let text = format!("listen: 127.0.0.1:0\n{}", rules(&basic(&file), "require: basic"));
    let rules = RuleFile::new("explain-password", &text);
    let explain = |password: &str| {
        let fields = field("ann", password);
        let output = output(&["explain", "-c", rules.path(), "GET", "http://a.test/", "-H", fields.trim_end()]);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert!(
            !text.contains(password) && !text.contains(&BASE64_STANDARD.encode(format!("ann:{password}"))),
            "{text}"
        );
        text
    };
    let known = explain("pass:word");
    assert!(known.contains("  the password of `ann`\n"), "{known}");
    let wrong = explain("hunter2hunter2");
    assert!(wrong.contains("answered with 401: the user or the password is wrong"), "{wrong}");
}
