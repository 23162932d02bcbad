//! Sends requests at a constant rate and measures their durations: `pace PORT RATE SECONDS CONNECTIONS UPSTREAM_PORT
//! [REDIS_PORT]`.
//!
//! The requests alternate between the keep-alive connections at even intervals, regardless of the responses. If a
//! connection still waits for a response when its next request is due, that request is timed from its due time. So a
//! late response counts against all requests that it delays (no coordinated omission). If this program itself is late,
//! the request is timed from when it is sent. Requests of the first half second are not counted, because the gateway
//! opens its upstream connections then.
//!
//! The program is also the [upstream](mod@upstream) of the gateway, on another port. With the port of a Redis, it sends
//! a PING every millisecond, timed from when it is sent. Prints one line of JSON with times in microseconds. It uses a
//! single thread, because it shares the processors with the measured programs.
mod connection;
mod protocol;
mod times;
mod upstream;

use std::error::Error;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{env, fs};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use connection::Connection;
use protocol::Protocol;
use times::Times;
use upstream::Upstream;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sends the requests and PINGs when they are due, and serves the upstream.
struct Pacer {
    epoll: OwnedFd,
    requests: Vec<Connection>,
    pings: Option<Connection>,
    upstream: Upstream,
    timetable: Timetable,
}

/// Event data of epoll. Numbers below `PINGS` are indexes of request connections; numbers from `UPSTREAM` on are
/// upstream connections.
const PINGS: u64 = 1 << 32;
const LISTENER: u64 = 2 << 32;
const UPSTREAM: u64 = 3 << 32;

/// The due times of requests and PINGs.
struct Timetable {
    start: Instant,
    /// Requests and PINGs are counted from here on.
    count_from: Instant,
    end: Instant,
    rate: NonZeroU32,
    /// The number of requests that have been due.
    requests: u32,
    next_ping: Instant,
}

/// The time between two PINGs.
const PING_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time before the first request, in which all connections are opened.
const HEAD_START: Duration = Duration::from_millis(100);
/// The time after the first request in which nothing is counted.
const WARM_UP: Duration = Duration::from_millis(500);

#[expect(clippy::print_stdout, reason = "the program prints its result")]
fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [port, rate, seconds, connections, upstream, redis @ ..] = arguments.as_slice() else {
        return Err("usage: pace PORT RATE SECONDS CONNECTIONS UPSTREAM_PORT [REDIS_PORT]".into());
    };
    // With the smallest timer slack, the program wakes up on time within a few microseconds. Ignore a failure: it then
    // wakes up later.
    let _ = fs::write("/proc/self/timerslack_ns", "1");
    let timetable = Timetable::new(rate.parse()?, seconds.parse()?);
    let redis = redis.first().map(|redis| redis.parse()).transpose()?;
    let upstream = Upstream::listen(upstream.parse()?)?;
    let connections: NonZeroU32 = connections.parse()?;
    let mut pacer = Pacer::connect(port.parse()?, connections.get().into(), upstream, redis, timetable)?;
    pacer.run()?;
    let requests = Times::new(pacer.requests);
    println!("{{\"http\":{},\"redis\":{}}}", requests.to_json(), Times::new(pacer.pings).to_json());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the program measures time")]
fn now() -> Instant {
    Instant::now()
}

fn watch(epoll: &OwnedFd, stream: impl AsFd, number: u64) -> Result<()> {
    Ok(epoll::add(epoll, stream, EventData::new_u64(number), EventFlags::IN)?)
}

// === impl Pacer ===

impl Pacer {
    fn connect(
        port: u16,
        connections: u64,
        upstream: Upstream,
        redis: Option<u16>,
        timetable: Timetable,
    ) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&epoll, upstream.listener(), LISTENER)?;
        let connect = |protocol, port, number| -> Result<Connection> {
            let connection = Connection::open(protocol, port, timetable.count_from)?;
            watch(&epoll, connection.stream(), number)?;
            Ok(connection)
        };
        let requests: Result<Vec<_>> = (0..connections).map(|number| connect(Protocol::Http, port, number)).collect();
        let pings = redis.map(|port| connect(Protocol::Redis, port, PINGS)).transpose()?;
        Ok(Self { requests: requests?, pings, upstream, timetable, epoll })
    }

    /// Runs until the end of the timetable, and until all responses have arrived.
    fn run(&mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(2 * self.requests.len() + 2);
        loop {
            let wait = self.send_due()?;
            let is_over = wait.is_none();
            if is_over && !self.requests.iter().chain(&self.pings).any(Connection::is_waiting) {
                return Ok(());
            }
            events.clear();
            let wait = wait.unwrap_or(RESPONSE_TIMEOUT).try_into()?;
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait))?;
            if is_over && events.is_empty() {
                return Err("a response did not arrive in time".into());
            }
            for event in &events {
                self.handle_event(event.data.u64())?;
            }
        }
    }

    fn handle_event(&mut self, number: u64) -> Result<()> {
        match number {
            PINGS => self.pings.as_mut().map_or(Ok(()), Connection::receive),
            LISTENER => self.accept(),
            UPSTREAM.. => self.respond(number),
            _ => self.requests[usize::try_from(number)?].receive(),
        }
    }

    fn accept(&mut self) -> Result<()> {
        while let Some((number, stream)) = self.upstream.accept()? {
            watch(&self.epoll, stream, UPSTREAM + u64::try_from(number)?)?;
        }
        Ok(())
    }

    fn respond(&mut self, number: u64) -> Result<()> {
        if let Some(closed) = self.upstream.respond(usize::try_from(number - UPSTREAM)?)? {
            epoll::delete(&self.epoll, closed)?;
        }
        Ok(())
    }

    /// Sends all due requests. Returns the time until the next one or the next PING, or `None` after the last request.
    fn send_due(&mut self) -> Result<Option<Duration>> {
        while let Some(due) = self.timetable.next_request() {
            if let Some(wait) = due.checked_duration_since(now()).filter(|wait| !wait.is_zero()) {
                return self.ping(wait).map(Some);
            }
            let connection = self.timetable.requests as usize % self.requests.len();
            self.requests[connection].request(due)?;
            self.timetable.requests += 1;
        }
        Ok(None)
    }

    /// Sends a PING if one is due. Returns the time until the next PING, or `wait` if that is shorter.
    fn ping(&mut self, wait: Duration) -> Result<Duration> {
        let Some(pings) = &mut self.pings else { return Ok(wait) };
        let (now, next) = (now(), &mut self.timetable.next_ping);
        if *next <= now && !pings.is_waiting() {
            pings.send(now)?;
            *next = now + PING_INTERVAL;
        }
        Ok(wait.min(if *next <= now { PING_INTERVAL } else { *next - now }))
    }
}

// === impl Timetable ===

impl Timetable {
    fn new(rate: NonZeroU32, seconds: u32) -> Self {
        let start = now() + HEAD_START;
        let count_from = start + WARM_UP;
        Self {
            start,
            count_from,
            end: count_from + Duration::from_secs(seconds.into()),
            rate,
            requests: 0,
            next_ping: start,
        }
    }

    /// Returns the due time of the next request, or `None` after the last.
    fn next_request(&self) -> Option<Instant> {
        let after = Duration::from_nanos(u64::from(self.requests) * 1_000_000_000 / u64::from(self.rate.get()));
        Some(self.start + after).filter(|due| *due < self.end)
    }
}
