//! Bounds the memory of the requests of a connection that have no response yet, for example while they wait for permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{HeaderMap, HeaderValue, Request, Uri};

use super::send_queue::size_of_fields;

/// The heads of a connection may take this many bytes for each stream that it may have.
const PER_STREAM: usize = 8 * 1024;
/// The bound of a connection with few streams.
const MIN_BOUND: usize = 256 * 1024;

/// `h2` parses heads in place: a value keeps its whole read buffer in memory, which can be twice as long as the head. A
/// head of this many bytes is copied.
const COPIED: usize = 4 * 1024;

/// The heads of one connection.
#[derive(Debug)]
pub(super) struct RequestHeads {
    size: AtomicUsize,
    max: usize,
}

/// A head that counts until it is dropped.
#[derive(Debug)]
pub(super) struct CountedHead {
    heads: Arc<RequestHeads>,
    size: usize,
}

impl RequestHeads {
    pub(super) fn new(max_streams: u32) -> Arc<Self> {
        let max = (max_streams as usize).saturating_mul(PER_STREAM).max(MIN_BOUND);
        Arc::new(Self { size: AtomicUsize::new(0), max })
    }

    /// Counts the head of a request. Returns `None` if the connection has no room for it. A single head always has room.
    pub(super) fn count<B>(self: &Arc<Self>, request: &mut Request<B>) -> Option<CountedHead> {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let size = size_of_fields(request.headers()) + target;
        let total = self.size.fetch_add(size, Relaxed) + size;
        let counted = CountedHead { heads: Arc::clone(self), size };
        if total > self.max && total > size {
            return None;
        }
        if size >= COPIED {
            copy_values(request.headers_mut());
            if let Ok(uri) = Uri::try_from(request.uri().to_string()) {
                *request.uri_mut() = uri;
            }
        }
        Some(counted)
    }
}

impl Drop for CountedHead {
    fn drop(&mut self) {
        self.heads.size.fetch_sub(self.size, Relaxed);
    }
}

fn copy_values(fields: &mut HeaderMap) {
    for value in fields.values_mut() {
        if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> Request<()> {
        Request::get("http://a.example/path?query").header("x-field", "v".repeat(bytes)).body(()).unwrap()
    }

    #[test]
    fn heads_count_until_they_are_dropped() {
        let heads = RequestHeads::new(10);
        let mut counted: Vec<_> = (0..30).map_while(|_| heads.count(&mut request(16_000))).collect();
        assert_eq!(counted.len(), 15);
        counted.pop();
        assert!(heads.count(&mut request(15_000)).is_some());
        drop(counted);
        assert_eq!(heads.size.load(Relaxed), 0);
        assert!(heads.count(&mut request(MIN_BOUND)).is_some(), "a single head has room");
    }

    #[test]
    fn copied_head_is_equal() {
        let mut request = request(2 * COPIED);
        request.headers_mut().append("x-field", HeaderValue::from_bytes(b"\xff").unwrap());
        let (uri, fields) = (request.uri().clone(), request.headers().clone());
        RequestHeads::new(10).count(&mut request).unwrap();
        assert_eq!((request.uri(), request.headers()), (&uri, &fields));
        assert_ne!(request.headers()["x-field"].as_bytes().as_ptr(), fields["x-field"].as_bytes().as_ptr());
    }
}
