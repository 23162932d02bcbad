//! A minimal proxy built from hyper: one thread, a connection pool, and no changes to requests and responses.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

use super::Result;

type Pool = Rc<RefCell<Vec<SendRequest<Incoming>>>>;

/// The body of a response. Returns the upstream connection to the pool at its end.
struct ResponseBody {
    body: Incoming,
    lease: Option<(SendRequest<Incoming>, Pool)>,
}

/// Starts the proxy for `origin` until the process exits. Returns its address.
pub(crate) fn start(origin: SocketAddr) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    thread::spawn(move || LocalSet::new().block_on(&runtime, serve(listener, origin)));
    Ok(address)
}

async fn serve(listener: std::net::TcpListener, origin: SocketAddr) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let pool = Pool::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let pool = pool.clone();
        let service = service_fn(move |request| forward(request, pool.clone(), origin));
        // An error ends only the task of this client.
        spawn_local(async { _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await });
    }
}

async fn forward(request: Request<Incoming>, pool: Pool, origin: SocketAddr) -> Result<Response<ResponseBody>> {
    let idle = pool.borrow_mut().pop();
    let mut sender = match idle {
        Some(sender) => sender,
        None => open(origin).await?,
    };
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| ResponseBody { body, lease: Some((sender, pool)) }))
}

async fn open(origin: SocketAddr) -> Result<SendRequest<Incoming>> {
    let stream = TcpStream::connect(origin).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    spawn_local(async { _ = connection.await });
    Ok(sender)
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if self.body.is_end_stream()
            && let Some((sender, pool)) = self.lease.take()
        {
            pool.borrow_mut().push(sender);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
