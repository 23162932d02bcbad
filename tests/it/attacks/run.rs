//! Runs a case: sends its bytes, collects everything that comes back and everything that arrived, and compares.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::format::{Case, Fields, bytes};
use super::origin::Origin;
use crate::support::gateway::TestGateway;
use crate::support::strict::{self, Message, Parsed};

/// In which pieces the bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// At once; and, where the connection is to end, with a request behind them that must not arrive.
    WithMore,
    Parts(usize),
    Bytes,
}

/// A gateway between a client and two origins.
pub struct Stage {
    pub gateway: TestGateway,
    pub open: Origin,
    pub guarded: Origin,
    number: u32,
}

const MORE: &[u8] = b"GET /more HTTP/1.1\r\nHost: more.example\r\n\r\n";

impl Stage {
    pub async fn start() -> Self {
        let (open, guarded) = (Origin::start().await, Origin::start().await);
        let rules = include_str!("rules.yaml")
            .replace("OPEN", &open.address.to_string())
            .replace("GUARDED", &guarded.address.to_string());
        Self { gateway: TestGateway::start(&rules), open, guarded, number: 0 }
    }

    /// What is not as the case says; nothing if all is.
    pub async fn run(&mut self, case: &Case, pieces: Pieces, patience: Duration) -> Result<(), String> {
        self.number += 1;
        let number = self.number;
        let script = |(said, eof): &(String, bool)| (bytes(said, number), *eof);
        self.open.say(case.origin.as_ref().map(script));
        let answered = self.exchange(case, pieces, patience).await;
        let probed = match timeout(patience, self.probe()).await {
            Ok(probed) => probed,
            Err(_) => Err("nobody answers the next client".to_owned()),
        };
        let arrived = self.arrived(case);
        answered.and(probed).and(arrived)
    }

    async fn exchange(&self, case: &Case, pieces: Pieces, patience: Duration) -> Result<(), String> {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        let mut sent = bytes(&case.sent, self.number);
        let mut ends = case.eof || case.answers.last().is_none_or(|last| last.close || last.broken);
        if pieces == Pieces::WithMore && ends && !case.eof {
            sent.extend_from_slice(MORE);
        }
        client.send(&sent, pieces).await;
        if case.eof {
            _ = client.stream.shutdown().await;
        }
        for (index, expected) in case.answers.iter().enumerate() {
            let told = |what: String| format!("answer {}: {what}", index + 1);
            let answer = match timeout(patience, client.response(expected.head)).await {
                Ok(Ok(answer)) if !expected.broken => answer,
                Ok(Ok(answer)) => return Err(told(format!("{} is whole", answer.start))),
                Ok(Err(Parsed::Incomplete(Some(answer)))) if expected.broken => answer,
                // A reset may overtake the head.
                Ok(Err(Parsed::Incomplete(None))) if (expected.broken || expected.maybe) && client.bytes.is_empty() => {
                    return Ok(());
                }
                Ok(Err(other)) => return Err(told(format!("{other:?}"))),
                Err(_) => return Err(told(format!("none, but {:?}", String::from_utf8_lossy(&client.bytes)))),
            };
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            let announced = answer.values("connection").iter().any(|value| value == "close");
            match &expected.body {
                _ if !expected.statuses.contains(&answer.status()) => {
                    return Err(told(format!("{} {body:?}, not {:?}", answer.start, expected.statuses)));
                }
                Some(wanted) if bytes(wanted, self.number) != answer.body => {
                    return Err(told(format!("body {body:?}")));
                }
                _ if expected.close && !announced => return Err(told("does not say close".to_owned())),
                _ if announced && !(expected.close || expected.may_close || expected.broken) => {
                    return Err(told("says close".to_owned()));
                }
                _ => self.compare(&answer, &expected.fields).map_err(told)?,
            }
            ends |= announced;
        }
        if ends {
            let broken = case.answers.last().is_some_and(|last| last.broken);
            return match timeout(patience, client.rest()).await {
                Ok(rest) if rest.is_empty() || broken => Ok(()),
                Ok(rest) => Err(format!("another answer: {:?}", String::from_utf8_lossy(&rest))),
                Err(_) => Err("the connection stays open".to_owned()),
            };
        }
        client.send(&self.probe_bytes(), Pieces::Parts(1)).await;
        match timeout(patience, client.response(false)).await {
            Ok(Ok(answer)) if answer.body == self.probe_answer() => Ok(()),
            other => Err(format!("the next request on the connection: {other:?}, {:?}", client.text())),
        }
    }

