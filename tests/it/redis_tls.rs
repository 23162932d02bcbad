//! How a Redis is reached: by TLS with certificates made here, with a password from a file, by a Unix socket. Whatever is wrong
//! with a certificate is an outage with a reason, and nothing is said in clear text.

use std::sync::Arc;

use deadpool_redis::redis::cmd;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::tls::Authority;
use crate::support::wire::soon;

const LOOPBACK: &str = "127.0.0.1";

/// A limit that nobody passes without the store.
fn rules(store: &str) -> String {
    format!(
        "store: {{ timeout: 2s, {store} }}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: OVERALL, rate: 1000000, interval: 1h, on_store_failure: deny }}\n"
    )
}

fn trusting(port: u16, ca: &Authority) -> String {
    format!("url: 'rediss://127.0.0.1:{port}', tls: {{ ca: '{}' }}", ca.path("ca.pem"))
}

/// Is a request decided by the store?
async fn is_decided(gateway: &TestGateway) -> bool {
    gateway.get("/", "").await.status() == 200
}

/// No request passes, and operators are told why.
async fn assert_outage(store: &str, why: &str) {
    let gateway = TestGateway::start(&rules(store));
    assert_eq!(gateway.get("/", "").await.status(), 503);
    gateway.until_config_has(&[why]).await;
    assert_eq!(gateway.get("/", "").await.status(), 503);
}

/// Passes on what is said to a Redis, and keeps what its clients say.
async fn tap(redis: u16) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
    let (port, heard) = (listener.local_addr().expect("an address").port(), Arc::new(Mutex::new(Vec::new())));
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let number = all.lock().len();
            all.lock().push(Vec::new());
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let (mut from, mut to) = client.into_split();
                let (mut answers, mut redis) = TcpStream::connect((LOOPBACK, redis)).await.expect("Redis").into_split();
                let back = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut to).await });
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes).await {
                    all.lock()[number].extend_from_slice(&bytes[..count]);
                    if redis.write_all(&bytes[..count]).await.is_err() {
                        break;
                    }
                }
                back.abort();
            });
        }
    });
    (port, heard)
}

