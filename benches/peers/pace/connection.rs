//! A connection with at most one request in flight.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use super::protocol::Protocol;
use super::{Result, now};

pub(super) struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    /// The start of the timing of the request in flight.
    timed_from: Option<Instant>,
    /// The due times of the requests that wait for this connection.
    overdue: VecDeque<Instant>,
    received: Vec<u8>,
    /// Requests timed from before this are not counted.
    count_from: Instant,
    durations: Vec<Duration>,
}

/// The size of the read buffer.
const BUFFER_SIZE: usize = 4096;

impl Connection {
    pub(super) fn open(protocol: Protocol, port: u16, count_from: Instant) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (overdue, received) = (VecDeque::new(), Vec::new());
        Ok(Self { stream, protocol, timed_from: None, overdue, received, count_from, durations: Vec::new() })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.timed_from.is_some()
    }

    /// Sends a request now, or as soon as the previous request has its response.
    pub(super) fn request(&mut self, due: Instant) -> Result<()> {
        if self.is_waiting() {
            self.overdue.push_back(due);
            return Ok(());
        }
        self.send(now())
    }

    /// Sends a request that is timed from `since`.
    pub(super) fn send(&mut self, since: Instant) -> Result<()> {
        self.timed_from = Some(since);
        Ok(self.stream.write_all(self.protocol.request())?)
    }

    /// Reads available bytes of the response. Fails if it is not the expected response.
    pub(super) fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; BUFFER_SIZE];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err("the connection was closed".into()),
            Ok(read) => self.received.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if self.protocol.is_complete(&self.received)? { self.finish_request() } else { Ok(()) }
    }

    fn finish_request(&mut self) -> Result<()> {
        let since = self.timed_from.take().ok_or("a response without a request")?;
        if since >= self.count_from {
            self.durations.push(now() - since);
        }
        self.received.clear();
        self.overdue.pop_front().map_or(Ok(()), |due| self.send(due))
    }

    /// Returns the duration of each counted request.
    pub(super) fn into_times(self) -> Vec<Duration> {
        self.durations
    }
}
