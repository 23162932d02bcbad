//! A gateway that takes the place of another one, and sockets that systemd opened.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile, address, output, tidegate};
use crate::support::wire::raw::Raw;
use crate::support::wire::{soon, until};

fn rules(listen: &str, admin: &str) -> String {
    format!(
        "listen: {listen}
admin: {admin}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes: [{{ name: all, match: {{}}, upstream: echo }}]\n"
    )
}

/// A path that is gone with its owner.
struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> Self {
        // Short: the system takes 107 bytes at most.
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}.sock", std::process::id()));
        _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

// === clients that count ===

/// Clients that ask until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    /// Requests that were answered.
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

impl Load {
    fn start(gateway: SocketAddr, admin: SocketAddr) -> Self {
        let mut load = Self { stop: Arc::default(), answered: Arc::default(), clients: Vec::new() };
        for _ in 0..3 {
            load.spawn(async move |stop, answered| {
                stay(gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", stop, answered).await
            });
            let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
            load.spawn(async move |stop, answered| stay(gateway, post, stop, answered).await);
            let once = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            load.spawn(async move |stop, answered| stay(gateway, once, stop, answered).await);
        }
        load.spawn(async move |stop, answered| stay_on_http2(gateway, stop, answered).await);
        let operators = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        load.spawn(async move |stop, answered| stay(admin, operators, stop, answered).await);
        load
    }

    fn spawn<F: Future<Output = io::Result<()>> + Send + 'static>(
        &mut self,
        client: impl FnOnce(Arc<AtomicBool>, Arc<AtomicU64>) -> F,
    ) {
        self.clients.push(tokio::spawn(client(Arc::clone(&self.stop), Arc::clone(&self.answered))));
    }

    /// Waits until more requests have been answered.
    async fn goes_on(&self) {
        let before = self.answered.load(Relaxed);
        until(|| self.answered.load(Relaxed) > before + 200 || self.clients.iter().any(JoinHandle::is_finished)).await;
    }

    /// How many requests were answered, and what went wrong.
    async fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Relaxed);
        let mut failures = Vec::new();
        for client in self.clients {
            failures.extend(soon(client).await.expect("no panic").err().map(|error| format!("{error}")));
        }
        (self.answered.load(Relaxed), failures)
    }
}

