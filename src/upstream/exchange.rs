//! One request and its answer on one connection.

use std::future::poll_fn;
use std::io;
use std::mem::take;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tokio::time::Instant;

use super::body::ResponseBody;
use super::connection::Connection;
use super::download::Download;
use super::pool::Lease;
use super::transfer::Transfer;
use super::upload::{Trouble, Upload};
use super::{Attempt, Failure, Parcel};
use crate::http1::{Answer, Framing};

/// Sends a request and waits for the head of its answer, which has to begin by `limit` after `now`, or after the request
/// last moved. The request is still in its parcel if nothing was sent.
pub(super) async fn exchange(
    mut lease: Lease,
    parcel: &mut Parcel,
    now: Instant,
    limit: Duration,
) -> Result<Response<ResponseBody>, Attempt> {
    let Some(request) = parcel else { return Err(Attempt::NotSent) };
    let transfer = Transfer::attach(request);
    let connection = lease.connection();
    let begun = Upload::begin(connection, request).map_err(|_| Attempt::Failed(Failure::ClientBroken));
    let mut sending = Some(begun?);
    let mut asking = Asking { parcel, sending: &mut sending, transfer: transfer.as_deref(), fields: None };
    let answer = match &transfer {
        Some(transfer) => {
            let answer = poll_fn(|cx| asking.poll(connection, cx));
            transfer.wait(answer, limit).await.unwrap_or_else(|failure| Err(Attempt::Failed(failure)))
        }
        None => {
            poll_fn(|cx| match asking.poll(connection, cx) {
                Poll::Pending => connection.timer.poll(now + limit, cx).map(|()| Err(TIMED_OUT)),
                ready => ready,
            })
            .await
        }
    };
    let Answer { response, told, keeps_open, .. } = answer?;
    let Some(request) = parcel.take() else { return Err(Attempt::NotSent) };
    // An upgrade that nobody asked for: the bytes that follow are no HTTP.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Attempt::Failed(Failure::Broken));
    }
    let framing = Framing::of_answer(request.method(), response.status(), told);
    let held = transfer.is_some_and(|transfer| transfer.is_held());
    let keeps_open = keeps_open && !held;
    // A body that is held back has been answered without anybody asking for it.
    let upload = sending.filter(|_| !held).map(|upload| (upload, request.into_body()));
    Ok(response.map(|()| ResponseBody::new(Download::new(lease, framing, keeps_open, upload))))
}

const TIMED_OUT: Attempt = Attempt::Failed(Failure::TimedOut);

/// A request that is being sent, and whose answer is being waited for.
struct Asking<'a> {
    parcel: &'a mut Parcel,
    /// None once all of it is sent.
    sending: &'a mut Option<Upload>,
    transfer: Option<&'a Transfer>,
    /// Those of the request, once they are written: the answer's take their room.
    fields: Option<HeaderMap>,
}

impl Asking<'_> {
    /// Sends on, and looks for the answer.
    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<Result<Answer, Attempt>> {
        let trouble = self.poll_send(connection, cx);
        if trouble == Some(Trouble::Client) {
            return Poll::Ready(Err(Attempt::Failed(Failure::ClientBroken)));
        }
        match trouble {
            Some(_) if !connection.has_written && !self.has_taken() => return Poll::Ready(Err(Attempt::NotSent)),
            None if !connection.has_written => return Poll::Pending,
            _ => {}
        }
        // An upstream that takes no more may have said why.
        match ready!(self.poll_answer(connection, cx)) {
            Ok(answer) => Poll::Ready(Ok(answer)),
            Err(error) => {
                tracing::debug!(%error, "no valid answer from an upstream");
                Poll::Ready(Err(Attempt::Failed(Failure::Broken)))
            }
        }
    }

    fn poll_send(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Option<Trouble> {
        let (Some(upload), Some(request)) = (&mut *self.sending, &mut *self.parcel) else { return None };
        match upload.poll(connection, request.body_mut(), cx) {
            Poll::Ready(sent) => {
                if sent.is_ok() {
                    *self.sending = None;
                }
                sent.err()
            }
            Poll::Pending => None,
        }
    }

    /// Whether any of the body is no longer in its parcel.
    fn has_taken(&self) -> bool {
        self.sending.as_ref().is_some_and(Upload::has_taken)
    }

    /// The head of the answer; before it there may be others that only inform.
    fn poll_answer(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<io::Result<Answer>> {
        let parcel = &mut self.parcel;
        let fields = self.fields.get_or_insert_with(|| {
            let mut fields = parcel.as_mut().map(|request| take(request.headers_mut())).unwrap_or_default();
            fields.clear();
            fields
        });
        loop {
            let answer = ready!(connection.poll_head(fields, cx))?;
            let status = answer.response.status();
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(answer));
            }
            if status == StatusCode::CONTINUE
                && let Some(transfer) = self.transfer
            {
                transfer.open();
            }
        }
    }
}
