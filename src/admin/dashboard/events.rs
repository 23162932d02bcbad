//! `GET /api/v1/events`: a stream of server-sent events. The first event has the last 15 minutes; then one event a second
//! has the last second. Each event is built once for all viewers, and only while there is a viewer.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, Receiver, Sender};

use super::history::{History, SECONDS};
use crate::admin::phase::EventStream;
use crate::admin::problem::Problem;
use tidegate_metrics::Sample;

/// The highest number of viewers.
const MAX_VIEWERS: usize = 32;

/// A viewer that is this many events behind is closed. Its page connects again and gets the whole history.
const MAX_LAG: usize = 32;

/// The history and its viewers. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Events(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    history: History,
    /// The first event of viewers that come in this second.
    first: Option<Bytes>,
    /// `None` once the listener is closed.
    viewers: Option<Sender<Bytes>>,
}

impl Events {
    pub(in crate::admin) fn new() -> Self {
        let viewers = Some(broadcast::channel(MAX_LAG).0);
        Self(Arc::new(Mutex::new(Shared { history: History::default(), first: None, viewers })))
    }

    /// Adds the sample of a second, and sends the event that `build` creates.
    pub(super) fn push(&self, sample: Sample, build: impl FnOnce(&History, usize) -> Bytes) {
        let mut shared = self.0.lock();
        shared.history.push(sample);
        shared.first = None;
        if let Some(viewers) = shared.viewers.as_ref().filter(|viewers| viewers.receiver_count() > 0) {
            // An error means that the last viewer has left.
            _ = viewers.send(build(&shared.history, 1));
        }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.0.lock().history)
    }

    /// Ends all streams. New viewers are admitted.
    pub(in crate::admin) fn end_viewers(&self) {
        let mut shared = self.0.lock();
        if shared.viewers.is_some() {
            shared.viewers = Some(broadcast::channel(MAX_LAG).0);
        }
    }

    /// Ends all streams, and admits no further viewers.
    pub(in crate::admin) fn close(&self) {
        self.0.lock().viewers = None;
    }

    /// Adds a viewer.
    pub(super) fn view(&self, build: impl FnOnce(&History, usize) -> Bytes) -> Result<Response, Problem> {
        let (first, events) = self.subscribe(build)?;
        let stream = stream::unfold((Some(first), events), |(first, mut events)| async move {
            match first {
                Some(first) => Some((first, (None, events))),
                // An error means that the viewer is too far behind, or that the listener is closed.
                None => Some((events.recv().await.ok()?, (None, events))),
            }
        });
        let body = Body::from_stream(futures_util::StreamExt::map(stream, Ok::<_, Infallible>));
        let fields = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
        let mut response = (fields, [("X-Accel-Buffering", "no")], body).into_response();
        response.extensions_mut().insert(EventStream);
        Ok(response)
    }

    fn subscribe(&self, build: impl FnOnce(&History, usize) -> Bytes) -> Result<(Bytes, Receiver<Bytes>), Problem> {
        let mut shared = self.0.lock();
        let Shared { history, first, viewers } = &mut *shared;
        let unavailable = |detail| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        let viewers = viewers.as_ref().ok_or_else(|| unavailable("the admin listener is closed"))?;
        if viewers.receiver_count() >= MAX_VIEWERS {
            return Err(unavailable("the dashboard has 32 viewers already: close one"));
        }
        let first = first.get_or_insert_with(|| build(history, SECONDS));
        Ok((first.clone(), viewers.subscribe()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use http_body_util::BodyExt;

    use super::*;

    fn build(text: &'static str) -> impl FnOnce(&History, usize) -> Bytes {
        move |_, _| Bytes::from_static(text.as_bytes())
    }

    /// Returns the next event, or `None` at the end of the stream.
    async fn next(body: &mut Body) -> Option<Bytes> {
        Some(body.frame().await?.expect("no error").into_data().expect("data"))
    }

    #[tokio::test]
    async fn events_are_built_once_and_only_for_viewers() {
        let (events, built) = (Events::new(), Cell::new(0));
        let count = |_: &History, seconds: usize| {
            built.set(built.get() + 1);
            Bytes::from(seconds.to_string())
        };
        events.push(Sample::default(), count);
        assert_eq!(built.get(), 0);
        let mut viewers: Vec<_> = (0..3).map(|_| events.view(count).expect("a stream").into_body()).collect();
        events.push(Sample::default(), count);
        assert_eq!(built.get(), 2);
        for viewer in &mut viewers {
            assert_eq!((next(viewer).await, next(viewer).await), (Some("900".into()), Some("1".into())));
        }
        drop(viewers);
        events.push(Sample::default(), count);
        assert_eq!(built.get(), 2);
    }

    #[tokio::test]
    async fn viewer_that_is_far_behind_is_closed() {
        let events = Events::new();
        let [mut slow, mut fast] = [(), ()].map(|()| events.view(build("first")).expect("a stream").into_body());
        for _ in 0..2 * MAX_LAG {
            next(&mut fast).await.expect("an event");
            events.push(Sample::default(), build("next"));
        }
        assert_eq!((next(&mut slow).await, next(&mut slow).await), (Some("first".into()), None));
        assert_eq!(next(&mut fast).await, Some("next".into()));
    }

    #[tokio::test]
    async fn ended_viewers_do_not_prevent_new_ones() {
        let events = Events::new();
        let mut old = events.view(build("first")).expect("a stream").into_body();
        events.end_viewers();
        assert_eq!((next(&mut old).await, next(&mut old).await), (Some("first".into()), None));
        let mut new = events.view(build("again")).expect("a stream").into_body();
        events.push(Sample::default(), build("next"));
        assert_eq!((next(&mut new).await, next(&mut new).await), (Some("first".into()), Some("next".into())));
        events.close();
        events.end_viewers();
        assert!(events.view(build("first")).is_err());
    }

    #[tokio::test]
    async fn streams_end_when_the_listener_is_closed() {
        let events = Events::new();
        let mut viewer = events.view(build("first")).expect("a stream").into_body();
        events.close();
        assert_eq!((next(&mut viewer).await, next(&mut viewer).await), (Some("first".into()), None));
        assert!(events.view(build("first")).is_err());
    }
}
