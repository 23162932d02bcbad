//! Faults between a store and its Redis while calls are in flight. The store never retries a call that may have run,
//! and each request gets a result in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Value, cmd, parse_redis_value};
use tidegate::{Store, StoreError};
use tidegate_limit::clock::Stopwatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::overall;
use crate::support::redis::{RedisServer, wait_a_little};

/// More permits than the tests take.
const RATE: u64 = 1_000_000;

/// Takes one permit. Returns the remaining permits.
async fn take(store: &Store) -> Result<u32, StoreError> {
    let outcome = store.take(&[overall("bucket", RATE, 3_600_000, 1)]).await?;
    Ok(outcome.decisions[0].remaining)
}

/// Returns the number of permits in use, as soon as the store decides again.
async fn used(store: &Store) -> u64 {
    for _ in 0..1_000 {
        if let Ok(outcome) = store.take(&[overall("bucket", RATE, 3_600_000, 0)]).await {
            return RATE - u64::from(outcome.decisions[0].remaining);
        }
        wait_a_little();
    }
    panic!("waited 10 s for a decision of Redis");
}

/// Clients that take permits one after the other until they are stopped.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Result<u32, StoreError>>>>,
}

impl Load {
    /// Starts the clients, and waits until the first permit is granted.
    fn start(store: &Store) -> Self {
        let (is_over, granted) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let client = || {
            let (store, is_over, granted) = (store.clone(), Arc::clone(&is_over), Arc::clone(&granted));
            tokio::spawn(async move {
                let mut results = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    results.push(take(&store).await);
                    granted.fetch_or(results.last().is_some_and(Result::is_ok), Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
                results
            })
        };
        let clients = (0..16).map(|_| client()).collect();
        for _ in 0..1_000 {
            if granted.load(Ordering::Relaxed) {
                return Self { is_over, clients };
            }
            wait_a_little();
        }
        panic!("waited 10 s for the first grant");
    }

    /// Stops the clients, and returns their results.
    async fn stop(self) -> Vec<Result<u32, StoreError>> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut results = Vec::new();
        for client in self.clients {
            results.extend(client.await.expect("a client"));
        }
        results
    }
}

/// Returns the number of granted permits, and of permits that may have been granted.
fn count_grants(results: &[Result<u32, StoreError>]) -> (u64, u64) {
    let granted = results.iter().filter(|result| result.is_ok()).count() as u64;
    let unknown =
        results.iter().filter(|result| matches!(result, Err(StoreError::Timeout | StoreError::Broken))).count() as u64;
    (granted, unknown)
}

fn assert_no_permit_granted_twice(results: &[Result<u32, StoreError>]) {
    let mut remaining: Vec<u32> = results.iter().flatten().copied().collect();
    let granted = remaining.len();
    remaining.sort_unstable();
    remaining.dedup();
    assert_eq!(remaining.len(), granted, "two requests got the same permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_flush_under_load_loses_no_decision() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let load = Load::start(&store);
    for _ in 0..20 {
        wait_a_little();
        _ = cmd("FUNCTION").arg("FLUSH").exec(&mut redis);
        cmd("SCRIPT").arg("FLUSH").exec(&mut redis).expect("flushed");
    }
    let results = load.stop().await;
    assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));
    assert_no_permit_granted_twice(&results);
    assert_eq!(used(&store).await, results.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_without_fcall_is_served_by_scripts() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    if cmd("FUNCTION").arg("LIST").exec(&mut redis).is_err() {
        return;
    }
    let load = Load::start(&store);
    for rule in ["-fcall", "+fcall", "-function", "-fcall"] {
        wait_a_little();
        cmd("ACL").arg(&["SETUSER", "default", rule]).exec(&mut redis).expect("a rule");
    }
    wait_a_little();
    let results = load.stop().await;
    assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));
    assert_no_permit_granted_twice(&results);
    assert_eq!(used(&store).await, results.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_broken_connection_are_not_retried() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let load = Load::start(&store);
    for _ in 0..20 {
        wait_a_little();
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut redis).expect("killed");
    }
    wait_a_little();
    let results = load.stop().await;
    let ((granted, unknown), used) = (count_grants(&results), used(&store).await);
    assert_no_permit_granted_twice(&results);
    assert!(granted > 0 && (granted..=granted + unknown).contains(&used), "{used} of {granted} and {unknown}");
    assert!(!results.contains(&Err(StoreError::UnexpectedReply)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_redis_charges_each_request_at_most_once() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_millis(100));
    let load = Load::start(&store);
    for _ in 0..3 {
        wait_a_little();
        server.signal("STOP");
        // Longer than the timeout.
        for _ in 0..20 {
            wait_a_little();
        }
        server.signal("CONT");
        used(&store).await;
    }
    let results = load.stop().await;
    let ((granted, unknown), used) = (count_grants(&results), used(&store).await);
    // Permits of requests that timed out are given back if the reply still comes, and may be granted again.
    assert!(unknown > 0 && (granted..=granted + unknown).contains(&used), "{used} of {granted} and {unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_restarted_empty_decides_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, port) = (server.store_with_timeout(Duration::from_secs(3)), server.port);
    let load = Load::start(&store);
    wait_a_little();
    server.signal("KILL");
    drop(server);
    for _ in 0..20 {
        wait_a_little();
    }
    let Some(_server) = RedisServer::start_on(port) else { return };
    assert!(used(&store).await < RATE);
    let before = load.stop().await;
    assert!(before.iter().any(Result::is_ok));
    assert!(before.contains(&Err(StoreError::Unreachable)) || before.contains(&Err(StoreError::Broken)));
    let (last, now) = (take(&store).await.expect("a decision"), take(&store).await);
    assert_eq!(now, Ok(last - 1));
}

/// Ten thousand requests to a Redis that hangs: each times out, and Redis charges the requests of two calls at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_hung_redis_time_out_together() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_millis(500));
    assert_eq!(used(&store).await, 0);
    server.signal("STOP");
    let (mut all, began) = (JoinSet::new(), Stopwatch::start());
    for _ in 0..10_000 {
        let store = store.clone();
        all.spawn(async move { take(&store).await });
    }
    let results = all.join_all().await;
    assert!(results.iter().all(|result| matches!(result, Err(StoreError::Timeout | StoreError::Unreachable))));
    // One after the other they would need more than an hour.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    server.signal("CONT");
    let charged = used(&store).await;
    assert!(charged <= 2 * 4_096, "{charged} requests were charged, more than in two calls");
}

