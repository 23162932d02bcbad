//! Runs a case: sends its bytes, and compares the responses and the requests at the origins with the expected ones.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::format::{Case, Fields, bytes};
use super::origin::Origin;
use crate::support::gateway::TestGateway;
use crate::support::strict::{self, Message, Parsed};

/// How the bytes are split into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// All at once. If the connection is to end, followed by a request that must not arrive.
    WithMore,
    Parts(usize),
    Bytes,
}

/// A gateway with two origins.
pub struct Harness {
    pub gateway: TestGateway,
    pub open: Origin,
    pub guarded: Origin,
    number: u32,
}

const MORE: &[u8] = b"GET /more HTTP/1.1\r\nHost: more.example\r\n\r\n";

impl Harness {
    pub async fn start() -> Self {
        let (open, guarded) = (Origin::start().await, Origin::start().await);
        let rules = include_str!("rules.yaml")
            .replace("OPEN", &open.address.to_string())
            .replace("GUARDED", &guarded.address.to_string());
        Self { gateway: TestGateway::start(&rules), open, guarded, number: 0 }
    }

    /// Runs a case. Returns the first difference to its expectations.
    pub async fn run(&mut self, case: &Case, pieces: Pieces, max_wait: Duration) -> Result<(), String> {
        self.number += 1;
        let number = self.number;
        let script = |(response, eof): &(String, bool)| (bytes(response, number), *eof);
        self.open.set_response(case.origin.as_ref().map(script));
        let responses = self.check_responses(case, pieces, max_wait).await;
        let probe = match timeout(max_wait, self.probe()).await {
            Ok(probe) => probe,
            Err(_) => Err("no response to the next client".to_owned()),
        };
        let requests = self.check_requests(case);
        responses.and(probe).and(requests)
    }

    async fn check_responses(&self, case: &Case, pieces: Pieces, max_wait: Duration) -> Result<(), String> {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        let mut sent = bytes(&case.sent, self.number);
        let mut ends = case.eof || case.responses.last().is_none_or(|last| last.close || last.broken);
        let broken = case.responses.last().is_some_and(|last| last.broken);
        if pieces == Pieces::WithMore && ends && !case.eof && !broken {
            sent.extend_from_slice(MORE);
        }
        client.send(&sent, pieces).await;
        if case.eof {
            _ = client.stream.shutdown().await;
        }
        for (index, expected) in case.responses.iter().enumerate() {
            let numbered = |difference: String| format!("response {}: {difference}", index + 1);
            let response = match timeout(max_wait, client.response(expected.head)).await {
                Ok(Ok(response)) if !expected.broken => response,
                // The gateway replaces a response that breaks before its first byte is sent.
                Ok(Ok(response)) if response.status() == 502 => return Ok(()),
                Ok(Ok(response)) => return Err(numbered(format!("{} is complete", response.start))),
                Ok(Err(Parsed::Incomplete(Some(response)))) if expected.broken => response,
                // A reset may overtake the head.
                Ok(Err(Parsed::Incomplete(None))) if (expected.broken || expected.maybe) && client.bytes.is_empty() => {
                    return Ok(());
                }
                Ok(Err(other)) => return Err(numbered(format!("{other:?}"))),
                Err(_) => return Err(numbered(format!("none, only {:?}", String::from_utf8_lossy(&client.bytes)))),
            };
            let body = String::from_utf8_lossy(&response.body).into_owned();
            let has_close = response.values("connection").iter().any(|value| value == "close");
            match &expected.body {
                _ if !expected.statuses.contains(&response.status()) => {
                    return Err(numbered(format!("{} {body:?}, not {:?}", response.start, expected.statuses)));
                }
                Some(expected) if bytes(expected, self.number) != response.body => {
                    return Err(numbered(format!("body {body:?}")));
                }
                _ if expected.close && !has_close => return Err(numbered("no `connection: close`".to_owned())),
                _ if has_close && !(expected.close || expected.may_close || expected.broken) => {
                    return Err(numbered("unexpected `connection: close`".to_owned()));
                }
                _ => self.compare(&response, &expected.fields).map_err(numbered)?,
            }
            ends |= has_close;
        }
        if ends {
            return match timeout(max_wait, client.rest()).await {
                Ok(rest) if rest.is_empty() || broken => Ok(()),
                Ok(rest) => Err(format!("another response: {:?}", String::from_utf8_lossy(&rest))),
                Err(_) => Err("the connection stays open".to_owned()),
            };
        }
        client.send(&self.probe_bytes(), Pieces::Parts(1)).await;
        match timeout(max_wait, client.response(false)).await {
            Ok(Ok(response)) if response.body == self.probe_response() => Ok(()),
            other => Err(format!("the next request on the connection: {other:?}, {:?}", client.text())),
        }
    }

    /// Sends bytes. Returns all responses until the connection ends, and all requests at the open origin. The client
    /// closes the connection if no byte arrives within `max_wait`.
    pub async fn talk(&self, sent: &[u8], pieces: Pieces, max_wait: Duration) -> (Vec<Message>, Vec<Message>) {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        client.send(sent, pieces).await;
        let mut responses = Vec::new();
        loop {
            match timeout(max_wait, client.response(false)).await {
                Ok(Ok(response)) => responses.push(response),
                Ok(Err(_)) => break,
                Err(_) => _ = client.stream.shutdown().await,
            }
        }
        (responses, self.open.take_requests())
    }

