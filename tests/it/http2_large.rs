//! Long bodies over HTTP/2 on both sides, in both directions at once.

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::support::process::{Program, RuleFile};

const MIB: u64 = 1024 * 1024;

/// As much as both ends may have on their way.
const WINDOW: u32 = 1 << 20;

/// How much memory it may take, whatever the length.
const MOST: u64 = 32 * MIB;

/// An origin that sends back what comes, as far as it is taken.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
                let mut connection = builder.handshake::<_, Bytes>(stream).await.expect("a greeting");
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut to = respond.send_response(Response::new(()), false).expect("a client");
                    tokio::spawn(async move {
                        let mut from = request.into_body();
                        while let Some(data) = next(&mut from).await {
                            send(&mut to, data).await;
                        }
                        to.send_data(Bytes::new(), true).expect("a client");
                    });
                }
            });
        }
    });
    address
}

async fn next(from: &mut RecvStream) -> Option<Bytes> {
    let data = from.data().await?.expect("a body");
    from.flow_control().release_capacity(data.len()).expect("a window");
    Some(data)
}

async fn send(to: &mut SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        to.reserve_capacity(data.len());
        let capacity = poll_fn(|cx| to.poll_capacity(cx)).await.expect("a stream").expect("a window");
        to.send_data(data.split_to(capacity.min(data.len())), false).expect("a stream");
    }
}

/// Sends so many bytes, and reads as many back meanwhile.
async fn exchange(address: SocketAddr, length: u64) {
    let stream = TcpStream::connect(address).await.expect("a gateway");
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let (mut sender, connection) = builder.handshake::<_, Bytes>(stream).await.expect("a greeting");
    tokio::spawn(connection);
    let request = Request::post("http://a/").body(()).expect("a request");
    let (response, mut to) = sender.send_request(request, false).expect("a stream");
    let sending = async {
        let piece = Bytes::from(vec![b'x'; 64 * 1024]);
        for _ in 0..length / piece.len() as u64 {
            send(&mut to, piece.clone()).await;
        }
        to.send_data(Bytes::new(), true).expect("a stream");
    };
    let reading = async {
        let mut from = response.await.expect("an answer").into_body();
        let mut read = 0;
        while let Some(data) = next(&mut from).await {
            assert!(data.iter().all(|byte| *byte == b'x'));
            read += data.len() as u64;
        }
        read
    };
    let ((), read) = tokio::join!(sending, reading);
    assert_eq!(read, length);
}

#[tokio::test]
async fn an_echo_of_a_long_body_takes_no_more_memory_than_one_of_a_short_body() {
    let origin = echo().await;
    let rules = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0
upstreams: {{ echo: {{ targets: ['http://{origin}'], protocol: http2 }} }}
routes: [{{ name: all, match: {{}}, upstream: echo }}]\n"
    );
    let file = RuleFile::new("http2-large", &rules);
    let (program, address, _) = Program::run(&file, &["--workers", "1"]);
    exchange(address, MIB).await;
    let before = program.peak_memory();
    exchange(address, 256 * MIB).await;
    let more = (program.peak_memory() - before) as u64;
    assert!(more < MOST, "{} KiB", more / 1024);
}
