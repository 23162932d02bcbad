//! Signals, silent connections and failing successors during a handover.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::support::process::{Program, RuleFile, tidegate};
use crate::support::wire::{soon, until};
use crate::unix_sockets::{Folder, ask, get, rules};

/// The rules and sockets of a gateway that hands over.
struct Stage {
    folder: Folder,
    rules: RuleFile,
    clients: String,
    handover: String,
}

impl Stage {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let [clients, admin, handover] = ["c", "a", "h"].map(|name| folder.path(name));
        let text = rules(&format!("unix:{clients}"), &format!("unix:{admin}"), "builtin:echo");
        Self { rules: RuleFile::new(&format!("handover-{name}"), &text), folder, clients, handover }
    }

    /// Starts a gateway, which takes over if another one runs.
    fn start(&self) -> Program {
        let arguments = ["run", "--workers", "2", "-c", self.rules.path(), "--handover", &self.handover];
        let mut program = Program::start(&mut tidegate(&arguments));
        wait_for(&mut program, "admin on ");
        program
    }

    /// Returns `true` if all socket files exist, and `false` if none does.
    fn has_files(&self) -> bool {
        let exists = ["c", "a", "h"].map(|name| Path::new(&self.folder.path(name)).exists());
        assert!(exists.iter().all(|one| *one == exists[0]), "{exists:?}");
        exists[0]
    }

    /// Connects as a successor, and receives the sockets.
    async fn start_successor(&self) -> UnixStream {
        let mut successor = soon(UnixStream::connect(&self.handover)).await.expect("a connection");
        successor.write_all(b"2").await.expect("sent");
        while read(&mut successor).await.expect("a byte") != b'.' {}
        successor
    }

    /// Sends a request with half of its body.
    async fn send_half(&self) -> UnixStream {
        let mut client = soon(UnixStream::connect(&self.clients)).await.expect("a connection");
        let head =
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        client.write_all(head.as_bytes()).await.expect("sent");
        let mut response = [0; 25];
        soon(client.read_exact(&mut response)).await.expect("an interim response");
        assert!(response.ends_with(b"\r\n\r\n"), "{}", response.escape_ascii());
        client.write_all(b"bo").await.expect("sent");
        client
    }
}

/// Sends the rest of the body, and returns the response.
async fn complete(mut client: UnixStream) -> String {
    client.write_all(b"dy").await.expect("sent");
    let mut response = String::new();
    soon(client.read_to_string(&mut response)).await.expect("a response");
    response
}

/// Returns the next byte, or `None` at the end of the connection.
async fn read(stream: &mut UnixStream) -> Option<u8> {
    let mut byte = [0];
    let length = soon(stream.read(&mut byte)).await.expect("a byte or the end");
    (length == 1).then_some(byte[0])
}

/// Returns the reply of the old gateway, after the state of its store; `None` at the end of the connection.
async fn read_reply(stream: &mut UnixStream) -> Option<u8> {
    loop {
        let byte = read(stream).await?;
        if byte != b's' {
            return Some(byte);
        }
        let length = soon(stream.read_u64_le()).await.expect("a length");
        let mut state = vec![0; length.try_into().expect("a length")];
        soon(stream.read_exact(&mut state)).await.expect("a state");
    }
}

/// Reads the log until a line contains `text`.
#[track_caller]
fn wait_for(program: &mut Program, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let length = std::io::BufRead::read_line(&mut program.stderr, &mut line).expect("text");
        assert_ne!(length, 0, "waited for {text:?}, but the log has ended");
    }
}

// === the old gateway ===

/// Regression test: SIGHUP cancelled the handover, and both gateways served.
#[tokio::test]
async fn hangup_does_not_cancel_a_handover() {
    let stage = Stage::new("hup");
    let mut old = stage.start();
    let mut successor = stage.start_successor().await;
    old.signal("HUP");
    wait_for(&mut old, "SIGHUP");
    successor.write_all(b"r").await.expect("sent");
    assert_eq!(read_reply(&mut successor).await, Some(b'd'), "the old gateway releases");
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
}

