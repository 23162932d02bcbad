//! A connection that has one request under way at a time.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use super::protocol::Protocol;
use super::{Result, now};

pub(super) struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    /// From when on the request under way is timed.
    since: Option<Instant>,
    /// When those were due that wait for it.
    overdue: VecDeque<Instant>,
    received: Vec<u8>,
    /// What is timed from before this on is not counted.
    counted: Instant,
    took: Vec<Duration>,
}

/// As much is read at a time.
const ROOM: usize = 4096;

impl Connection {
    pub(super) fn open(protocol: Protocol, port: u16, counted: Instant) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (overdue, received) = (VecDeque::new(), Vec::new());
        Ok(Self { stream, protocol, since: None, overdue, received, counted, took: Vec::new() })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Sends what is due now, or as soon as the request before it is answered.
    pub(super) fn request(&mut self, due: Instant) -> Result<()> {
        if self.is_waiting() {
            self.overdue.push_back(due);
            return Ok(());
        }
        self.send(now())
    }

    /// Sends a request that is timed from `since` on.
    pub(super) fn send(&mut self, since: Instant) -> Result<()> {
        self.since = Some(since);
        Ok(self.stream.write_all(self.protocol.request())?)
    }

    /// Reads what has come. The answer must be the expected one.
    pub(super) fn receive(&mut self) -> Result<()> {
        let mut room = [0; ROOM];
        match self.stream.read(&mut room) {
            Ok(0) => return Err("the connection was closed".into()),
            Ok(read) => self.received.extend_from_slice(&room[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if self.protocol.is_whole(&self.received)? { self.settle() } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<()> {
        let since = self.since.take().ok_or("an answer that nobody asked for")?;
        if since >= self.counted {
            self.took.push(now() - since);
        }
        self.received.clear();
        self.overdue.pop_front().map_or(Ok(()), |due| self.send(due))
    }

    /// How long each counted request took.
    pub(super) fn into_times(self) -> Vec<Duration> {
        self.took
    }
}
