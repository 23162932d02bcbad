//! An origin that reads what it is sent with the strict reader, and remembers it.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::strict::{self, Message, Parsed};

/// An origin on a port of its own.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// What it has got, and what it answers.
#[derive(Debug, Default)]
struct Seen {
    whole: Vec<Message>,
    /// `METHOD TARGET` of requests whose end never came.
    begun: Vec<String>,
    wrong: Vec<String>,
    /// What it says to all but probes, and whether it closes then; else an echo of what was asked.
    script: Option<(Vec<u8>, bool)>,
}

impl Origin {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("should bind");
        let origin = Self { address: listener.local_addr().expect("should have an address"), seen: Arc::default() };
        let seen = Arc::clone(&origin.seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen)));
            }
        });
        origin
    }

    /// Answers like this from now on.
    pub fn say(&self, script: Option<(Vec<u8>, bool)>) {
        self.seen.lock().script = script;
    }

    /// The whole requests since the last time.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.seen.lock().whole)
    }

    /// What was no request, since the last time.
    pub fn take_wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().wrong)
    }

    /// The requests that were broken off, since the last time.
    pub fn take_begun(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().begun)
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    let (mut bytes, mut invited) = (Vec::new(), false);
    loop {
        match strict::request(&bytes) {
            Parsed::Complete(message, length) => {
                bytes.drain(..length);
                invited = false;
                let (answer, close) = answer(&message, &seen);
                seen.lock().whole.push(message);
                if stream.write_all(&answer).await.is_err() || close {
                    return;
                }
                continue;
            }
            Parsed::Incomplete(Some(head)) if !invited && !head.values("expect").is_empty() => {
                invited = true;
                if stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                    return;
                }
            }
            Parsed::Incomplete(_) => {}
            Parsed::Invalid(why) => {
                let bytes = String::from_utf8_lossy(&bytes).into_owned();
                seen.lock().wrong.push(format!("{why}, in {bytes:?}"));
                return;
            }
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            break;
        }
    }
    match strict::request(&bytes) {
        Parsed::Incomplete(Some(head)) => seen.lock().begun.push(head.method_and_target().to_owned()),
        _ if bytes.is_empty() => {}
        _ => seen.lock().begun.push(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

fn answer(message: &Message, seen: &Mutex<Seen>) -> (Vec<u8>, bool) {
    let asked = message.method_and_target();
    if let (false, Some(script)) = (asked.starts_with("GET /probe"), &seen.lock().script) {
        return script.clone();
    }
    let body = if asked.starts_with("HEAD ") { "" } else { asked };
    (format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes(), false)
}
