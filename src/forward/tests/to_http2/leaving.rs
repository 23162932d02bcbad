//! Requests that end early: clients that leave in numbers, and answers before the end of an upload.

use tokio::sync::Semaphore;

use super::super::early::upload;
use super::*;

/// What an origin has seen that ends connections as servers of Netty do.
#[derive(Clone, Default)]
struct Strict {
    /// Streams that were reset, on each connection.
    resets: Arc<Mutex<Vec<usize>>>,
    /// Requests that are waiting for an answer.
    waiting: Arc<Mutex<usize>>,
    goes_on: Arc<Notify>,
}

/// The most streams that may be reset on a connection.
const MOST: usize = 200;

impl Strict {
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
        while self.resets.lock()[number] < MOST
            && let Some(Ok((request, respond))) = connection.accept().await
        {
            let origin = self.clone();
            match request.uri().path() {
                "/stays" => tokio::spawn(origin.answer(respond)),
                _ => tokio::spawn(origin.wait(respond, number)),
            };
        }
    }

    async fn answer(self, mut respond: SendResponse<Bytes>) {
        let mut to = respond.send_response(Response::new(()), false).unwrap();
        to.send_data(Bytes::from("half "), false).unwrap();
        self.goes_on.notified().await;
        to.send_data(Bytes::from("and whole"), true).unwrap();
    }

    async fn wait(self, mut respond: SendResponse<Bytes>, number: usize) {
        *self.waiting.lock() += 1;
        std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
        *self.waiting.lock() -= 1;
        self.resets.lock()[number] += 1;
    }
}

#[tokio::test]
async fn clients_that_leave_in_numbers_had_the_connection_ended_with_the_requests_of_others() {
    let origin = Strict::default();
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
    assert!(resets.iter().all(|count| *count < MOST), "{resets:?}");
    origin.goes_on.notify_one();
    let mut whole = Vec::new();
    while let Ok(piece) = soon(stays.chunk()).await
        && !piece.is_empty()
    {
        whole.extend(piece);
    }
    assert_eq!(String::from_utf8(whole).unwrap(), "half and whole");
}

#[tokio::test]
async fn a_connection_that_is_being_opened_outlives_the_client_that_asked_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = to(listener.local_addr().unwrap()).start();
    let (connections, goes_on) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(0)));
    let (count, gate) = (Arc::clone(&connections), Arc::clone(&goes_on));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *count.lock() += 1;
            let gate = Arc::clone(&gate);
            tokio::spawn(async move {
                let _greets = gate.acquire().await;
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
        until(|| gateway.metrics.render().contains("tidegate_connections 0\n")).await;
    }
    goes_on.add_permits(1);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(*connections.lock(), 1);
}

/// It resets the rest of the request, or leaves it where it is.
#[tokio::test]
async fn an_early_refusal_reaches_the_client_whole_and_its_connection_serves_others() {
    for resets in [false, true] {
        let origin = H2Origin::start(move |mut asked: Asked| async move {
            let head = Response::builder().status(413).header("content-length", 20_000);
            let mut to = asked.respond.send_response(head.body(()).unwrap(), false).unwrap();
            to.send_data(Bytes::from(vec![b'x'; 20_000]), true).unwrap();
            // Dropped, the rest is reset behind the answer (NO_ERROR).
            if !resets {
                std::future::poll_fn(|cx| to.poll_reset(cx)).await.ok();
            }
        })
        .await;
        let gateway = origin.gateway();
        for asked in 1..=2 {
            let (_, answer) = upload(&gateway).await;
            assert_eq!((answer.status(), answer.body.len()), (413, 20_000));
            assert_eq!((origin.connections(), origin.requests()), (1, asked));
        }
    }
}
