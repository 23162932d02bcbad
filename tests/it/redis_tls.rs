//! Connections to Redis by TLS, with a password from a file, and by a Unix socket. An invalid certificate is an outage
//! with a cause, and the gateway sends no plaintext.

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

/// Returns rules with a limit that rejects all requests without the store.
fn rules(store: &str) -> String {
    format!(
        "store: {{ timeout: 2s, {store} }}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\n\
         routes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: OVERALL, rate: 1000000, interval: 1h, on_store_failure: deny }}\n"
    )
}

fn trusting(port: u16, ca: &Authority) -> String {
    format!("url: 'rediss://127.0.0.1:{port}', tls: {{ ca: '{}' }}", ca.path("ca.pem"))
}

/// Returns `true` if the store decides a request.
async fn is_decided(gateway: &TestGateway) -> bool {
    gateway.get("/", "").await.status() == 200
}

/// Checks that no request is admitted, and that the admin interface shows the cause.
async fn assert_outage(store: &str, cause: &str) {
    let gateway = TestGateway::start(&rules(store));
    assert_eq!(gateway.get("/", "").await.status(), 503);
    gateway.until_config_has(&[cause]).await;
    assert_eq!(gateway.get("/", "").await.status(), 503);
}

/// Starts a proxy to a Redis that records the bytes of its clients. Returns its port and the bytes of each connection.
async fn record(redis: u16) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
    let (port, received) = (listener.local_addr().expect("an address").port(), Arc::new(Mutex::new(Vec::new())));
    let all = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let number = all.lock().len();
            all.lock().push(Vec::new());
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let (mut from, mut to) = client.into_split();
                let (mut replies, mut redis) = TcpStream::connect((LOOPBACK, redis)).await.expect("Redis").into_split();
                let back = tokio::spawn(async move { tokio::io::copy(&mut replies, &mut to).await });
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
    (port, received)
}

/// Checks that all bytes are in TLS records, and that no secret is readable.
fn assert_no_plaintext(sent: &[u8]) {
    let mut rest = sent;
    while let [kind, 3, _, high, low, ..] = *rest {
        assert!((20..=23).contains(&kind), "a record of kind {kind}");
        rest = rest.get(5 + usize::from(u16::from_be_bytes([high, low]))..).unwrap_or_default();
    }
    assert!(rest.len() < 5, "not a TLS record: {}", String::from_utf8_lossy(rest));
    for word in ["HELLO", "AUTH", "FCALL", "hunter2", "tidegate"] {
        assert!(!sent.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_sends_no_plaintext_to_a_tls_store() {
    let ca = Authority::new();
    ca.sign("redis", &[LOOPBACK, "localhost"]);
    let Some((redis, port)) = ca.redis("redis", "no") else { return };
    cmd("CONFIG").arg(&["SET", "requirepass", "hunter2"]).exec(&mut redis.connection()).expect("set");
    for host in [LOOPBACK, "localhost"] {
        let (port, received) = record(port).await;
        let store = format!("url: 'rediss://:hunter2@{host}:{port}/2', tls: {{ ca: '{}' }}", ca.path("ca.pem"));
        let gateway = TestGateway::start(&rules(&store));
        assert!(is_decided(&gateway).await, "{host}: {}", gateway.config().await);
        assert!(!gateway.admin_get("/api/v1/config").await.text().contains("hunter2"));
        let received = received.lock().clone();
        assert!(!received.is_empty());
        received.iter().for_each(|sent| assert_no_plaintext(sent));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_redis_certificate_is_an_outage() {
    let (ca, other) = (Authority::new(), Authority::new());
    ca.sign("redis", &[LOOPBACK]);
    ca.sign("elsewhere", &["redis.example", "127.0.0.2"]);
    ca.sign_expired("expired", &[LOOPBACK]);
    for (certificate, trusted, cause) in [
        ("redis", &other, "UnknownIssuer"),
        ("elsewhere", &ca, "not valid for name"),
        ("expired", &ca, "certificate expired"),
    ] {
        let Some((_redis, port)) = ca.redis(certificate, "no") else { return };
        let (port, received) = record(port).await;
        assert_outage(&trusting(port, trusted), cause).await;
        let received = received.lock().clone();
        assert!(!received.is_empty());
        for sent in &received {
            assert_no_plaintext(sent);
            assert!(sent.len() < 1_000, "more than the start of a handshake: {} bytes", sent.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_authority_is_not_trusted() {
    let ca = Authority::new();
    ca.sign("redis", &[LOOPBACK]);
    let Some((redis, port)) = ca.redis("redis", "no") else { return };
    assert_outage(&format!("url: 'rediss://127.0.0.1:{port}'"), "UnknownIssuer").await;
    // There is no fallback to plaintext for a Redis without TLS.
    let without_tls =
        format!("url: 'rediss://:hunter2@127.0.0.1:{}', tls: {{ ca: '{}' }}", redis.port, ca.path("ca.pem"));
    let gateway = TestGateway::start(&rules(&without_tls));
    assert_eq!(gateway.get("/", "").await.status(), 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_presents_its_certificate_to_redis() {
    let (ca, other) = (Authority::new(), Authority::new());
    ca.sign("redis", &[LOOPBACK]);
    ca.sign("me", &[]);
    other.sign("me", &[]);
    let Some((_redis, port)) = ca.redis("redis", "yes") else { return };
    let with_certificate_of = |authority: &Authority| {
        let [cert, key] = ["me.pem", "me.key"].map(|file| authority.path(file));
        format!(
            "url: 'rediss://127.0.0.1:{port}', tls: {{ ca: '{}', cert: '{cert}', key: '{key}' }}",
            ca.path("ca.pem")
        )
    };
    let gateway = TestGateway::start(&rules(&with_certificate_of(&ca)));
    assert!(is_decided(&gateway).await, "{}", gateway.config().await);
    assert_outage(&trusting(port, &ca), "CertificateRequired").await;
    assert_outage(&with_certificate_of(&other), "UnknownCA").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_redis_certificate_ends_the_outage() {
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
async fn changed_password_file_is_used() {
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
async fn redis_is_reachable_by_unix_socket() {
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
    let is_gateway = |line: &str| line.contains(&socket) && line.contains(" db=3 ") && line.contains(" user=gate ");
    assert!(list.lines().any(is_gateway), "{list}");
}
