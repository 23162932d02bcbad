//! An origin that records the requests that it receives, as read by the strict reader.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::strict::{self, Message, Parsed};

/// An origin on a free port.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// The received requests and the response.
#[derive(Debug, Default)]
struct State {
    requests: Vec<Message>,
    /// `METHOD TARGET` of incomplete requests.
    begun: Vec<String>,
    /// Bytes that are not a valid request.
    malformed: Vec<String>,
    /// The response to all requests except probes, and whether the origin then closes. `None` echoes the request line.
    script: Option<(Vec<u8>, bool)>,
}

impl Origin {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("should bind");
        let origin = Self { address: listener.local_addr().expect("should have an address"), state: Arc::default() };
        let state = Arc::clone(&origin.state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
        origin
    }

    /// Sets the response to further requests, and whether the origin then closes.
    pub fn set_response(&self, script: Option<(Vec<u8>, bool)>) {
        self.state.lock().script = script;
    }

    /// Returns and clears the complete requests.
    pub fn take_requests(&self) -> Vec<Message> {
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Returns and clears the malformed requests.
    pub fn take_malformed(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().malformed)
    }

    /// Returns and clears the incomplete requests.
    pub fn take_begun(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().begun)
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let (mut bytes, mut invited) = (Vec::new(), false);
    loop {
        match strict::request(&bytes) {
            Parsed::Complete(message, length) => {
                bytes.drain(..length);
                invited = false;
                let (response, close) = response(&message, &state);
                state.lock().requests.push(message);
                if stream.write_all(&response).await.is_err() || close {
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
                state.lock().malformed.push(format!("{why}, in {bytes:?}"));
                return;
            }
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            break;
        }
    }
    match strict::request(&bytes) {
        Parsed::Incomplete(Some(head)) => state.lock().begun.push(head.method_and_target().to_owned()),
        _ if bytes.is_empty() => {}
        _ => state.lock().begun.push(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

fn response(message: &Message, state: &Mutex<State>) -> (Vec<u8>, bool) {
    let asked = message.method_and_target();
    if let (false, Some(script)) = (asked.starts_with("GET /probe"), &state.lock().script) {
        return script.clone();
    }
    let body = if asked.starts_with("HEAD ") { "" } else { asked };
    (format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes(), false)
}