    /// Sends these bytes, and collects all answers until the connection ends, which the client ends if nothing comes for
    /// `patience`; and all requests that the open origin got.
    pub async fn talk(&self, sent: &[u8], pieces: Pieces, patience: Duration) -> (Vec<Message>, Vec<Message>) {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        client.send(sent, pieces).await;
        let mut answers = Vec::new();
        loop {
            match timeout(patience, client.response(false)).await {
                Ok(Ok(answer)) => answers.push(answer),
                Ok(Err(_)) => break,
                Err(_) => _ = client.stream.shutdown().await,
            }
        }
        (answers, self.open.take())
    }

    /// Asks for a path: the status and the whole body of the answer; nothing if there is no whole answer.
    pub async fn ask(&self, method: &str, patience: Duration) -> Option<(u16, Vec<u8>)> {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        let request = format!("{method} /a HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.send(request.as_bytes(), Pieces::Parts(1)).await;
        let answer = timeout(patience, client.response(method == "HEAD")).await.ok()?.ok()?;
        Some((answer.status(), answer.body))
    }

    /// A client that comes afterwards.
    async fn probe(&self) -> Result<(), String> {
        let mut client = Client { stream: self.connect().await, bytes: Vec::new(), closed: false };
        client.send(&self.probe_bytes(), Pieces::Parts(1)).await;
        match client.response(false).await {
            Ok(answer) if answer.body == self.probe_answer() => Ok(()),
            other => Err(format!("the next client: {other:?}, {:?}", client.text())),
        }
    }

    fn probe_bytes(&self) -> Vec<u8> {
        format!("GET /probe/{} HTTP/1.1\r\nHost: probe.example\r\n\r\n", self.number).into_bytes()
    }

    fn probe_answer(&self) -> Vec<u8> {
        format!("GET /probe/{}", self.number).into_bytes()
    }

    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.gateway.address).await.expect("should connect");
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    /// Whether the origins got what they may get.
    fn arrived(&self, case: &Case) -> Result<(), String> {
        let wrong = [self.open.take_wrong(), self.guarded.take_wrong()].concat();
        let whole = |origin: &Origin| -> Vec<Message> {
            origin
                .take()
                .into_iter()
                .filter(|message| !message.method_and_target().starts_with("GET /probe/"))
                .collect()
        };
        let (open, guarded) = (whole(&self.open), whole(&self.guarded));
        if let Some(wrong) = wrong.first() {
            return Err(format!("the origin was sent what is no request: {wrong}"));
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
    /// Sends as much as is taken.
    async fn send(&mut self, bytes: &[u8], pieces: Pieces) {
        let size = match pieces {
            Pieces::WithMore => bytes.len(),
            Pieces::Parts(count) => bytes.len().div_ceil(count),
            // Of what is very long, only about so many.
            Pieces::Bytes => bytes.len() / 1_000,
        };
        for piece in bytes.chunks(size.max(1)) {
            if self.stream.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The next answer; what there is of it, if it is not whole.
    async fn response(&mut self, head_only: bool) -> Result<Message, Parsed> {
        loop {
            match strict::response(&self.bytes, head_only, self.closed) {
                Parsed::Complete(message, length) => {
                    self.bytes.drain(..length);
                    // What comes before an answer is none.
                    if message.status() >= 200 {
                        return Ok(message);
                    }
                }
                Parsed::Incomplete(_) if !self.closed => self.read().await,
                other => return Err(other),
            }
        }
    }

    /// All there is until the end.
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
