//! What goes wrong between a gateway and its Redis while decisions are under way. Nothing that may have run is sent again, and
//! everybody is told something in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Value, cmd, parse_redis_value};
use tidegate::clock::Stopwatch;
use tidegate::store::{Store, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::overall;
use crate::support::redis::{RedisServer, wait_a_little};

/// More permits than anybody takes.
const RATE: u64 = 1_000_000;

/// What remains of the bucket after one more permit was taken.
async fn take(store: &Store) -> Result<u32, StoreError> {
    let outcome = store.take(&[overall("bucket", RATE, 3_600_000, 1)]).await?;
    Ok(outcome.decisions[0].remaining)
}

/// How many permits are in use.
async fn used(store: &Store) -> u64 {
    for _ in 0..1_000 {
        if let Ok(outcome) = store.take(&[overall("bucket", RATE, 3_600_000, 0)]).await {
            return RATE - u64::from(outcome.decisions[0].remaining);
        }
        wait_a_little();
    }
    panic!("Redis is not asked again in ten seconds");
}

/// Clients that ask one request after the other, each, until they are told to end; they return what all were told.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Result<u32, StoreError>>>>,
}

impl Load {
    /// Returns once the first permit is granted.
    fn start(store: &Store) -> Self {
        let (is_over, granted) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let client = || {
            let (store, is_over, granted) = (store.clone(), Arc::clone(&is_over), Arc::clone(&granted));
            tokio::spawn(async move {
                let mut told = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    told.push(take(&store).await);
                    granted.fetch_or(told.last().is_some_and(Result::is_ok), Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
                told
            })
        };
        let clients = (0..16).map(|_| client()).collect();
        for _ in 0..1_000 {
            if granted.load(Ordering::Relaxed) {
                return Self { is_over, clients };
            }
            wait_a_little();
        }
        panic!("nothing is granted in ten seconds");
    }

    async fn end(self) -> Vec<Result<u32, StoreError>> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut told = Vec::new();
        for client in self.clients {
            told.extend(client.await.expect("a client"));
        }
        told
    }
}

/// So many permits were granted, and so many may have been.
fn counted(told: &[Result<u32, StoreError>]) -> (u64, u64) {
    let granted = told.iter().filter(|told| told.is_ok()).count() as u64;
    let unknown =
        told.iter().filter(|told| matches!(told, Err(StoreError::Timeout | StoreError::Broken))).count() as u64;
    (granted, unknown)
}

fn no_permit_twice(told: &[Result<u32, StoreError>]) {
    let mut remaining: Vec<u32> = told.iter().flatten().copied().collect();
    let granted = remaining.len();
    remaining.sort_unstable();
    remaining.dedup();
    assert_eq!(remaining.len(), granted, "two were granted the same permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_its_scripts_under_load_decides_every_request_once() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let load = Load::start(&store);
    for _ in 0..20 {
        wait_a_little();
        _ = cmd("FUNCTION").arg("FLUSH").exec(&mut redis);
        cmd("SCRIPT").arg("FLUSH").exec(&mut redis).expect("flushed");
    }
    let told = load.end().await;
    assert!(told.iter().all(Result::is_ok), "{:?}", told.iter().find(|told| told.is_err()));
    no_permit_twice(&told);
    assert_eq!(used(&store).await, told.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_call_no_functions_any_more_is_served_by_scripts_under_load() {
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
    let told = load.end().await;
    assert!(told.iter().all(Result::is_ok), "{:?}", told.iter().find(|told| told.is_err()));
    no_permit_twice(&told);
    assert_eq!(used(&store).await, told.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_in_the_middle_of_calls_has_none_of_them_sent_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let load = Load::start(&store);
    for _ in 0..20 {
        wait_a_little();
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut redis).expect("killed");
    }
    wait_a_little();
    let told = load.end().await;
    let ((granted, unknown), used) = (counted(&told), used(&store).await);
    no_permit_twice(&told);
    assert!(granted > 0 && (granted..=granted + unknown).contains(&used), "{used} of {granted} and {unknown}");
    assert!(!told.contains(&Err(StoreError::UnexpectedReply)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_stands_still_under_load_is_charged_at_most_once_for_each_request() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_millis(100));
    let load = Load::start(&store);
    for _ in 0..3 {
        wait_a_little();
        server.signal("STOP");
        // Longer than requests wait.
        for _ in 0..20 {
            wait_a_little();
        }
        server.signal("CONT");
        used(&store).await;
    }
    let told = load.end().await;
    let ((granted, unknown), used) = (counted(&told), used(&store).await);
    no_permit_twice(&told);
    assert!(unknown > 0 && (granted..=granted + unknown).contains(&used), "{used} of {granted} and {unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_in_the_middle_of_calls_and_starts_empty_decides_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, port) = (server.store_with_timeout(Duration::from_millis(500)), server.port);
    let load = Load::start(&store);
    wait_a_little();
    server.signal("KILL");
    drop(server);
    for _ in 0..20 {
        wait_a_little();
    }
    let Some(_server) = RedisServer::start_on(port) else { return };
    assert!(used(&store).await < RATE);
    let before = load.end().await;
    assert!(before.iter().any(Result::is_ok));
    assert!(before.contains(&Err(StoreError::Unreachable)) || before.contains(&Err(StoreError::Broken)));
    let (last, now) = (take(&store).await.expect("a decision"), take(&store).await);
    assert_eq!(now, Ok(last - 1));
}

/// All of them at once, on a Redis that does not answer: each is told so when its time is over, and none is charged that was not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_that_wait_for_a_redis_that_stands_still_are_all_told_in_time() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_millis(500));
    assert_eq!(used(&store).await, 0);
    server.signal("STOP");
    let (mut all, began) = (JoinSet::new(), Stopwatch::start());
    for _ in 0..10_000 {
        let store = store.clone();
        all.spawn(async move { take(&store).await });
    }
    let told = all.join_all().await;
    assert!(told.iter().all(|told| matches!(told, Err(StoreError::Timeout | StoreError::Unreachable))));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.signal("CONT");
    let charged = used(&store).await;
    assert!(charged <= 2 * 4_096, "{charged} were charged, more than two calls");
}

/// A Redis that says what it is told to whoever calls its function.
async fn redis_that_answers(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer));
        }
    });
    format!("redis://{address}")
}