/// Sends the same request again and again, on one connection for as long as it is kept.
async fn stay(address: SocketAddr, request: &str, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) -> io::Result<()> {
    while !stop.load(Relaxed) {
        let mut client = Raw::new(TcpStream::connect(address).await?);
        loop {
            client.stream.write_all(request.as_bytes()).await?;
            let answer = client.try_message(false, true).await.map_err(|error| failed(request, &error))?;
            if answer.status() != 200 {
                return Err(io::Error::other(answer.start));
            }
            answered.fetch_add(1, Relaxed);
            if answer.field("connection").is_some_and(|value| value == "close") || stop.load(Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

fn failed(request: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{error} after {request:?}"))
}

/// The same over HTTP/2, by a library.
async fn stay_on_http2(address: SocketAddr, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) -> io::Result<()> {
    while !stop.load(Relaxed) {
        let io = TokioIo::new(TcpStream::connect(address).await?);
        let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (mut sender, connection) = connected.map_err(io::Error::other)?;
        let serving = tokio::spawn(connection);
        while !stop.load(Relaxed) && sender.ready().await.is_ok() {
            let request = Request::get(format!("http://{address}/")).body(Full::<Bytes>::default()).expect("a request");
            match sender.send_request(request).await {
                Ok(answer) if answer.status() == 200 => {
                    answer.into_body().collect().await.map_err(io::Error::other)?;
                    answered.fetch_add(1, Relaxed);
                }
                Ok(answer) => return Err(io::Error::other(answer.status().to_string())),
                Err(error) if is_unsent(&error) => break,
                Err(error) => return Err(io::Error::other(format!("{error:?}"))),
            }
        }
        serving.abort();
    }
    Ok(())
}

/// Whether the connection was told to go away before the request was on it: RFC 9113 section 6.8 has it sent on another.
fn is_unsent(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let told = cause
        .is_some_and(|cause| cause.is_go_away() && cause.is_remote() && cause.reason() == Some(h2::Reason::NO_ERROR));
    told || error.is_canceled()
}

// === a successor ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_successors_take_over_under_load_and_no_request_fails() {
    let socket = Socket::new("handover");
    let arguments = |workers| ["--handover", socket.path(), "--drain-timeout", "10", "--workers", workers];
    let first = RuleFile::new("first", &rules("127.0.0.1:0", "127.0.0.1:0"));
    let (mut program, gateway, admin) = Program::run(&first, &arguments("2"));
    let next = RuleFile::new("next", &rules(&gateway.to_string(), &admin.to_string()));
    let load = Load::start(gateway, admin);
    for swap in 0..20 {
        load.goes_on().await;
        // Fewer workers than before serve all sockets, and more have some of their own.
        let (successor, ..) = Program::run(&next, &arguments(["1", "3", "2"][swap % 3]));
        let (status, log) = std::mem::replace(&mut program, successor).end();
        assert!(status.success() && log.contains("a successor serves"), "{log}");
    }
    load.goes_on().await;
    let (answered, failures) = load.end().await;
    assert!(failures.is_empty(), "of {answered} requests failed: {failures:#?}");

    program.signal("TERM");
    let (status, log) = program.end();
    assert!(status.success(), "{log}");
    assert!(!socket.0.exists(), "the last one removes the socket");
}

#[tokio::test]
async fn a_successor_that_does_not_start_leaves_everything_as_it_was() {
    let socket = Socket::new("failing");
    let first = RuleFile::new("staying", &rules("127.0.0.1:0", "127.0.0.1:0"));
    let (program, gateway, admin) = Program::run(&first, &["--handover", socket.path()]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let occupied = TcpListener::bind(&taken);
    let failing = RuleFile::new("failing", &rules(&gateway.to_string(), &taken));
    let run = output(&["run", "-c", failing.path(), "--handover", socket.path()]);
    drop(occupied);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert_eq!(get(&mut Raw::connect(gateway).await, "/", "").await.status(), 200);
    assert_eq!(get(&mut Raw::connect(admin).await, "/readyz", "").await.status(), 200);

    // And the next one may take over.
    let next = RuleFile::new("succeeding", &rules(&gateway.to_string(), &admin.to_string()));
    let (successor, ..) = Program::run(&next, &["--handover", socket.path()]);
    let (status, log) = program.end();
    assert!(status.success() && log.contains("this gateway serves on"), "{log}");
    assert_eq!(get(&mut Raw::connect(gateway).await, "/", "").await.status(), 200);
    drop(successor);
}

#[test]
fn a_socket_of_something_else_is_left_alone() {
    let file = RuleFile::new("elsewhere", &rules("127.0.0.1:0", "127.0.0.1:0"));
    let socket = Socket::new("elsewhere");
    std::fs::write(&socket.0, "precious").expect("written");
    let run = output(&["run", "-c", file.path(), "--handover", socket.path()]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert_eq!(std::fs::read_to_string(&socket.0).expect("a file"), "precious");

    std::fs::remove_file(&socket.0).expect("removed");
    let other = UnixListener::bind(&socket.0).expect("a socket");
    let speaking =
        std::thread::spawn(move || io::Write::write_all(&mut other.accept().expect("one").0, b"+OK hello\r\n"));
    let run = output(&["run", "-c", file.path(), "--handover", socket.path()]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("`--handover`") && said.contains("another version"), "{said}");
    assert!(socket.0.exists());
    _ = speaking.join();
}

// === systemd ===

/// Starts a gateway as systemd starts a service that its sockets activate.
fn activated(file: &RuleFile, listen: &TcpListener, admin: &TcpListener) -> Command {
    let descriptor = |socket: &TcpListener| Stdio::from(OwnedFd::from(socket.try_clone().expect("a copy")));
    let mut shell = Command::new("sh");
    let passed = "exec 3<&0 4<&1 </dev/null >&2; LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" run --workers 2 -c \"$1\"";
    shell.args(["-c", passed, env!("CARGO_BIN_EXE_tidegate"), file.path()]);
    shell.stdin(descriptor(listen)).stdout(descriptor(admin)).stderr(Stdio::piped());
    shell
}

fn listeners() -> (TcpListener, TcpListener, SocketAddr, SocketAddr) {
    let one = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (listen, admin) = (one(), one());
    let (gateway, operators) = (listen.local_addr().expect("an address"), admin.local_addr().expect("an address"));
    (listen, admin, gateway, operators)
}

#[tokio::test]
async fn sockets_of_systemd_are_served_and_stay_open_between_two_services() {
    let (listen, admin, gateway, operators) = listeners();
    let file = RuleFile::new("activated", &rules(&gateway.to_string(), &operators.to_string()));
    for _ in 0..2 {
        // It has come before there is anybody to serve it.
        let mut client = Raw::connect(gateway).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut service = activated(&file, &listen, &admin).spawn().expect("a service");
        assert_eq!(soon(client.answer(false)).await.status(), 200);
        assert_eq!(get(&mut Raw::connect(operators).await, "/healthz", "").await.status(), 200);
        service.kill().expect("killed");
        service.wait().expect("an end");
    }
}

#[test]
fn a_socket_of_systemd_that_no_entry_names_is_told() {
    let (listen, admin, gateway, operators) = listeners();
    let file = RuleFile::new("unclaimed", &rules(&gateway.to_string(), "127.0.0.1:0"));
    let mut service = activated(&file, &listen, &admin).spawn().expect("a service");
    let mut said = String::new();
    service.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(service.wait().expect("an end").code(), Some(2), "{said}");
    let told = format!("systemd passes a socket on {operators}, which no entry of `listen` or `admin` names");
    assert!(said.contains(&told), "{said}");
}

#[test]
fn systemd_is_told_when_the_gateway_serves_and_when_it_ends() {
    let socket = Socket::new("notify");
    let systemd = UnixDatagram::bind(&socket.0).expect("a socket");
    systemd.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
    let file = RuleFile::new("notify", &rules("127.0.0.1:0", "127.0.0.1:0"));
    let mut program = Program::start(tidegate(&["run", "-c", file.path()]).env("NOTIFY_SOCKET", socket.path()));
    let state = || {
        let mut buffer = [0; 64];
        let length = systemd.recv(&mut buffer).expect("a state");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(state(), "READY=1");
    address(&mut program.stderr, "listening on http://");
    program.signal("TERM");
    assert_eq!(state(), "STOPPING=1");
    assert!(program.end().0.success());
}
