//! Requests at a constant rate, and how long each took: `pace PORT RATE SECONDS CONNECTIONS UPSTREAM_PORT [REDIS_PORT]`.
//!
//! Its kept connections take turns, evenly spread over time, whatever the answers do: a request that was due while its
//! connection still waited for an answer is timed from when it was due, so that a late answer counts against all
//! requests that it held up (no coordinated omission). One that is sent late because this program was late is timed from
//! when it is sent. Those of the first half second are not counted: the gateway opens its connections to the upstream.
//!
//! It is also the [upstream](mod@upstream) of the gateway, on a port of its own. With the port of a Redis it times a PING every
//! millisecond, meanwhile, from when it is sent. Prints one line of JSON, in microseconds. One thread does all of it,
//! since it shares the processors with what it measures.

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

/// What keeps the timetable.
struct Pacer {
    epoll: OwnedFd,
    requests: Vec<Connection>,
    pings: Option<Connection>,
    upstream: Upstream,
    timetable: Timetable,
}

/// Whom an event of epoll is about, as a number: that of a request's connection, or from these on.
const PINGS: u64 = 1 << 32;
const LISTENER: u64 = 2 << 32;
const UPSTREAM: u64 = 3 << 32;

/// When requests are due, and when PINGs are.
struct Timetable {
    start: Instant,
    /// Requests and PINGs count from here on.
    warm: Instant,
    end: Instant,
    rate: NonZeroU32,
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
/// After the first request is due, nothing is counted for so long.
const WARM_UP: Duration = Duration::from_millis(500);

#[expect(clippy::print_stdout, reason = "the line is what it is for")]
fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [port, rate, seconds, connections, upstream, redis @ ..] = words.as_slice() else {
        return Err("usage: pace PORT RATE SECONDS CONNECTIONS UPSTREAM_PORT [REDIS_PORT]".into());
    };
    // It wakes up on time to a few microseconds. Where this cannot be set, it is later.
    let _ = fs::write("/proc/self/timerslack_ns", "1");
    let timetable = Timetable::new(rate.parse()?, seconds.parse()?);
    let redis = redis.first().map(|redis| redis.parse()).transpose()?;
    let upstream = Upstream::listen(upstream.parse()?)?;
    let connections: NonZeroU32 = connections.parse()?;
    let mut pacer = Pacer::connect(port.parse()?, connections.get().into(), upstream, redis, timetable)?;
    pacer.run()?;
    let requests = Times::of(pacer.requests);
    println!("{{\"http\":{},\"redis\":{}}}", requests.told(), Times::of(pacer.pings).told());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "time is what it measures")]
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
            let connection = Connection::open(protocol, port, timetable.warm)?;
            watch(&epoll, connection.stream(), number)?;
            Ok(connection)
        };
        let requests: Result<Vec<_>> = (0..connections).map(|number| connect(Protocol::Http, port, number)).collect();
        let pings = redis.map(|port| connect(Protocol::Redis, port, PINGS)).transpose()?;
        Ok(Self { requests: requests?, pings, upstream, timetable, epoll })
    }

    /// Keeps to the timetable until its end, and until all has been answered.
    fn run(&mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(2 * self.requests.len() + 2);
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
                self.attend(event.data.u64())?;
            }
        }
    }

    fn attend(&mut self, number: u64) -> Result<()> {
        match number {
            PINGS => self.pings.as_mut().map_or(Ok(()), Connection::receive),
            LISTENER => self.accept(),
            UPSTREAM.. => self.answer(number),
            _ => self.requests[usize::try_from(number)?].receive(),
        }
    }

    fn accept(&mut self) -> Result<()> {
        while let Some((number, stream)) = self.upstream.accept()? {
            watch(&self.epoll, stream, UPSTREAM + u64::try_from(number)?)?;
        }
        Ok(())
    }

    fn answer(&mut self, number: u64) -> Result<()> {
        if let Some(closed) = self.upstream.answer(usize::try_from(number - UPSTREAM)?)? {
            epoll::delete(&self.epoll, closed)?;
        }
        Ok(())
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
    fn new(rate: NonZeroU32, seconds: u32) -> Self {
        let start = now() + HEAD_START;
        let warm = start + WARM_UP;
        Self { start, warm, end: warm + Duration::from_secs(seconds.into()), rate, requests: 0, next_ping: start }
    }

    /// When the next request is due; nothing after the last.
    fn next_request(&self) -> Option<Instant> {
        let after = Duration::from_nanos(u64::from(self.requests) * 1_000_000_000 / u64::from(self.rate.get()));
        Some(self.start + after).filter(|due| *due < self.end)
    }
}