    /// Sends a request. Returns the status and the body, or `None` if there is no complete response.
    pub async fn ask(&self, method: &str, max_wait: Duration) -> Option<(u16, Vec<u8>)> {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        let request = format!("{method} /a HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.send(request.as_bytes(), Pieces::Parts(1)).await;
        let response = timeout(max_wait, client.response(method == "HEAD")).await.ok()?.ok()?;
        Some((response.status(), response.body))
    }

    /// Checks that the next client gets its own response.
    async fn probe(&self) -> Result<(), String> {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        client.send(&self.probe_bytes(), Pieces::Parts(1)).await;
        match client.response(false).await {
            Ok(response) if response.body == self.probe_response() => Ok(()),
            other => Err(format!("the next client: {other:?}, {:?}", client.text())),
        }
    }

    fn probe_bytes(&self) -> Vec<u8> {
        format!("GET /probe/{} HTTP/1.1\r\nHost: probe.example\r\n\r\n", self.number).into_bytes()
    }

    fn probe_response(&self) -> Vec<u8> {
        format!("GET /probe/{}", self.number).into_bytes()
    }

    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.gateway.address).await.expect("should connect");
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    /// Compares the requests at the origins with the expected ones.
    fn check_requests(&self, case: &Case) -> Result<(), String> {
        let malformed = [self.open.take_malformed(), self.guarded.take_malformed()].concat();
        let requests = |origin: &Origin| -> Vec<Message> {
            origin
                .take_requests()
                .into_iter()
                .filter(|message| !message.method_and_target().starts_with("GET /probe/"))
                .collect()
        };
        let (open, guarded) = (requests(&self.open), requests(&self.guarded));
        if let Some(malformed) = malformed.first() {
            return Err(format!("a malformed request at the origin: {malformed}"));
        }
        for (name, got, is_guarded) in [("open", open, false), ("guarded", guarded, true)] {
            let wanted: Vec<_> = case.requests.iter().filter(|request| request.guarded == is_guarded).collect();
            let asked = |text: &str| String::from_utf8_lossy(&bytes(text, self.number)).into_owned();
            let same = got.len() == wanted.len()
                && got.iter().zip(&wanted).all(|(got, wanted)| {
                    got.method_and_target() == asked(&wanted.asked) && got.body == bytes(&wanted.body, self.number)
                });
            if !same {
                let shown = got
                    .iter()
                    .map(|got| format!("{} {:?}", got.method_and_target(), String::from_utf8_lossy(&got.body)));
                return Err(format!("the {name} origin got {:?}", shown.collect::<Vec<_>>()));
            }
            for (got, wanted) in got.iter().zip(wanted) {
                self.compare(got, &wanted.fields).map_err(|why| format!("the {name} origin got {why}"))?;
            }
        }
        Ok(())
    }

    fn compare(&self, got: &Message, wanted: &Fields) -> Result<(), String> {
        let shown = |values: &[&[u8]]| {
            values.iter().map(|value| String::from_utf8_lossy(value)).collect::<Vec<_>>().join(" | ")
        };
        for (fields, wanted) in [(&got.fields, &wanted.present), (&got.trailers, &wanted.trailers)] {
            for (name, value) in wanted {
                let values = values(fields, name);
                if values != [&bytes(value, self.number)[..]] {
                    return Err(format!("{name}: {:?}", shown(&values)));
                }
            }
        }
        for (fields, absent) in [(&got.fields, &wanted.absent), (&got.trailers, &wanted.absent_trailers)] {
            for name in absent {
                let values = values(fields, name);
                if !values.is_empty() {
                    return Err(format!("{name}: {:?}", shown(&values)));
                }
            }
        }
        Ok(())
    }
}

fn values<'m>(fields: &'m [(String, Vec<u8>)], name: &str) -> Vec<&'m [u8]> {
    fields.iter().filter(|(other, _)| other == name).map(|(_, value)| &value[..]).collect()
}

/// One connection to the gateway.
struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
    closed: bool,
}

impl Client {
    /// Sends bytes until the gateway closes the connection.
    async fn send(&mut self, bytes: &[u8], pieces: Pieces) {
        let size = match pieces {
            Pieces::WithMore => bytes.len(),
            Pieces::Parts(count) => bytes.len().div_ceil(count),
            // At most about 1,000 pieces.
            Pieces::Bytes => bytes.len() / 1_000,
        };
        for piece in bytes.chunks(size.max(1)) {
            if self.stream.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads the next final response. Returns the received part if it is incomplete.
    async fn response(&mut self, head_only: bool) -> Result<Message, Parsed> {
        loop {
            match strict::response(&self.bytes, head_only, self.closed) {
                Parsed::Complete(message, length) => {
                    self.bytes.drain(..length);
                    // Skips informational responses.
                    if message.status() >= 200 {
                        return Ok(message);
                    }
                }
                Parsed::Incomplete(_) if !self.closed => self.read().await,
                other => return Err(other),
            }
        }
    }

    /// Reads until the end of the connection.
    async fn rest(&mut self) -> Vec<u8> {
        while !self.closed {
            self.read().await;
        }
        std::mem::take(&mut self.bytes)
    }

    async fn read(&mut self) {
        self.closed = !matches!(self.stream.read_buf(&mut self.bytes).await, Ok(1..));
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}
