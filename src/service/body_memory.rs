//! Reads the body of a call into memory, within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::MAX_BODY;
use super::bad_call::BadCall;
use tidegate_proxy::upstream::{RequestBody, TooLong};

/// How many bytes of incomplete bodies a worker keeps. A body that arrives in one piece does not count, so that short calls are
/// not affected when incomplete bodies fill the memory.
const MAX_INCOMPLETE: usize = 32 << 20;

/// Counts the bytes of the incomplete bodies of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyMemory(Arc<AtomicUsize>);

/// The bytes of an incomplete body. When dropped, they no longer count.
struct Incomplete {
    bytes: BytesMut,
    counted: usize,
    memory: BodyMemory,
}

impl BodyMemory {
    /// Reads the whole body of a call.
    ///
    /// # Errors
    /// The body is too long or incomplete, or there is no memory for it.
    pub(super) async fn read(&self, body: RequestBody) -> Result<Bytes, BadCall> {
        self.read_at_most(body, MAX_BODY).await
    }

    /// Reads a whole body with at most `max` bytes.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(super) async fn read_at_most(&self, mut body: RequestBody, max: usize) -> Result<Bytes, BadCall> {
        body.limit(max as u64).map_err(|TooLong| BadCall::TooLong(max))?;
        let Some(first) = next_piece(&mut body, max).await? else { return Ok(Bytes::new()) };
        let Some(second) = next_piece(&mut body, max).await? else { return Ok(first) };
        let mut incomplete = Incomplete { bytes: BytesMut::new(), counted: 0, memory: self.clone() };
        incomplete.add(&first)?;
        incomplete.add(&second)?;
        while let Some(piece) = next_piece(&mut body, max).await? {
            incomplete.add(&piece)?;
        }
        Ok(std::mem::take(&mut incomplete.bytes).freeze())
    }
}

impl Incomplete {
    fn add(&mut self, piece: &[u8]) -> Result<(), BadCall> {
        self.counted += piece.len();
        if self.memory.0.fetch_add(piece.len(), Relaxed) + piece.len() > MAX_INCOMPLETE {
            return Err(BadCall::NoMemory);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.counted, Relaxed);
    }
}

/// Returns the next piece of a body with at most `max` bytes. Returns `None` at its end.
async fn next_piece(body: &mut RequestBody, max: usize) -> Result<Option<Bytes>, BadCall> {
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| if error.is::<TooLong>() { BadCall::TooLong(max) } else { BadCall::Incomplete })?;
        // Trailers have no meaning for a call.
        let Ok(data) = frame.into_data() else { continue };
        let piece = data.into_bytes().map_err(|_| BadCall::Incomplete)?;
        if !piece.is_empty() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use tidegate_proxy::transport::BodyData;

    fn body(pieces: Vec<Vec<u8>>) -> RequestBody {
        let frame = |piece: Vec<u8>| Ok::<_, Infallible>(Frame::data(BodyData::from(Bytes::from(piece))));
        RequestBody::new(StreamBody::new(futures_util::stream::iter(pieces.into_iter().map(frame))))
    }

    #[tokio::test]
    async fn body_of_several_pieces_is_joined_within_bounds() {
        let memory = BodyMemory::default();
        let pieces = ["", "a", "", "bc", "d"].map(|piece| piece.as_bytes().to_vec());
        assert_eq!(memory.read(body(pieces.to_vec())).await.ok().as_deref(), Some(&b"abcd"[..]));
        let too_long = memory.read(body(vec![vec![0; MAX_BODY], vec![0]])).await;
        assert!(matches!(too_long, Err(BadCall::TooLong(MAX_BODY))), "{too_long:?}");
        assert_eq!(memory.0.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn full_memory_affects_only_calls_in_several_pieces() {
        let memory = BodyMemory::default();
        memory.0.fetch_add(MAX_INCOMPLETE, Relaxed);
        assert_eq!(memory.read(body(vec![vec![7; 9]])).await.ok().as_deref(), Some(&[7; 9][..]));
        let in_pieces = memory.read(body(vec![vec![7], vec![7]])).await;
        assert!(matches!(in_pieces, Err(BadCall::NoMemory)), "{in_pieces:?}");
        assert_eq!(memory.0.load(Relaxed), MAX_INCOMPLETE);
    }
}
