//! Handovers between gateways, and sockets that systemd opens.

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

/// The path of a socket. Dropping it removes the file.
pub struct Socket(PathBuf);

impl Socket {
    pub fn new(name: &str) -> Self {
        // Short, because a path of a Unix socket has at most 107 bytes.
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}.sock", std::process::id()));
        _ = std::fs::remove_file(&path);
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

// === load ===

/// Clients that send requests until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    /// The number of answered requests.
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

impl Load {
    fn start(gateway: SocketAddr, admin: SocketAddr) -> Self {
        let mut load = Self { stop: Arc::default(), answered: Arc::default(), clients: Vec::new() };
        for _ in 0..3 {
            load.spawn(async move |stop, answered| {
                repeat_http1(gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", stop, answered).await
            });
            let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
            load.spawn(async move |stop, answered| repeat_http1(gateway, post, stop, answered).await);
            let once = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            load.spawn(async move |stop, answered| repeat_http1(gateway, once, stop, answered).await);
        }
        load.spawn(async move |stop, answered| repeat_http2(gateway, stop, answered).await);
        let operators = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        load.spawn(async move |stop, answered| repeat_http1(admin, operators, stop, answered).await);
        load
    }

    fn spawn<F: Future<Output = io::Result<()>> + Send + 'static>(
        &mut self,
        client: impl FnOnce(Arc<AtomicBool>, Arc<AtomicU64>) -> F,
    ) {
        self.clients.push(tokio::spawn(client(Arc::clone(&self.stop), Arc::clone(&self.answered))));
    }

    /// Waits until 200 more requests have been answered, or a client has failed.
    async fn wait_for_progress(&self) {
        let before = self.answered.load(Relaxed);
        until(|| self.answered.load(Relaxed) > before + 200 || self.clients.iter().any(JoinHandle::is_finished)).await;
    }

    /// Stops the clients. Returns the number of answered requests, and the errors.
    async fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Relaxed);
        let mut failures = Vec::new();
        for client in self.clients {
            failures.extend(soon(client).await.expect("no panic").err().map(|error| format!("{error}")));
        }
        (self.answered.load(Relaxed), failures)
    }
}

