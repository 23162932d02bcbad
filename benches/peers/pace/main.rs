//! Requests at a constant rate, and how long each took: `pace PORT RATE SECONDS CONNECTIONS [REDIS_PORT]`.
//!
//! Its kept connections take turns, evenly spread over time, whatever the answers do: a request that was due while its
//! connection still waited for an answer is timed from when it was due, so that a late answer counts against all
//! requests that it held up (no coordinated omission). One that is sent late because this program was late is timed from
//! when it is sent.
//!
//! With the port of a Redis it also times a PING every millisecond, meanwhile, from when it is sent. Prints one line of
//! JSON, in microseconds. One thread does all of it: it shares the processors with what it measures, and a thread for
//! each connection would take half as much again of them.

mod connection;
mod protocol;
mod times;

use std::error::Error;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use std::{env, fs};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use connection::Connection;
use protocol::Protocol;
use times::Times;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What keeps the timetable.
struct Pacer {
    epoll: OwnedFd,
    requests: Vec<Connection>,
    pings: Option<Connection>,
    timetable: Timetable,
}

/// When requests are due, and when PINGs are.
struct Timetable {
    start: Instant,
    end: Instant,
    rate: u32,
    /// So many requests have been due.
    requests: u32,
    next_ping: Instant,
}

/// Between two PINGs.
const PAUSE: Duration = Duration::from_millis(1);
/// Without any answer, no longer is waited for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the first request is due: all is connected by then.
const HEAD_START: Duration = Duration::from_millis(100);

#[expect(clippy::print_stdout, reason = "the line is what it is for")]
fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [port, rate, seconds, connections, redis @ ..] = words.as_slice() else {
        return Err("usage: pace PORT RATE SECONDS CONNECTIONS [REDIS_PORT]".into());
    };
    // It wakes up on time to a few microseconds. Where this cannot be set, it is later.
    let _ = fs::write("/proc/self/timerslack_ns", "1");
    let timetable = Timetable::new(rate.parse()?, seconds.parse()?);
    let redis = redis.first().map(|redis| redis.parse()).transpose()?;
    let mut pacer = Pacer::connect(port.parse()?, connections.parse()?, redis, timetable)?;
    pacer.run()?;
    let requests = Times::of(pacer.requests);
    println!("{{\"http\":{},\"redis\":{}}}", requests.told(), Times::of(pacer.pings).told());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "time is what it measures")]
fn now() -> Instant {
    Instant::now()
}

// === impl Pacer ===

impl Pacer {
    fn connect(port: u16, connections: u64, redis: Option<u16>, timetable: Timetable) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let connect = |protocol, port, number| -> Result<Connection> {
            let connection = Connection::open(protocol, port)?;
            epoll::add(&epoll, connection.stream(), EventData::new_u64(number), EventFlags::IN)?;
            Ok(connection)
        };
        let requests: Result<Vec<_>> = (0..connections).map(|number| connect(Protocol::Http, port, number)).collect();
        let pings = redis.map(|port| connect(Protocol::Redis, port, connections)).transpose()?;
        Ok(Self { requests: requests?, pings, timetable, epoll })
    }

    /// Keeps to the timetable until its end, and until all has been answered.
    fn run(&mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(self.requests.len() + 1);
        loop {
            let pause = self.send_what_is_due()?;
            let is_over = pause.is_none();
            if is_over && !self.requests.iter().chain(&self.pings).any(Connection::is_waiting) {
                return Ok(());
            }
            events.clear();
            let pause = pause.unwrap_or(PATIENCE).try_into()?;
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&pause))?;
            if is_over && events.is_empty() {
                return Err("an answer does not come".into());
            }
            for event in &events {
                let number = usize::try_from(event.data.u64())?;
                self.requests.get_mut(number).or(self.pings.as_mut()).map_or(Ok(()), Connection::receive)?;
            }
        }
    }

    /// How long until more is due; nothing at the end.
    fn send_what_is_due(&mut self) -> Result<Option<Duration>> {
        while let Some(due) = self.timetable.next_request() {
            if let Some(pause) = due.checked_duration_since(now()).filter(|pause| !pause.is_zero()) {
                return self.ping(pause).map(Some);
            }
            let turn = self.timetable.requests as usize % self.requests.len();
            self.requests[turn].request(due)?;
            self.timetable.requests += 1;
        }
        Ok(None)
    }

    /// Sends a PING if one is due. The time until the next, if that is shorter.
    fn ping(&mut self, pause: Duration) -> Result<Duration> {
        let Some(pings) = &mut self.pings else { return Ok(pause) };
        let (now, next) = (now(), &mut self.timetable.next_ping);
        if *next <= now && !pings.is_waiting() {
            pings.send(now)?;
            *next = now + PAUSE;
        }
        Ok(pause.min(if *next <= now { PAUSE } else { *next - now }))
    }
}

// === impl Timetable ===

impl Timetable {
    fn new(rate: u32, seconds: u32) -> Self {
        let start = now() + HEAD_START;
        Self { start, end: start + Duration::from_secs(seconds.into()), rate, requests: 0, next_ping: start }
    }

    /// When the next request is due; nothing after the last.
    fn next_request(&self) -> Option<Instant> {
        let after = Duration::from_nanos(u64::from(self.requests) * 1_000_000_000 / u64::from(self.rate));
        Some(self.start + after).filter(|due| *due < self.end)
    }
}
