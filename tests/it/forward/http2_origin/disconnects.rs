//! Clients that disconnect, and responses before the end of an upload.

use tokio::sync::Semaphore;

use super::super::uploads::upload;
use super::*;

/// An origin that closes a connection after many resets, as Netty does.
#[derive(Clone, Default)]
struct ResetLimitingOrigin {
    /// The number of reset streams on each connection.
    resets: Arc<Mutex<Vec<usize>>>,
    /// Requests without a response.
    waiting: Arc<Mutex<usize>>,
    proceed: Arc<Notify>,
}

/// The number of resets after which the origin closes a connection.
const MAX_RESETS: usize = 200;

impl ResetLimitingOrigin {
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, origin) = (listener.local_addr().unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                origin.resets.lock().push(0);
                tokio::spawn(origin.clone().serve(stream, origin.resets.lock().len() - 1));
            }
        });
        address
    }

    async fn serve(self, stream: tokio::net::TcpStream, number: usize) {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while self.resets.lock()[number] < MAX_RESETS
            && let Some(Ok((request, respond))) = connection.accept().await
        {
            let origin = self.clone();
            match request.uri().path() {
                "/stays" => tokio::spawn(origin.respond(respond)),
                _ => tokio::spawn(origin.wait(respond, number)),
            };
        }
    }

    async fn respond(self, mut respond: SendResponse<Bytes>) {
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from("half "), false).unwrap();
        self.proceed.notified().await;
        stream.send_data(Bytes::from("and end"), true).unwrap();
    }

    async fn wait(self, mut respond: SendResponse<Bytes>, number: usize) {
        *self.waiting.lock() += 1;
        std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
        *self.waiting.lock() -= 1;
        self.resets.lock()[number] += 1;
    }
}

#[tokio::test]
async fn mass_disconnects_do_not_end_the_connection_of_others() {
    let origin = ResetLimitingOrigin::default();
    let gateway = to(origin.start().await).start();
    let mut stays = gateway.client().await;
    stays.send(get("/stays")).await;
    assert_eq!(stays.head().await.unwrap().status(), 200);
    for _ in 0..25 {
        let mut leaving = Vec::new();
        for _ in 0..20 {
            leaving.push(gateway.client().await);
        }
        for client in &mut leaving {
            client.send(get("/leaves")).await;
        }
        until(|| *origin.waiting.lock() == 20).await;
        drop(leaving);
        until(|| *origin.waiting.lock() == 0).await;
    }
    let resets = origin.resets.lock().clone();
    assert!(resets.iter().sum::<usize>() == 500 && resets.len() < 7, "{resets:?}");
    assert!(resets.iter().all(|count| *count < MAX_RESETS), "{resets:?}");
    origin.proceed.notify_one();
    let mut body = Vec::new();
    while let Ok(piece) = soon(stays.chunk()).await
        && !piece.is_empty()
    {
        body.extend(piece);
    }
    assert_eq!(String::from_utf8(body).unwrap(), "half and end");
}

#[tokio::test]
async fn opening_connection_outlives_its_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = to(listener.local_addr().unwrap()).start();
    let (connections, proceed) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(0)));
    let (count, gate) = (Arc::clone(&connections), Arc::clone(&proceed));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *count.lock() += 1;
            let gate = Arc::clone(&gate);
            tokio::spawn(async move {
                let _permit = gate.acquire().await;
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    respond.send_response(Response::new(()), true).ok();
                }
            });
        }
    });
    for _ in 0..3 {
        let mut client = gateway.client().await;
        client.send(get("/")).await;
        until(|| *connections.lock() == 1).await;
        drop(client);
        until(|| gateway.has_metric("tidegate_connections 0\n")).await;
    }
    proceed.add_permits(1);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(*connections.lock(), 1);
}

/// The origin resets the rest of the request, or leaves it unread.
#[tokio::test]
async fn early_rejection_is_complete_and_keeps_the_connection() {
    for resets in [false, true] {
        let origin = H2Origin::start(move |mut request: OriginRequest| async move {
            let head = Response::builder().status(413).header("content-length", 20_000);
            let mut stream = request.respond.send_response(head.body(()).unwrap(), false).unwrap();
            stream.send_data(Bytes::from(vec![b'x'; 20_000]), true).unwrap();
            // Otherwise, dropping the request resets the stream after the response (NO_ERROR).
            if !resets {
                std::future::poll_fn(|cx| stream.poll_reset(cx)).await.ok();
            }
        })
        .await;
        let gateway = origin.gateway();
        for requests in 1..=2 {
            let (_, response) = upload(&gateway).await;
            assert_eq!((response.status(), response.body.len()), (413, 20_000));
            assert_eq!((origin.connections(), origin.requests()), (1, requests));
        }
    }
}
