//! The encoders of responses, for benchmarks.

use std::fmt;
use std::io;

use bytes::Bytes;

use crate::forward::Encoder;
use tidegate_rules::route::Coding;

/// Compresses one response, as a route with `compression` does.
pub struct ResponseEncoder(Encoder);

impl ResponseEncoder {
    /// Creates an encoder. Returns `None` if the process compresses as many responses as it may.
    pub fn new(coding: Coding) -> Option<Self> {
        Encoder::new(coding).map(Self)
    }

    /// Compresses a piece of the body. Returns the bytes to send, which may be none yet.
    ///
    /// # Errors
    /// The library of the coding failed.
    pub fn compress(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        self.0.compress(piece)
    }

    /// Ends the body. Returns its last bytes.
    ///
    /// # Errors
    /// The library of the coding failed.
    pub fn finish(self) -> io::Result<Bytes> {
        self.0.finish()
    }
}

impl fmt::Debug for ResponseEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseEncoder").finish_non_exhaustive()
    }
}
