//! What became of every request: what its client saw, and what the gateway's access log says of it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;

/// Where clients and gateways report to; cheap to clone.
#[derive(Clone)]
pub struct Journal(Sender<Event>);

/// What a client saw of a request; times are those of this machine, in milliseconds.
pub struct Seen {
    pub id: u64,
    pub begin: u64,
    pub end: u64,
    pub took: Duration,
    /// 0 if there was no answer.
    pub status: u16,
    pub gateway: u8,
    pub route: u8,
    pub client: u8,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// By the clock of clients, in milliseconds.
    pub begin: u64,
    pub end: u64,
    pub took: Duration,
    pub status: u16,
    pub gateway: u8,
    pub route: u8,
    pub client: u8,
    pub by: By,
}

/// Who decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Redis, at this moment of its clock.
    Store(u64),
    /// The gateway without it.
    Alone,
    /// No line tells of it.
    Nobody,
}

enum Event {
    Seen(Seen),
    Logged(u64, By),
}

/// A line of an access log, as far as it matters here.
#[derive(Deserialize)]
struct Line<'l> {
    message: &'l str,
    at: Option<u64>,
}

/// Begins a journal; it ends when nobody can report to it any more.
pub fn begin() -> (Journal, JoinHandle<Vec<Record>>) {
    let (send, receive) = channel();
    (Journal(send), std::thread::spawn(move || keep(&receive)))
}

impl Journal {
    pub fn seen(&self, seen: Seen) {
        _ = self.0.send(Event::Seen(seen));
    }

    /// Notes a line of an access log.
    pub fn logged(&self, line: &str) {
        let read: Line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let id = read.message.rsplit_once('/').and_then(|(_, id)| id.parse().ok());
        let id = id.unwrap_or_else(|| panic!("a request of nobody: {line}"));
        _ = self.0.send(Event::Logged(id, read.at.map_or(By::Alone, By::Store)));
    }
}

/// The client may be told before the line is read, or after.
fn keep(receive: &Receiver<Event>) -> Vec<Record> {
    let (mut records, mut seen, mut logged) = (Vec::new(), HashMap::new(), HashMap::new());
    while let Ok(event) = receive.recv() {
        let (one, by) = match event {
            Event::Seen(one) => match logged.remove(&one.id) {
                Some(by) => (one, by),
                None => {
                    seen.insert(one.id, one);
                    continue;
                }
            },
            Event::Logged(id, by) => match seen.remove(&id) {
                Some(one) => (one, by),
                None => {
                    logged.insert(id, by);
                    continue;
                }
            },
        };
        records.push(Record::new(&one, by));
    }
    records.extend(seen.into_values().map(|one| Record::new(&one, By::Nobody)));
    records
}

/// Reads a gateway's access log to its end, on a thread of its own.
pub fn follow(journal: Journal, log: impl std::io::BufRead + Send + 'static) {
    let read = move || log.lines().for_each(|line| journal.logged(&line.expect("a line")));
    std::thread::spawn(read);
}

// === impl Record ===

impl Record {
    fn new(seen: &Seen, by: By) -> Self {
        let Seen { begin, end, took, status, gateway, route, client, .. } = *seen;
        Self { begin, end, took, status, gateway, route, client, by }
    }

    pub fn is_granted(&self) -> bool {
        self.status == 200
    }
}
