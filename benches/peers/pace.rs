//! Requests at a constant rate, and how long each took: `pace PORT RATE SECONDS CONNECTIONS [REDIS_PORT]`.
//!
//! Its kept connections share the rate, evenly spread over time. Each keeps to its own timetable whatever the answers
//! do: a request that was due while its connection still waited for an answer is timed from when it was due, so that a
//! late answer counts against all requests that it held up (no coordinated omission). One that is sent late because
//! this program was woken up late is timed from when it is sent.
//!
//! With the port of a Redis it also times a PING every millisecond, meanwhile, from when it is sent. Prints one line of
//! JSON, in microseconds. It depends on nothing: `rustc -O` is all that it takes.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SECOND: Duration = Duration::from_secs(1);
/// Between two PINGs.
const PAUSE: Duration = Duration::from_millis(1);
/// Answers are waited for no longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the first request is due: all threads are up by then.
const HEAD_START: Duration = Duration::from_millis(100);

/// When the exchanges on one connection are due.
#[derive(Clone, Copy)]
struct Timetable {
    next: Instant,
    end: Instant,
    period: Duration,
}

/// What is sent on a connection, and when its answer is whole.
#[derive(Clone, Copy)]
enum Protocol {
    Http,
    Redis,
}

/// How long exchanges took, in nanoseconds.
#[derive(Default)]
struct Times(Vec<u128>);

#[expect(clippy::print_stdout, reason = "the line is what it is for")]
fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [port, rate, seconds, connections, redis @ ..] = words.as_slice() else {
        return Err("usage: pace PORT RATE SECONDS CONNECTIONS [REDIS_PORT]".into());
    };
    // Threads inherit it: they wake up on time to a few microseconds. Where it cannot be set, they are later.
    let _ = fs::write("/proc/self/timerslack_ns", "1");
    let start = now() + HEAD_START;
    let end = start + SECOND * seconds.parse()?;
    let (port, connections) = (port.parse()?, connections.parse()?);
    let period = SECOND * connections / rate.parse()?;
    let requests = (0..connections).map(|number| {
        let next = start + period * number / connections;
        thread::spawn(move || run(Protocol::Http, port, Timetable { next, end, period }))
    });
    let requests: Vec<_> = requests.collect();
    let mut pings = Times::default();
    if let [redis] = redis {
        pings = run(Protocol::Redis, redis.parse()?, Timetable { next: start, end, period: PAUSE })?;
    }
    let mut all = Times::default();
    for connection in requests {
        all.0.extend(connection.join().map_err(|_| "a connection's thread ended")??.0);
    }
    println!("{{\"http\":{},\"redis\":{}}}", all.told(), pings.told());
    Ok(())
}

/// Keeps one connection to its timetable.
fn run(protocol: Protocol, port: u16, mut timetable: Timetable) -> Result<Times> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut times = Times::default();
    let mut buffer = [0; 4096];
    while timetable.next < timetable.end {
        let waiting = now() < timetable.next;
        if waiting {
            sleep(timetable.next - now().min(timetable.next));
        }
        let from = if waiting || protocol.is_closed_loop() { now() } else { timetable.next };
        stream.write_all(protocol.request())?;
        protocol.receive(&mut stream, &mut buffer)?;
        times.0.push((now() - from).as_nanos());
        timetable.next += timetable.period;
    }
    Ok(times)
}

#[expect(clippy::disallowed_methods, reason = "time is what it measures")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own waits for the time of its next request")]
fn sleep(time: Duration) {
    thread::sleep(time);
}

// === impl Protocol ===

impl Protocol {
    fn request(self) -> &'static [u8] {
        match self {
            Self::Http => b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            Self::Redis => b"*1\r\n$4\r\nPING\r\n",
        }
    }

    /// A round trip begins when it is sent, however many were due before.
    fn is_closed_loop(self) -> bool {
        matches!(self, Self::Redis)
    }

    /// Reads one answer, which must be the expected one.
    fn receive(self, stream: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        loop {
            let read = stream.read(buffer.get_mut(filled..).unwrap_or_default())?;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            filled += read;
            if self.is_whole(buffer.get(..filled).unwrap_or_default())? {
                return Ok(());
            }
        }
    }

    fn is_whole(self, answer: &[u8]) -> Result<bool> {
        let good: &[u8] = match self {
            Self::Http => b"HTTP/1.1 200",
            Self::Redis => b"+PONG\r\n",
        };
        let length = good.len().min(answer.len());
        if answer.get(..length) != good.get(..length) {
            return Err(format!("not the answer: {}", String::from_utf8_lossy(answer)).into());
        }
        match self {
            Self::Http => Ok(http_length(answer)?.is_some_and(|length| answer.len() >= length)),
            Self::Redis => Ok(answer.len() == good.len()),
        }
    }
}

/// The length of head and body, as soon as the head is whole.
fn http_length(answer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.ok_or("an answer without a length")?;
    Ok(Some(end + 4 + length.trim().parse::<usize>()?))
}

// === impl Times ===

impl Times {
    /// The number of exchanges and their quantiles, as JSON.
    fn told(mut self) -> String {
        self.0.sort_unstable();
        let [p50, p99, most] = [500, 990, 1_000].map(|thousandths| self.quantile(thousandths));
        format!("{{\"count\":{},\"p50\":{p50},\"p99\":{p99},\"max\":{most}}}", self.0.len())
    }

    /// In microseconds, with one decimal.
    fn quantile(&self, thousandths: usize) -> String {
        let place = (self.0.len() * thousandths).div_ceil(1_000).saturating_sub(1);
        let nanos = self.0.get(place).copied().unwrap_or_default();
        format!("{}.{}", nanos / 1_000, nanos / 100 % 10)
    }
}