/// Starts a server that answers each function call with this reply.
async fn redis_with_reply(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, reply));
        }
    });
    format!("redis://{address}")
}

async fn serve(mut stream: TcpStream, reply: &'static [u8]) -> std::io::Result<()> {
    let mut received = Vec::new();
    loop {
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
        while let Ok(Value::Array(words)) = parse_redis_value(&received) {
            let packed = Value::Array(words.clone());
            received.drain(..length(&packed));
            let words: Vec<String> = words.iter().map(text).collect();
            stream.write_all(&reply_to(&words, reply)).await?;
        }
    }
}

fn reply_to(words: &[String], reply: &[u8]) -> Vec<u8> {
    match (words[0].as_str(), words[1].as_str()) {
        ("HELLO", _) => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
        ("GET", _) => b"$6\r\nsecret\r\n".to_vec(),
        ("FCALL", "tidegate") => b"-ERR Function not found\r\n".to_vec(),
        ("FCALL", _) => reply.to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

fn text(word: &Value) -> String {
    let Value::BulkString(bytes) = word else { panic!("{word:?} is not an argument") };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the encoded length of a command.
fn length(command: &Value) -> usize {
    let Value::Array(words) = command else { panic!("{command:?} is not a command") };
    let head = |number: usize| number.to_string().len() + 3;
    let word = |word: &Value| match word {
        Value::BulkString(bytes) => head(bytes.len()) + bytes.len() + 2,
        _ => panic!("{word:?} is not an argument"),
    };
    head(words.len()) + words.iter().map(word).sum::<usize>()
}

#[tokio::test]
async fn invalid_reply_is_an_error_and_grants_nothing() {
    let replies: [(&[u8], StoreError); 8] = [
        (b"*1\r\n-ERR in an array\r\n", StoreError::ErrorReply("ERR".into())),
        (b"*0\r\n", StoreError::UnexpectedReply),
        (b"$-1\r\n", StoreError::UnexpectedReply),
        (b"$5\r\nhello\r\n", StoreError::UnexpectedReply),
        (b":1\r\n", StoreError::UnexpectedReply),
        (b"-NOPERM this user may not\r\n", StoreError::ErrorReply("NOPERM".into())),
        (b"-ERR\r\n", StoreError::ErrorReply("ERR".into())),
        (b"what is this\r\n", StoreError::Broken),
    ];
    for (reply, error) in replies {
        let store = RedisServer::store_at(redis_with_reply(reply).await, Duration::from_secs(5));
        let text = String::from_utf8_lossy(reply);
        for _ in 0..2 {
            assert_eq!(take(&store).await, Err(error.clone()), "{text}");
        }
    }
}
