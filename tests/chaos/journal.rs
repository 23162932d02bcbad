//! Joins what the client saw of each request with the gateway's access log line.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;

/// Receives the responses of clients and the access logs of gateways; cheap to clone.
#[derive(Clone)]
pub struct Journal(Sender<Event>);

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Start and end on the clock of this machine, in milliseconds.
    pub begin: u64,
    pub end: u64,
    /// The same span on the monotonic clock.
    pub took: Duration,
    /// 0 if there was no response.
    pub status: u16,
    pub gateway: u8,
    pub route: u8,
    pub client: u8,
    pub decided_by: DecidedBy,
}

/// Where a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// In Redis, at this time of its clock.
    Store(u64),
    /// In the gateway, without Redis.
    Gateway,
    /// The access log has no line for the request.
    Unknown,
}

const HOUR_IN_MS: u64 = 3_600_000;

enum Event {
    Response(u64, Record),
    LogLine(u64, DecidedBy),
}

/// The fields of an access log line that the journal needs.
#[derive(Deserialize)]
struct Line<'l> {
    message: &'l str,
    at: Option<u64>,
}

/// Starts a journal. Its thread returns the records when the last clone of the journal is dropped.
pub fn start() -> (Journal, JoinHandle<Vec<Record>>) {
    let (send, receive) = channel();
    (Journal(send), std::thread::spawn(move || join_events(&receive)))
}

impl Journal {
    /// Records the client's view of request `id`.
    pub fn record_response(&self, id: u64, record: Record) {
        _ = self.0.send(Event::Response(id, record));
    }

    /// Records an access log line.
    pub fn record_log_line(&self, line: &str) {
        let parsed: Line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let id = parsed.message.rsplit_once('/').and_then(|(_, id)| id.parse().ok());
        let id = id.unwrap_or_else(|| panic!("the path of a logged request does not end with a number: {line}"));
        _ = self.0.send(Event::LogLine(id, parsed.at.map_or(DecidedBy::Gateway, DecidedBy::Store)));
    }
}

/// Joins responses and log lines, which arrive in either order.
fn join_events(receive: &Receiver<Event>) -> Vec<Record> {
    let (mut records, mut responses, mut log_lines) = (Vec::new(), HashMap::new(), HashMap::new());
    while let Ok(event) = receive.recv() {
        let (record, decided_by) = match event {
            Event::Response(id, record) => match log_lines.remove(&id) {
                Some(decided_by) => (record, decided_by),
                None => {
                    responses.insert(id, record);
                    continue;
                }
            },
            Event::LogLine(id, decided_by) => match responses.remove(&id) {
                Some(record) => (record, decided_by),
                None => {
                    log_lines.insert(id, decided_by);
                    continue;
                }
            },
        };
        records.push(Record { decided_by: decided_by.on_local_clock(record.end), ..record });
    }
    records.extend(responses.into_values());
    records
}

/// Starts a thread that reads a gateway's access log to its end.
pub fn follow_log(journal: Journal, log: impl std::io::BufRead + Send + 'static) {
    let read = move || log.lines().for_each(|line| journal.record_log_line(&line.expect("a line")));
    std::thread::spawn(read);
}

// === impl DecidedBy ===

impl DecidedBy {
    /// Converts the time to this machine's clock: the clock faults shift Redis's clock by whole hours.
    fn on_local_clock(self, end: u64) -> Self {
        let Self::Store(at) = self else { return self };
        let hours = |difference: u64| (difference + HOUR_IN_MS / 2) / HOUR_IN_MS * HOUR_IN_MS;
        Self::Store(at + hours(end.saturating_sub(at)) - hours(at.saturating_sub(end)))
    }
}

// === impl Record ===

impl Record {
    pub fn is_granted(&self) -> bool {
        self.status == 200
    }
}
