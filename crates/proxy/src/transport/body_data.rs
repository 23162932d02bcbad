//! The data of the frames of a body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum BodyData {
    /// Bytes in memory.
    Bytes(Bytes),
    /// This many bytes in the pipe of a `Relay`. Only a writer that has the relay can write them.
    Piped(usize),
}

impl BodyData {
    /// Returns the number of bytes, in memory or in the pipe.
    #[inline] // called for each frame in other crates
    #[expect(clippy::len_without_is_empty, reason = "no caller distinguishes empty pieces")]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Piped(length) => *length,
        }
    }

    /// Returns the bytes, for a writer without a relay.
    ///
    /// # Errors
    /// The bytes are in a pipe.
    pub fn into_bytes(self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Piped(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl From<Bytes> for BodyData {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Reads the bytes in memory, as [`Body`] requires. Bytes in a pipe are not in memory: a reader that ignores relays gets a
/// body that is too short, and never other bytes.
impl Buf for BodyData {
    fn remaining(&self) -> usize {
        self.chunk().len()
    }

    fn chunk(&self) -> &[u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }

    fn advance(&mut self, count: usize) {
        if let Self::Bytes(bytes) = self {
            bytes.advance(count);
        }
    }
}

/// Polls a body, which may have data of another type.
pub fn poll_body_data<B>(body: &mut B, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, B::Error>>>
where
    B: Body<Data: Into<BodyData>> + Unpin,
{
    Pin::new(body).poll_frame(cx).map_ok(|frame| frame.map_data(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_a_pipe_are_never_read_from_memory() {
        let mut data = BodyData::Piped(5);
        assert_eq!((data.len(), data.remaining(), data.copy_to_bytes(0)), (5, 0, Bytes::new()));
        assert!(data.into_bytes().is_err());
        let mut data = BodyData::from(Bytes::from_static(b"bytes"));
        assert_eq!((data.len(), data.remaining(), data.get_u8()), (5, 5, b'b'));
        assert_eq!(data.into_bytes().unwrap(), "ytes");
    }

    #[test]
    fn data_is_as_small_as_its_bytes() {
        assert_eq!(size_of::<BodyData>(), size_of::<Bytes>());
        assert_eq!(size_of::<Frame<BodyData>>(), size_of::<Frame<Bytes>>());
    }
}