/// Repeats a request until `stop`. Reconnects only if the gateway closes the connection.
async fn repeat_http1(
    address: SocketAddr,
    request: &str,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> io::Result<()> {
    while !stop.load(Relaxed) {
        let mut client = Raw::new(TcpStream::connect(address).await?);
        loop {
            client.stream.write_all(request.as_bytes()).await?;
            let response = client.try_message(false, true).await.map_err(|error| failed(request, &error))?;
            if response.status() != 200 {
                return Err(io::Error::other(response.start));
            }
            answered.fetch_add(1, Relaxed);
            if response.field("connection").is_some_and(|value| value == "close") || stop.load(Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

fn failed(request: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{error} after {request:?}"))
}

/// Repeats a request over HTTP/2 until `stop`, with the client of hyper.
async fn repeat_http2(address: SocketAddr, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) -> io::Result<()> {
    while !stop.load(Relaxed) {
        let io = TokioIo::new(TcpStream::connect(address).await?);
        let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (mut sender, connection) = connected.map_err(io::Error::other)?;
        let serving = tokio::spawn(connection);
        while !stop.load(Relaxed) && sender.ready().await.is_ok() {
            let request = Request::get(format!("http://{address}/")).body(Full::<Bytes>::default()).expect("a request");
            match sender.send_request(request).await {
                Ok(response) if response.status() == 200 => {
                    response.into_body().collect().await.map_err(io::Error::other)?;
                    answered.fetch_add(1, Relaxed);
                }
                Ok(response) => return Err(io::Error::other(response.status().to_string())),
                Err(error) if is_unsent(&error) => break,
                Err(error) => return Err(io::Error::other(format!("{error:?}"))),
            }
        }
        serving.abort();
    }
    Ok(())
}

/// Returns `true` if a GOAWAY preceded the request, which the client may send again (RFC 9113 section 6.8).
fn is_unsent(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let is_goaway = cause
        .is_some_and(|cause| cause.is_go_away() && cause.is_remote() && cause.reason() == Some(h2::Reason::NO_ERROR));
    is_goaway || error.is_canceled()
}

// === successors ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_handovers_under_load_fail_no_request() {
    let socket = Socket::new("handover");
    let arguments = |workers| ["--handover", socket.path(), "--drain-timeout", "10", "--workers", workers];
    let first = RuleFile::new("first", &rules("127.0.0.1:0", "127.0.0.1:0"));
    let (mut program, gateway, admin) = Program::run(&first, &arguments("2"));
    let next = RuleFile::new("next", &rules(&gateway.to_string(), &admin.to_string()));
    let load = Load::start(gateway, admin);
    for swap in 0..20 {
        load.wait_for_progress().await;
        // Both fewer and more workers than before must serve all sockets.
        let (successor, ..) = Program::run(&next, &arguments(["1", "3", "2"][swap % 3]));
        let (status, log) = std::mem::replace(&mut program, successor).wait_for_exit();
        assert!(status.success() && log.contains("successor serves"), "{log}");
    }
    load.wait_for_progress().await;
    let (answered, failures) = load.stop().await;
    assert!(failures.is_empty(), "{answered} requests succeeded, but some failed: {failures:#?}");

    program.signal("TERM");
    let (status, log) = program.wait_for_exit();
    assert!(status.success(), "{log}");
    assert!(!socket.0.exists(), "the last gateway removes the socket");
}

#[tokio::test]
async fn gateway_serves_on_when_its_successor_fails() {
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

    // Another successor can take over.
    let next = RuleFile::new("succeeding", &rules(&gateway.to_string(), &admin.to_string()));
    let (successor, ..) = Program::run(&next, &["--handover", socket.path()]);
    let (status, log) = program.wait_for_exit();
    assert!(status.success() && log.contains("continuing to serve"), "{log}");
    assert_eq!(get(&mut Raw::connect(gateway).await, "/", "").await.status(), 200);
    drop(successor);
}

#[test]
fn handover_rejects_a_foreign_file_or_socket() {
    let file = RuleFile::new("elsewhere", &rules("127.0.0.1:0", "127.0.0.1:0"));
    let socket = Socket::new("elsewhere");
    std::fs::write(&socket.0, "precious").expect("written");
    let run = output(&["run", "-c", file.path(), "--handover", socket.path()]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert_eq!(std::fs::read_to_string(&socket.0).expect("a file"), "precious");

    std::fs::remove_file(&socket.0).expect("removed");
    let other = UnixListener::bind(&socket.0).expect("a socket");
    let greeter =
        std::thread::spawn(move || io::Write::write_all(&mut other.accept().expect("one").0, b"+OK hello\r\n"));
    let run = output(&["run", "-c", file.path(), "--handover", socket.path()]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(log.contains("`--handover`") && log.contains("another version"), "{log}");
    assert!(socket.0.exists());
    _ = greeter.join();
}

// === systemd ===

/// Returns a command that passes sockets to a gateway as systemd does.
fn socket_activated(file: &RuleFile, listen: &TcpListener, admin: &TcpListener) -> Command {
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
async fn systemd_sockets_survive_a_service_restart() {
    let (listen, admin, gateway, operators) = listeners();
    let file = RuleFile::new("activated", &rules(&gateway.to_string(), &operators.to_string()));
    for _ in 0..2 {
        // The client connects before a service runs.
        let mut client = Raw::connect(gateway).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut service = socket_activated(&file, &listen, &admin).spawn().expect("a service");
        assert_eq!(soon(client.response(false)).await.status(), 200);
        assert_eq!(get(&mut Raw::connect(operators).await, "/healthz", "").await.status(), 200);
        service.kill().expect("killed");
        service.wait().expect("an exit status");
    }
}

#[test]
fn unlisted_systemd_socket_is_an_error() {
    let (listen, admin, gateway, operators) = listeners();
    let file = RuleFile::new("unclaimed", &rules(&gateway.to_string(), "127.0.0.1:0"));
    let mut service = socket_activated(&file, &listen, &admin).spawn().expect("a service");
    let mut log = String::new();
    service.stderr.take().expect("a pipe").read_to_string(&mut log).expect("text");
    assert_eq!(service.wait().expect("an exit status").code(), Some(2), "{log}");
    let error =
        format!("systemd passed a socket on {operators}, but `listen`, `service` and `admin` do not have this address");
    assert!(log.contains(&error), "{log}");
}

#[test]
fn systemd_is_notified_of_start_and_stop() {
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
    program.signal("HUP");
    let reloading = state();
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload");
    assert!(micros.parse::<u64>().is_ok_and(|micros| micros > 0), "{reloading}");
    assert_eq!(state(), "READY=1");
    program.signal("TERM");
    assert_eq!(state(), "STOPPING=1");
    assert!(program.wait_for_exit().0.success());
}

/// Regression test: the successor received the sockets of the start, without later changes.
#[tokio::test]
async fn successor_takes_over_reloaded_listeners() {
    let handover = Socket::new("reloaded");
    let (added, removed) = (Socket::new("added"), Socket::new("removed"));
    let entry = |socket: &Socket| format!("[127.0.0.1:0, 'unix:{}']", socket.path());
    let file = RuleFile::new("reloaded", &rules(&entry(&removed), "127.0.0.1:0"));
    let more = ["--no-watch", "--handover", handover.path()];
    let (old, _, _) = Program::run(&file, &more);
    std::fs::write(file.path(), rules(&entry(&added), "127.0.0.1:0")).expect("written");
    old.signal("HUP");
    until(|| added.0.exists() && !removed.0.exists()).await;
    let idle = tokio::net::UnixStream::connect(&added.0).await.expect("a connection");
    let (new, _, _) = Program::run(&file, &more);
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
    assert!(added.0.exists(), "the successor owns the file");
    assert!(!removed.0.exists());
    let mut client = Raw::new(tokio::net::UnixStream::connect(&added.0).await.expect("a connection"));
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    drop((idle, client));
    new.signal("TERM");
    assert!(new.wait_for_exit().0.success());
    assert!(!added.0.exists());
}
