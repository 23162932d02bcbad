//! Tests with both sides of the protocol in one process.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::wire::{HANDOVER_SOCKET, VERSION};
use super::*;
use crate::gateway::socket_file::{self, CurrentSockets, ListeningSocket};

/// An old gateway with a handover socket, and a Unix socket for clients.
struct Old {
    path: PathBuf,
    clients: PathBuf,
    stop: oneshot::Sender<()>,
    run: JoinHandle<HandoverOutcome>,
}

impl Old {
    fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        let clients = path.with_extension("clients");
        let mut handover = Handover::listen(&path).unwrap();
        let sockets = CurrentSockets::default();
        sockets.replace(vec![Arc::new(socket_file::listen(&clients, 0o600).unwrap())]);
        let (stop, stopped) = oneshot::channel();
        let run = tokio::spawn(async move { handover.run(&sockets, stopped).await });
        Self { path, clients, stop, run }
    }

    async fn connect(&self) -> Predecessor {
        Predecessor::connect(&self.path).await.unwrap().expect("a predecessor")
    }

    /// Waits until the successor is ready, and releases it.
    async fn release(self) {
        match self.run.await.unwrap() {
            HandoverOutcome::TakenOver(successor) => successor.release().await.unwrap(),
            outcome => panic!("{outcome:?}"),
        }
    }

    /// Stops the wait for a successor. Returns the one that is starting, if there is one.
    async fn stop(self) -> Option<Successor> {
        self.stop.send(()).unwrap();
        match self.run.await.unwrap() {
            HandoverOutcome::Stopped(successor) => successor,
            outcome => panic!("{outcome:?}"),
        }
    }
}

/// Takes over from the old gateway. Returns the sockets of the successor.
async fn take_over(old: Old, mut new: Predecessor) -> (Vec<ListeningSocket>, Handover) {
    let sockets = new.take_sockets();
    let (taken, ()) = tokio::join!(new.take_over(), old.release());
    let (reply, handover, _) = taken.unwrap();
    assert!(matches!(reply, TakeOverReply::Released(None)), "{reply:?}");
    (sockets, handover.unwrap())
}

#[tokio::test]
async fn successor_owns_the_files_and_removes_them() {
    let old = Old::start("owned");
    let (path, clients) = (old.path.clone(), old.clients.clone());
    let new = old.connect().await;
    let served = take_over(old, new).await;
    assert!(path.exists() && clients.exists());
    drop(served);
    assert!(!path.exists() && !clients.exists());
}

#[tokio::test]
async fn file_of_an_unserved_socket_is_removed() {
    let old = Old::start("unserved");
    let (path, clients) = (old.path.clone(), old.clients.clone());
    let mut new = old.connect().await;
    drop(new.take_sockets());
    assert!(clients.exists(), "the old gateway still serves it");
    let _served = take_over(old, new).await;
    assert!(path.exists() && !clients.exists());
}

#[tokio::test]
async fn silent_connection_delays_no_successor() {
    let old = Old::start("silent");
    let mut silent = UnixStream::connect(&old.path).await.unwrap();
    let new = old.connect().await;
    let _served = take_over(old, new).await;
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "a connection that sends nothing gets nothing");
}

#[tokio::test]
async fn newest_successor_replaces_one_that_starts() {
    let old = Old::start("newest");
    let (first, clients) = (old.connect().await, old.clients.clone());
    let second = old.connect().await;
    assert!(first.take_over().await.unwrap_err().to_string().contains("a newer successor has connected"));
    assert!(clients.exists(), "the old gateway still serves");
    let _served = take_over(old, second).await;
    assert!(clients.exists());
}

#[tokio::test(start_paused = true)]
async fn successor_that_takes_too_long_is_refused() {
    let old = Old::start("late");
    let mut late = UnixStream::connect(&old.path).await.unwrap();
    late.write_all(&[VERSION]).await.unwrap();
    let mut received = Vec::new();
    late.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, [VERSION, wire::LISTENER_WITH_FILE, HANDOVER_SOCKET, wire::END, wire::REFUSE]);
    drop(old.stop().await);
}

#[tokio::test]
async fn files_of_a_failed_successor_are_reclaimed() {
    let old = Old::start("returned");
    let (path, clients) = (old.path.clone(), old.clients.clone());
    let failing = old.connect().await;
    let successor = old.stop().await.expect("a successor that starts");
    failing.give_up();
    let error = successor.wait_until_ready().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(path.exists() && clients.exists());
    successor.fail();
    assert!(!path.exists() && !clients.exists());
}

#[tokio::test]
async fn successor_serves_if_its_predecessor_has_ended() {
    let old = Old::start("ended");
    let (path, clients) = (old.path.clone(), old.clients.clone());
    let new = old.connect().await;
    drop(old.stop().await);
    assert!(path.exists() && clients.exists(), "not removed while there is a successor");
    let (reply, handover, _) = new.take_over().await.unwrap();
    assert!(matches!(reply, TakeOverReply::Ended), "{reply:?}");
    drop(handover.unwrap());
    assert!(!path.exists() && !clients.exists());
}

#[tokio::test]
async fn failing_successor_removes_files_of_an_ended_predecessor() {
    let old = Old::start("both");
    let (path, clients) = (old.path.clone(), old.clients.clone());
    let new = old.connect().await;
    drop(old.stop().await);
    new.give_up();
    assert!(!path.exists() && !clients.exists());
}

/// Regression test: a failed send was mistaken for the end of a gateway, and the new process served without a handover.
#[tokio::test]
async fn message_of_a_closed_peer_is_read() {
    let (stream, mut other) = UnixStream::pair().unwrap();
    other.write_all(b"+OK hello\r\n").await.unwrap();
    drop(other);
    let error = Predecessor::receive(stream, PathBuf::new()).await.unwrap_err();
    assert!(error.to_string().contains("another version"), "{error}");
}

#[tokio::test]
async fn other_version_is_rejected() {
    let old = Old::start("version");
    let mut other = UnixStream::connect(&old.path).await.unwrap();
    other.write_all(b"1").await.unwrap();
    let mut received = Vec::new();
    other.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, [VERSION]);
    drop(old.stop().await);
}