async fn serve(mut stream: TcpStream, answer: &'static [u8]) -> std::io::Result<()> {
    let mut received = Vec::new();
    loop {
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
        while let Ok(Value::Array(words)) = parse_redis_value(&received) {
            let packed = Value::Array(words.clone());
            received.drain(..length(&packed));
            let words: Vec<String> = words.iter().map(text).collect();
            stream.write_all(&said(&words, answer)).await?;
        }
    }
}

fn said(words: &[String], answer: &[u8]) -> Vec<u8> {
    match (words[0].as_str(), words[1].as_str()) {
        ("HELLO", _) => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
        ("GET", _) => b"$6\r\nsecret\r\n".to_vec(),
        ("FCALL", "tidegate") => b"-ERR Function not found\r\n".to_vec(),
        ("FCALL", _) => answer.to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

fn text(word: &Value) -> String {
    let Value::BulkString(bytes) = word else { panic!("{word:?} is no word of a command") };
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many bytes a command has.
fn length(command: &Value) -> usize {
    let Value::Array(words) = command else { panic!("{command:?} is no command") };
    let head = |number: usize| number.to_string().len() + 3;
    let word = |word: &Value| match word {
        Value::BulkString(bytes) => head(bytes.len()) + bytes.len() + 2,
        _ => panic!("{word:?} is no word of a command"),
    };
    head(words.len()) + words.iter().map(word).sum::<usize>()
}

#[tokio::test]
async fn an_answer_that_is_none_of_the_scripts_is_an_error_and_grants_nothing() {
    let answers: [(&[u8], StoreError); 8] = [
        (b"*1\r\n-ERR in an array\r\n", StoreError::ErrorReply("ERR".into())),
        (b"*0\r\n", StoreError::UnexpectedReply),
        (b"$-1\r\n", StoreError::UnexpectedReply),
        (b"$5\r\nhello\r\n", StoreError::UnexpectedReply),
        (b":1\r\n", StoreError::UnexpectedReply),
        (b"-NOPERM this user may not\r\n", StoreError::ErrorReply("NOPERM".into())),
        (b"-ERR\r\n", StoreError::ErrorReply("ERR".into())),
        (b"what is this\r\n", StoreError::Broken),
    ];
    for (answer, error) in answers {
        let store = RedisServer::store_at(redis_that_answers(answer).await, Duration::from_secs(5));
        let said = String::from_utf8_lossy(answer);
        for _ in 0..2 {
            assert_eq!(take(&store).await, Err(error.clone()), "{said}");
        }
    }
}