/// Regression test: the old gateway removed the files of sockets that its successor had already.
#[tokio::test]
async fn terminated_gateway_leaves_files_to_its_successor() {
    let stage = Stage::new("left");
    let old = stage.start();
    let mut successor = stage.start_successor().await;
    old.signal("TERM");
    let (status, log) = old.wait_for_exit();
    assert!(status.success(), "{log}");
    assert!(stage.has_files());
    assert_eq!(read_reply(&mut successor).await, Some(b'd'), "the successor can read the state and the release");
    assert_eq!(read(&mut successor).await, None, "the old process has ended");
}

#[tokio::test]
async fn draining_gateway_releases_its_successor() {
    let stage = Stage::new("both");
    let mut old = stage.start();
    let client = stage.send_half().await;
    let mut successor = stage.start_successor().await;
    old.signal("TERM");
    wait_for(&mut old, "draining");
    successor.write_all(b"r").await.expect("sent");
    assert_eq!(read_reply(&mut successor).await, Some(b'd'));
    assert!(complete(client).await.starts_with("HTTP/1.1 200"));
    assert!(old.wait_for_exit().0.success() && stage.has_files());
}

#[tokio::test]
async fn draining_gateway_removes_files_of_a_failed_successor() {
    let stage = Stage::new("failed");
    let mut old = stage.start();
    let client = stage.send_half().await;
    let successor = stage.start_successor().await;
    old.signal("TERM");
    wait_for(&mut old, "draining");
    assert!(stage.has_files());
    drop(successor);
    wait_for(&mut old, "successor failed before it took over");
    until(|| ["c", "a", "h"].iter().all(|name| !Path::new(&stage.folder.path(name)).exists())).await;
    assert!(complete(client).await.starts_with("HTTP/1.1 200"));
    assert!(old.wait_for_exit().0.success());
}

/// Regression test: the signal counted as the second one, and ended requests.
#[tokio::test]
async fn first_signal_after_a_handover_ends_no_request() {
    let stage = Stage::new("first");
    let mut old = stage.start();
    let clients = [stage.send_half().await, stage.send_half().await];
    let new = stage.start();
    wait_for(&mut old, "successor serves");
    old.signal("TERM");
    wait_for(&mut old, "the next signal ends this process");
    let [first, second] = clients;
    assert!(complete(first).await.starts_with("HTTP/1.1 200"));
    old.signal("INT");
    let (status, log) = old.wait_for_exit();
    assert!(status.code() == Some(2) && log.contains("ended by a second signal"), "{log}");
    assert!(!complete_or_fail(second).await, "a second signal ends requests");
    assert!(stage.has_files());
    assert!(ask(&stage.clients, &get("/")).await.starts_with("HTTP/1.1 200"));
    drop(new);
}

/// Returns `true` if the gateway responds.
async fn complete_or_fail(mut client: UnixStream) -> bool {
    let mut response = Vec::new();
    client.write_all(b"dy").await.is_ok()
        && soon(client.read_to_end(&mut response)).await.is_ok()
        && !response.is_empty()
}

// === processes that do not take over ===

/// Regression test: the old gateway waited for a minute, and successors gave up after 5 s.
#[tokio::test]
async fn silent_connections_do_not_delay_a_successor() {
    let stage = Stage::new("silent");
    let old = stage.start();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(soon(UnixStream::connect(&stage.handover)).await.expect("a connection"));
    }
    let _new = stage.start();
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
}

#[tokio::test]
async fn hung_successor_is_replaced_by_the_next_one() {
    let stage = Stage::new("hung");
    let old = stage.start();
    let mut hung = stage.start_successor().await;
    let _new = stage.start();
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("a newer successor connected"), "{log}");
    assert_eq!(read(&mut hung).await, Some(b'x'), "the hung successor must not serve");
    assert!(stage.has_files());
}

#[tokio::test]
async fn signal_ends_a_successor_before_it_serves() {
    let stage = Stage::new("early");
    let predecessor = UnixListener::bind(&stage.handover).expect("a socket");
    let arguments = ["run", "-c", stage.rules.path(), "--handover", &stage.handover];
    let new = Program::start(&mut tidegate(&arguments));
    let (mut connection, _) = soon(predecessor.accept()).await.expect("a successor");
    assert_eq!(read(&mut connection).await, Some(b'2'));
    new.signal("TERM");
    let (status, log) = new.wait_for_exit();
    assert!(status.success() && log.contains("received a signal before serving"), "{log}");
    assert!(Path::new(&stage.handover).exists() && !Path::new(&stage.clients).exists());
}
