//! What became of every request: what its client saw, and what the gateway's access log says of it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;

/// Where clients and gateways report to; cheap to clone.
#[derive(Clone)]
pub struct Journal(Sender<Event>);

/// A request that is over: what its client saw, and who decided, once that is known.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// By the clock of this machine, in milliseconds.
    pub begin: u64,
    pub end: u64,
    pub took: Duration,
    /// 0 if there was no answer.
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

/// In milliseconds.
const HOUR: u64 = 3_600_000;

enum Event {
    Seen(u64, Record),
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
    /// Notes what a client saw of the request with this number.
    pub fn seen(&self, id: u64, record: Record) {
        _ = self.0.send(Event::Seen(id, record));
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
        let (record, by) = match event {
            Event::Seen(id, record) => match logged.remove(&id) {
                Some(by) => (record, by),
                None => {
                    seen.insert(id, record);
                    continue;
                }
            },
            Event::Logged(id, by) => match seen.remove(&id) {
                Some(record) => (record, by),
                None => {
                    logged.insert(id, by);
                    continue;
                }
            },
        };
        records.push(Record { by: by.by_our_clock(record.end), ..record });
    }
    records.extend(seen.into_values());
    records
}

/// Reads a gateway's access log to its end, on a thread of its own.
pub fn follow(journal: Journal, log: impl std::io::BufRead + Send + 'static) {
    let read = move || log.lines().for_each(|line| journal.logged(&line.expect("a line")));
    std::thread::spawn(read);
}

// === impl By ===

impl By {
    /// The same of a Redis whose clock has been moved, which is by whole hours: as the clock would tell that was not.
    fn by_our_clock(self, end: u64) -> Self {
        let Self::Store(at) = self else { return self };
        let hours = |difference: u64| (difference + HOUR / 2) / HOUR * HOUR;
        Self::Store(at + hours(end.saturating_sub(at)) - hours(at.saturating_sub(end)))
    }
}

// === impl Record ===

impl Record {
    pub fn is_granted(&self) -> bool {
        self.status == 200
    }
}