/// Everything is in records of TLS; what they hold is told by their first byte.
fn assert_no_clear_text(said: &[u8]) {
    let mut rest = said;
    while let [kind, 3, _, high, low, ..] = *rest {
        assert!((20..=23).contains(&kind), "a record of kind {kind}");
        rest = rest.get(5 + usize::from(u16::from_be_bytes([high, low]))..).unwrap_or_default();
    }
    assert!(rest.len() < 5, "no record: {}", String::from_utf8_lossy(rest));
    for word in ["HELLO", "AUTH", "FCALL", "hunter2", "tidegate"] {
        assert!(!said.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_decides_over_tls_and_says_nothing_in_clear_text() {
    let ca = Authority::new();
    ca.sign("redis", &[LOOPBACK, "localhost"]);
    let Some((redis, port)) = ca.redis("redis", "no") else { return };
    cmd("CONFIG").arg(&["SET", "requirepass", "hunter2"]).exec(&mut redis.connection()).expect("set");
    for host in [LOOPBACK, "localhost"] {
        let (port, heard) = tap(port).await;
        let store = format!("url: 'rediss://:hunter2@{host}:{port}/2', tls: {{ ca: '{}' }}", ca.path("ca.pem"));
        let gateway = TestGateway::start(&rules(&store));
        assert!(is_decided(&gateway).await, "{host}: {}", gateway.config().await);
        assert!(!gateway.admin_get("/api/v1/config").await.text().contains("hunter2"));
        let heard = heard.lock().clone();
        assert!(!heard.is_empty());
        heard.iter().for_each(|said| assert_no_clear_text(said));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_wrong_is_an_outage_and_redis_is_told_nothing() {
    let (ca, other) = (Authority::new(), Authority::new());
    ca.sign("redis", &[LOOPBACK]);
    ca.sign("elsewhere", &["redis.example", "127.0.0.2"]);
    ca.sign_expired("expired", &[LOOPBACK]);
    for (certificate, trusted, why) in [
        ("redis", &other, "UnknownIssuer"),
        ("elsewhere", &ca, "not valid for name"),
        ("expired", &ca, "certificate expired"),
    ] {
        let Some((_redis, port)) = ca.redis(certificate, "no") else { return };
        let (port, heard) = tap(port).await;
        assert_outage(&trusting(port, trusted), why).await;
        let heard = heard.lock().clone();
        assert!(!heard.is_empty());
        for said in &heard {
            assert_no_clear_text(said);
            assert!(said.len() < 1_000, "more than the beginning of a handshake: {} bytes", said.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_neither_the_file_nor_the_system_names_is_not_trusted() {
    let ca = Authority::new();
    ca.sign("redis", &[LOOPBACK]);
    let Some((redis, port)) = ca.redis("redis", "no") else { return };
    assert_outage(&format!("url: 'rediss://127.0.0.1:{port}'"), "UnknownIssuer").await;
    // Who speaks no TLS at all is not spoken to without it.
    let clear = format!("url: 'rediss://:hunter2@127.0.0.1:{}', tls: {{ ca: '{}' }}", redis.port, ca.path("ca.pem"));
    let gateway = TestGateway::start(&rules(&clear));
    assert_eq!(gateway.get("/", "").await.status(), 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_wants_a_certificate_is_shown_one() {
    let (ca, other) = (Authority::new(), Authority::new());
    ca.sign("redis", &[LOOPBACK]);
    ca.sign("me", &[]);
    other.sign("me", &[]);
    let Some((_redis, port)) = ca.redis("redis", "yes") else { return };
    let as_signed_by = |authority: &Authority| {
        let [cert, key] = ["me.pem", "me.key"].map(|file| authority.path(file));
        format!(
            "url: 'rediss://127.0.0.1:{port}', tls: {{ ca: '{}', cert: '{cert}', key: '{key}' }}",
            ca.path("ca.pem")
        )
    };
    let gateway = TestGateway::start(&rules(&as_signed_by(&ca)));
    assert!(is_decided(&gateway).await, "{}", gateway.config().await);
    assert_outage(&trusting(port, &ca), "CertificateRequired").await;
    assert_outage(&as_signed_by(&other), "UnknownCA").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_ends_the_outage_of_the_expired_one() {
    let ca = Authority::new();
    ca.sign_expired("redis", &[LOOPBACK]);
    let Some((redis, port)) = ca.redis("redis", "no") else { return };
    let gateway = TestGateway::start(&rules(&trusting(port, &ca)));
    assert!(!is_decided(&gateway).await);
    ca.sign("redis", &[LOOPBACK]);
    let file = ca.path("redis.pem");
    let key = ca.path("redis.key");
    let renew = ["SET", "tls-cert-file", &file, "tls-key-file", &key];
    cmd("CONFIG").arg(&renew).exec(&mut redis.connection()).expect("renewed");
    soon(async { while !is_decided(&gateway).await {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_changes_in_redis_and_in_its_file_is_used_under_load() {
    let Some(redis) = RedisServer::start() else { return };
    let (mut connection, files) = (redis.connection(), Authority::new());
    let mut change = |password: &str| {
        cmd("CONFIG").arg(&["SET", "requirepass", password]).exec(&mut connection).expect("set");
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut connection).expect("killed");
    };
    change("hunter2");
    files.write("password", "hunter2\r\n");
    let file = files.path("password");
    let store = format!("url: 'redis://default@127.0.0.1:{}', password_file: '{file}'", redis.port);
    let gateway = TestGateway::start(&rules(&store));
    assert!(is_decided(&gateway).await, "{}", gateway.config().await);
    change("hunter3");
    soon(async { while is_decided(&gateway).await {} }).await;
    gateway.until_config_has(&["WRONGPASS"]).await;
    files.write("password", "hunter3");
    soon(async { while !is_decided(&gateway).await {} }).await;
    std::fs::remove_file(&file).expect("removed");
    change("hunter4");
    let gone = format!("password_file `{file}` cannot be read");
    gateway.until_config_has(&[&gone]).await;
    assert!(!gateway.admin_get("/api/v1/config").await.text().contains("hunter"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_is_reached_by_its_unix_socket() {
    let files = Authority::new();
    let socket = format!("{}/redis-{}.sock", std::env::temp_dir().display(), std::process::id());
    let Some(redis) = RedisServer::start_with(None, &["--unixsocket", &socket]) else { return };
    cmd("ACL")
        .arg(&["SETUSER", "gate", "on", ">hunter2", "~*", "+@all"])
        .exec(&mut redis.connection())
        .expect("a user");
    files.write("password", "hunter2\n");
    let password_file = files.path("password");
    let store = format!("url: 'unix://{socket}?user=gate&db=3', password_file: '{password_file}'");
    let gateway = TestGateway::start(&rules(&store));
    assert!(is_decided(&gateway).await, "{}", gateway.config().await);
    let list: String = cmd("CLIENT").arg("LIST").query(&mut redis.connection()).expect("a list");
    let is_it = |line: &str| line.contains(&socket) && line.contains(" db=3 ") && line.contains(" user=gate ");
    assert!(list.lines().any(is_it), "{list}");
}
